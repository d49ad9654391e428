package invoke

import (
	"context"
	"slices"
	"strings"
)

// Trace is the place of a call in a distributed trace, in the text forms that travel: W3C Trace Context and W3C Baggage.
// It takes no tracing library to pass it on.
type Trace struct {
	Parent  string // traceparent: version, trace ID, span ID and flags
	State   string // tracestate; may be empty
	Baggage string // baggage; may be empty
}

// maxTraceText is how long a variable may be, in bytes: the limit of W3C Baggage, and more than W3C Trace Context asks for.
const maxTraceText = 8192

// TraceFromEnv reads what a program has inherited as TRACEPARENT, TRACESTATE and BAGGAGE through get, usually
// [os.Getenv]. ok is false if there is no valid Trace. Processes inherit it anyway; plugins in the same process are part of
// it if it is put into the context.
func TraceFromEnv(get func(string) string) (t Trace, ok bool) {
	t = Trace{Parent: get("TRACEPARENT"), State: get("TRACESTATE"), Baggage: get("BAGGAGE")}
	return t, t.Valid()
}

// Valid reports whether Parent is a traceparent with a trace ID and a span ID (W3C Trace Context, 3.2). Of a version that
// is not known it may go on behind the flags, up to 255 characters.
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

// ID returns the trace ID, 32 lower-case hexadecimal digits, empty if t is not valid.
func (t Trace) ID() string {
	if !t.Valid() {
		return ""
	}
	return t.Parent[3:35]
}

// Environ returns t as variables for a plugin, none if it is not valid. A State or Baggage that cannot be text of a header,
// or makes more than 8192 bytes, is left out: it is worth less than the call.
func (t Trace) Environ() []string {
	if !t.Valid() {
		return nil
	}
	vars := []string{"TRACEPARENT=" + t.Parent, "TRACESTATE=" + t.State, "BAGGAGE=" + t.Baggage}
	return slices.DeleteFunc(vars, func(kv string) bool { return kv == "TRACESTATE=" || kv == "BAGGAGE=" || !isTraceText(kv) })
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func isTraceText(s string) bool {
	return len(s) <= maxTraceText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

type traceKey struct{}

// WithTrace returns a context for calls that are part of t. [Process] gives it to plugins as TRACEPARENT, TRACESTATE and
// BAGGAGE, whatever the verb; plugins in this process find it in their context. One that is not valid hides that of ctx:
// nothing is added to what plugins inherit from this process.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceFrom returns the Trace that calls with ctx are part of; ok is false if there is none, or none that is valid.
func TraceFrom(ctx context.Context) (t Trace, ok bool) {
	t, _ = ctx.Value(traceKey{}).(Trace)
	return t, t.Valid()
}
