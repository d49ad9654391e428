package traceview

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tenon-cni/tenon/internal/trace"
)

// OTLP is a request of OTLP/HTTP in JSON (ExportTraceServiceRequest): the body of a POST to
// /v1/traces of a collector. Identifiers are hexadecimal, 64-bit numbers are strings and
// enumerations are numbers, as the specification of OTLP requires ("JSON Protobuf Encoding").
type OTLP struct {
	ResourceSpans []ResourceSpans `json:"resourceSpans"`
}

// ResourceSpans are the spans of a program on a host.
type ResourceSpans struct {
	Resource   Resource     `json:"resource"`
	ScopeSpans []ScopeSpans `json:"scopeSpans"`
}

// Resource describes a program.
type Resource struct {
	Attributes []KeyValue `json:"attributes"`
}

// ScopeSpans are the spans of a library.
type ScopeSpans struct {
	Scope Scope      `json:"scope"`
	Spans []OTLPSpan `json:"spans"`
}

// Scope is the library that recorded the spans.
type Scope struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// OTLPSpan is a span in OTLP.
type OTLPSpan struct {
	TraceID      string     `json:"traceId"`
	SpanID       string     `json:"spanId"`
	ParentSpanID string     `json:"parentSpanId,omitempty"`
	Name         string     `json:"name"`
	Kind         int        `json:"kind"` // SpanKind
	Start        string     `json:"startTimeUnixNano"`
	End          string     `json:"endTimeUnixNano"`
	Attributes   []KeyValue `json:"attributes,omitempty"`
	Status       Status     `json:"status"`
}

// Status is the outcome of a span.
type Status struct {
	Message string `json:"message,omitempty"`
	Code    int    `json:"code,omitempty"` // StatusCode
}

// KeyValue is an attribute.
type KeyValue struct {
	Key   string `json:"key"`
	Value Value  `json:"value"`
}

// Value is the value of an attribute; one field is set.
type Value struct {
	String *string `json:"stringValue,omitempty"`
	Int    *string `json:"intValue,omitempty"`
	Array  *Array  `json:"arrayValue,omitempty"`
}

// Array is a list of values.
type Array struct {
	Values []Value `json:"values"`
}

// The numbers of the enumerations SpanKind and StatusCode.
const (
	spanKindInternal = 1
	spanKindServer   = 2
	spanKindClient   = 3
	statusCodeError  = 2
)

// scopeName is the library in the spans.
const scopeName = "github.com/tenon-cni/tenon/internal/trace"

// Export returns operations in OTLP. host is the name of the host, and version the version of the
// program.
func Export(operations []*Span, host, version string) OTLP {
	scope := ScopeSpans{Scope: Scope{Name: scopeName, Version: version}, Spans: []OTLPSpan{}}
	for _, o := range operations {
		scope.Spans = append(scope.Spans, exported(o, o.Trace, o.Parent)...)
	}
	return OTLP{ResourceSpans: []ResourceSpans{{
		Resource: Resource{Attributes: []KeyValue{
			{"service.name", textValue("tenon")}, {"host.name", textValue(host)},
		}},
		ScopeSpans: []ScopeSpans{scope},
	}}}
}

// exported returns a span and its descendants. All have the identifier of the operation's trace.
func exported(s *Span, traceID, parent string) []OTLPSpan {
	span := OTLPSpan{
		TraceID: traceID, SpanID: s.ID, ParentSpanID: parent, Name: s.Name, Kind: spanKind(s.Kind),
		Start: strconv.FormatInt(s.Start, 10), End: strconv.FormatInt(s.End, 10),
	}
	if s.Error != "" {
		span.Status = Status{Message: s.Error, Code: statusCodeError}
	}
	all := maps.Clone(s.Attributes)
	if all == nil {
		all = map[string]any{}
	}
	all["tenon.kind"] = string(s.Kind)
	all["process.pid"] = s.PID
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if value, ok := valueOf(all[key]); ok {
			span.Attributes = append(span.Attributes, KeyValue{key, value})
		}
	}
	list := []OTLPSpan{span}
	for _, c := range s.Children {
		list = append(list, exported(c, traceID, s.ID)...)
	}
	return list
}

func spanKind(k trace.Kind) int {
	switch k {
	case trace.Plugin, trace.Delegate:
		return spanKindClient
	case trace.Process:
		return spanKindServer
	}
	return spanKindInternal
}

func textValue(s string) Value { return Value{String: &s} }

func intValue(n int64) Value {
	s := strconv.FormatInt(n, 10)
	return Value{Int: &s}
}

// valueOf returns an attribute as it was decoded from JSON.
func valueOf(v any) (Value, bool) {
	switch v := v.(type) {
	case string:
		return textValue(v), true
	case int:
		return intValue(int64(v)), true
	case float64: // only integers are recorded
		return intValue(int64(v)), true
	case []any:
		array := Array{Values: []Value{}}
		for _, x := range v {
			if value, ok := valueOf(x); ok {
				array.Values = append(array.Values, value)
			}
		}
		return Value{Array: &array}, true
	}
	return Value{}, false
}
