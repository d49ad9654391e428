// Package otel makes OpenTelemetry spans of what a [network.Client] does, and lets plugins go on with the trace. It is a module
// of its own, so that nobody else gets its dependencies.
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

// Observer is a [network.Observer] that makes a span of each operation and, within it, of each call of a plugin, of each
// rollback and clean-up, and of waits for locks of a millisecond and more. The zero value is ready for use.
//
// Spans are called after verb and plugin ("CNI ADD", "CNI ADD bridge"). Their attributes are cni.network, cni.container_id,
// cni.ifname and cni.attachment (see [cni.Attachment.Owner]), cni.verb, cni.plugin and, after a failure, cni.error_code.
//
// Plugins get the span of their call, and the baggage of the context, as [invoke.WithTrace] describes. Where the context has
// no span but an [invoke.Trace], which the program may itself have been started with, that is what spans are part of.
type Observer struct {
	Provider trace.TracerProvider // nil is that of [global.GetTracerProvider]

	// ErrorText gives failed spans the text of the error. It is off by default because plugins may quote what they were
	// given: arguments and capability values.
	ErrorText bool
}

var _ network.Observer = Observer{}

// shortestWait is how long waiting for a lock takes at least to be worth a span.
const shortestWait = time.Millisecond

// propagator has the formats that plugins are given.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// Begin implements [network.Observer].
func (o Observer) Begin(ctx context.Context, e network.Event) (context.Context, func(network.Outcome)) {
	ctx = inherit(ctx)
	start := []trace.SpanStartOption{trace.WithAttributes(attributes(e)...), trace.WithSpanKind(kind(e))}
	if e.Kind == network.Lock {
		return ctx, func(out network.Outcome) {
			if end := time.Now(); out.Duration >= shortestWait || out.Err != nil {
				_, span := o.tracer().Start(ctx, name(e), append(start, trace.WithTimestamp(end.Add(-out.Duration)))...)
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

// inherit makes the trace that the program is part of that of ctx, unless it has one.
func inherit(ctx context.Context) context.Context {
	t, ok := invoke.TraceFrom(ctx)
	if !ok || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagator.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State, "baggage": t.Baggage})
}

// handOn tells plugins the span of ctx, if there is one.
func handOn(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	m := propagation.MapCarrier{}
	propagator.Inject(ctx, m)
	return invoke.WithTrace(ctx, invoke.Trace{Parent: m["traceparent"], State: m["tracestate"], Baggage: m["baggage"]})
}

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

// attributes says what e is about, as far as there is something.
func attributes(e network.Event) []attribute.KeyValue {
	var list []attribute.KeyValue
	for _, a := range [][2]string{
		{"cni.attachment", string(e.ID())}, {"cni.network", e.Attachment.Network}, {"cni.container_id", e.Attachment.Container},
		{"cni.ifname", e.Attachment.IfName}, {"cni.verb", string(e.Verb)}, {"cni.plugin", e.Plugin},
	} {
		if a[1] != "" {
			list = append(list, attribute.String(a[0], a[1]))
		}
	}
	return list
}
