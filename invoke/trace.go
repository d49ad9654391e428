package invoke

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
)

// Trace is the position of a call in a distributed trace, in the text forms of W3C Trace Context
// and W3C Baggage. Passing it on requires no tracing library.
type Trace struct {
	Parent  string // traceparent: version, trace ID, span ID and flags
	State   string // tracestate; may be empty
	Baggage string // baggage; may be empty
}

// maxTraceText is the maximum length of a variable in bytes: the limit of W3C Baggage, which
// exceeds the minimum of W3C Trace Context.
const maxTraceText = 8192

// TraceFromEnv reads the inherited variables TRACEPARENT, TRACESTATE and BAGGAGE with get, usually
// [os.Getenv]. ok is false if they hold no valid Trace. Processes inherit the variables anyway;
// plugins in this process join the trace only if it is in the context.
func TraceFromEnv(get func(string) string) (t Trace, ok bool) {
	t = Trace{Parent: get("TRACEPARENT"), State: get("TRACESTATE"), Baggage: get("BAGGAGE")}
	return t, t.Valid()
}

// Valid reports whether Parent is a traceparent with a trace ID and a span ID (W3C Trace Context,
// 3.2). In an unknown version, up to 255 characters in total are accepted, with more fields after
// the flags.
func (t Trace) Valid() bool {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	p := t.Parent
	if len(p) < length || p[2] != '-' || p[35] != '-' || p[52] != '-' {
		return false
	}
	version, trace, span, flags := p[:2], p[3:35], p[36:52], p[53:length]
	if !isHex(version) || version == "ff" || !isHex(trace) || !isHex(span) || !isHex(flags) {
		return false
	}
	if strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return false
	}
	return len(p) == length || version != "00" && p[length] == '-' && len(p) < 256 && isTraceText(p)
}

// ID returns the trace ID, 32 lower-case hexadecimal digits, or "" if t is not valid.
func (t Trace) ID() string {
	if !t.Valid() {
		return ""
	}
	return t.Parent[3:35]
}

// Environ returns t as variables for a plugin, or none if t is not valid. It omits a State or
// Baggage that cannot be text of a header or makes a variable longer than 8192 bytes, rather than
// fail the call.
func (t Trace) Environ() []string {
	if !t.Valid() {
		return nil
	}
	vars := []string{"TRACEPARENT=" + t.Parent, "TRACESTATE=" + t.State, "BAGGAGE=" + t.Baggage}
	return slices.DeleteFunc(vars, func(kv string) bool {
		return kv == "TRACESTATE=" || kv == "BAGGAGE=" || !isTraceText(kv)
	})
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func isTraceText(s string) bool {
	special := func(r rune) bool { return r < ' ' || r > '~' }
	return len(s) <= maxTraceText && !strings.ContainsFunc(s, special)
}

type traceKey struct{}

// WithTrace returns a context for calls that are part of t. [Process] passes t to plugins as
// TRACEPARENT, TRACESTATE and BAGGAGE, for all verbs; plugins in this process find it in their
// context. An invalid t hides the trace of ctx: plugins then only inherit the variables of this
// process.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// spans is the function of [TraceSpans].
var spans atomic.Pointer[func(context.Context) Trace]

// TraceSpans makes of return the trace of a context without one of [WithTrace], for all calls of
// this process. of returns the zero Trace for a context without a span. Package otel registers one
// for OpenTelemetry, so that a program need only import it.
func TraceSpans(of func(context.Context) Trace) { spans.Store(&of) }

// TraceFrom returns the Trace of calls with ctx, from [WithTrace] or else from the function of
// [TraceSpans]; ok is false if there is no valid one.
func TraceFrom(ctx context.Context) (t Trace, ok bool) {
	t, given := ctx.Value(traceKey{}).(Trace)
	if of := spans.Load(); !given && of != nil {
		t = (*of)(ctx)
	}
	return t, t.Valid()
}
