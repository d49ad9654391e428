// Package otel turns the operations of a [network.Client] into OpenTelemetry spans and passes the
// trace to plugins. It is a separate module, so that other users do not get its dependencies.
package otel

import (
	"context"
	"fmt"
	"time"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// Observer is a [network.Observer] that creates a span for each operation and, within it, for each
// plugin call, each rollback and cleanup, and each wait for a lock of a millisecond or more. The
// zero value is ready for use.
//
// The name of a span consists of verb and plugin ("CNI ADD", "CNI ADD bridge"). Its attributes are
// cni.network, cni.container_id, cni.ifname and cni.attachment (see [cni.Attachment.Owner]),
// cni.verb, cni.plugin and, after a failure, cni.error_code.
//
// Plugins get the span of their call, and the baggage of the context: see [invoke.WithTrace]. If
// the context has no span but an [invoke.Trace], which the program may have inherited from its
// environment, the spans belong to this trace.
type Observer struct {
	Provider trace.TracerProvider // nil is [global.GetTracerProvider]

	// ErrorText adds the text of the error to failed spans. It is off by default because plugins
	// can quote their input: arguments and capability values.
	ErrorText bool
}

var _ network.Observer = Observer{}

// shortestWait is the shortest wait for a lock that gets a span.
const shortestWait = time.Millisecond

// propagator has the formats that plugins understand.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
	propagation.Baggage{})

// Begin implements [network.Observer].
func (o Observer) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	ctx = inherit(ctx)
	start := []trace.SpanStartOption{trace.WithAttributes(attributes(e)...),
		trace.WithSpanKind(kind(e))}
	if e.Kind == network.Lock {
		return ctx, func(out network.Outcome) {
			if end := time.Now(); out.Duration >= shortestWait || out.Err != nil {
				_, span := o.tracer().Start(ctx, name(e),
					append(start, trace.WithTimestamp(end.Add(-out.Duration)))...)
				o.end(span, out.Err, trace.WithTimestamp(end))
			}
		}
	}
	ctx, span := o.tracer().Start(ctx, name(e), start...)
	return handOn(ctx), func(out network.Outcome) { o.end(span, out.Err) }
}

func (o Observer) tracer() trace.Tracer {
	provider := o.Provider
	if provider == nil {
		provider = global.GetTracerProvider()
	}
	return provider.Tracer("github.com/tenon-cni/tenon/otel")
}

func (o Observer) end(span trace.Span, err error, options ...trace.SpanEndOption) {
	if err != nil {
		code := cni.CodeOf(err)
		span.SetAttributes(attribute.Int("cni.error_code", int(code)))
		text := fmt.Sprintf("CNI error %d", code)
		if o.ErrorText {
			text = err.Error()
		}
		span.SetStatus(codes.Error, text)
	}
	span.End(options...)
}

// inherit adds the trace of the program to ctx, unless ctx has a span.
func inherit(ctx context.Context) context.Context {
	t, ok := invoke.TraceFrom(ctx)
	if !ok || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagator.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent,
		"tracestate": t.State, "baggage": t.Baggage})
}

// handOn passes the span of ctx, if it has one, to plugins.
func handOn(ctx context.Context) context.Context {
	if t := traceOf(ctx); t.Valid() {
		return invoke.WithTrace(ctx, t)
	}
	return ctx
}

// traceOf returns the trace of the span in ctx, the zero Trace if there is none.
func traceOf(ctx context.Context) invoke.Trace {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return invoke.Trace{}
	}
	m := propagation.MapCarrier{}
	propagator.Inject(ctx, m)
	return invoke.Trace{Parent: m["traceparent"], State: m["tracestate"], Baggage: m["baggage"]}
}

// Programs that call plugins without an [Observer], such as those with libcni's API, only import
// this package.
func init() { invoke.TraceSpans(traceOf) }

func name(e network.Event) string {
	switch e.Kind {
	case network.Operation:
		return "CNI " + string(e.Verb)
	case network.PluginCall:
		return "CNI " + string(e.Verb) + " " + e.Plugin
	}
	return "CNI " + string(e.Kind)
}

func kind(e network.Event) trace.SpanKind {
	if e.Kind == network.PluginCall {
		return trace.SpanKindClient
	}
	return trace.SpanKindInternal
}

// attributes returns the attributes of e that have a value.
func attributes(e network.Event) []attribute.KeyValue {
	var list []attribute.KeyValue
	for _, a := range [][2]string{
		{"cni.attachment", string(e.ID())}, {"cni.network", e.Attachment.Network},
		{"cni.container_id", e.Attachment.Container},
		{"cni.ifname", e.Attachment.IfName}, {"cni.verb", string(e.Verb)}, {"cni.plugin", e.Plugin},
	} {
		if a[1] != "" {
			list = append(list, attribute.String(a[0], a[1]))
		}
	}
	return list
}
