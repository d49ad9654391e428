package traceview_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/traceview"
)

// The types of the OTLP messages that Export uses, in the JSON mapping of OTLP: field names in
// lowerCamelCase, bytes of identifiers as hexadecimal digits, 64-bit integers as decimal strings and
// enumerations as numbers (opentelemetry-proto, trace/v1/trace.proto, common/v1/common.proto).
type (
	otlpRequest struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes             []otlpAttribute `json:"attributes"`
				DroppedAttributesCount uint32          `json:"droppedAttributesCount"`
			} `json:"resource"`
			ScopeSpans []struct {
				Scope struct {
					Name       string          `json:"name"`
					Version    string          `json:"version"`
					Attributes []otlpAttribute `json:"attributes"`
				} `json:"scope"`
				Spans     []otlpSpan `json:"spans"`
				SchemaURL string     `json:"schemaUrl"`
			} `json:"scopeSpans"`
			SchemaURL string `json:"schemaUrl"`
		} `json:"resourceSpans"`
	}
	otlpSpan struct {
		TraceID           hexID           `json:"traceId"`
		SpanID            hexID           `json:"spanId"`
		TraceState        string          `json:"traceState"`
		ParentSpanID      hexID           `json:"parentSpanId"`
		Flags             uint32          `json:"flags"`
		Name              string          `json:"name"`
		Kind              int32           `json:"kind"`
		StartTimeUnixNano decimal         `json:"startTimeUnixNano"`
		EndTimeUnixNano   decimal         `json:"endTimeUnixNano"`
		Attributes        []otlpAttribute `json:"attributes"`
		Status            struct {
			Message string `json:"message"`
			Code    int32  `json:"code"`
		} `json:"status"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpValue struct {
		StringValue *string  `json:"stringValue"`
		BoolValue   *bool    `json:"boolValue"`
		IntValue    *decimal `json:"intValue"`
		DoubleValue *float64 `json:"doubleValue"`
		ArrayValue  *struct {
			Values []otlpValue `json:"values"`
		} `json:"arrayValue"`
	}
)

// hexID is an identifier of 8 or 16 bytes.
type hexID string

func (id *hexID) UnmarshalJSON(b []byte) error {
	if !regexp.MustCompile(`^"([0-9a-f]{16}|[0-9a-f]{32})"$`).Match(b) || strings.Trim(string(b), `"0`) == "" {
		return fmt.Errorf("identifier %s", b)
	}
	*id = hexID(strings.Trim(string(b), `"`))
	return nil
}

// decimal is a 64-bit number.
type decimal uint64

func (d *decimal) UnmarshalJSON(b []byte) error {
	text, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("number %s: not a string", b)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	*d = decimal(n)
	return err
}

func (v otlpValue) check() error {
	set := 0
	for _, is := range []bool{v.StringValue != nil, v.BoolValue != nil, v.IntValue != nil, v.DoubleValue != nil, v.ArrayValue != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("value with %d fields", set)
	}
	if v.ArrayValue != nil {
		for _, x := range v.ArrayValue.Values {
			if err := x.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeOTLP decodes a request strictly and checks what the types do not express.
func decodeOTLP(encoded []byte) (r otlpRequest, err error) {
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				if err := s.check(); err != nil {
					return r, fmt.Errorf("span %q: %w", s.Name, err)
				}
			}
		}
	}
	return r, nil
}

func (s otlpSpan) check() error {
	switch {
	case len(s.TraceID) != 32 || len(s.SpanID) != 16 || len(s.ParentSpanID) != 16 && s.ParentSpanID != "":
		return fmt.Errorf("identifiers %q %q %q", s.TraceID, s.SpanID, s.ParentSpanID)
	case s.Name == "" || s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano == 0:
		return fmt.Errorf("from %d to %d", s.StartTimeUnixNano, s.EndTimeUnixNano)
	case s.Kind < 1 || s.Kind > 5 || s.Status.Code < 0 || s.Status.Code > 2:
		return fmt.Errorf("kind %d, status %d", s.Kind, s.Status.Code)
	}
	keys := map[string]bool{}
	for _, a := range s.Attributes {
		if keys[a.Key] {
			return fmt.Errorf("attribute %s twice", a.Key)
		}
		keys[a.Key] = true
		if err := a.Value.check(); err != nil {
			return fmt.Errorf("attribute %s: %w", a.Key, err)
		}
	}
	return nil
}

func TestOTLP(t *testing.T) {
	t.Parallel()
	operations := read(t, append(file(failing()...), file(call("ae", "bridge", "ADD", "db", 90000, 95000))...))
	encoded, err := json.MarshalIndent(traceview.Export(operations, "node-7", "1.2.3"), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	r, err := decodeOTLP(encoded)
	if err != nil {
		t.Fatalf("%v in\n%s", err, encoded)
	}
	spans := r.ResourceSpans[0].ScopeSpans[0].Spans
	ids, roots := map[hexID]bool{}, 0
	for _, s := range spans {
		if ids[s.SpanID] {
			t.Errorf("span %s twice", s.SpanID)
		}
		ids[s.SpanID] = true
	}
	for _, s := range spans {
		if s.ParentSpanID == "" {
			roots++
		} else if !ids[s.ParentSpanID] {
			t.Errorf("%s: no parent %s", s.Name, s.ParentSpanID)
		}
	}
	if want := len(failing()) + 2; len(spans) != want || roots != 2 { // the other operation has two
		t.Errorf("%d spans, want %d; %d roots", len(spans), want, roots)
	}
	golden(t, "failing.otlp.json", string(encoded)+"\n")
}

// The decoder of the test refuses what collectors refuse.
func TestDecodeOTLP(t *testing.T) {
	t.Parallel()
	const good = `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0123456789abcdef0123456789abcdef","spanId":"0123456789abcdef",` +
		`"name":"a","kind":1,"startTimeUnixNano":"5","endTimeUnixNano":"6","attributes":[{"key":"k","value":{"intValue":"1"}}]}]}]}]}`
	if _, err := decodeOTLP([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for old, replaced := range map[string]string{
		`"5"`: `5`, `"intValue":"1"`: `"intValue":1`, `"kind":1`: `"kind":"SPAN_KIND_INTERNAL"`, `"name"`: `"title"`,
		`"spanId":"0123`: `"spanId":"ASNF`, `"intValue":"1"}`: `"intValue":"1","stringValue":"1"}`, `"6"`: `"4"`,
		`"spanId":"0123456789abcdef"`: `"spanId":"0000000000000000"`,
	} {
		if _, err := decodeOTLP([]byte(strings.Replace(good, old, replaced, 1))); err == nil {
			t.Errorf("accepts %s", replaced)
		}
	}
}
