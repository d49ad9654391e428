package libcni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// decodeObject decodes a JSON object. Numbers are a [json.Number], so that encoding the object
// again keeps their digits. It returns nil for null, and the errors of [json.Unmarshal].
func decodeObject(b []byte) (map[string]any, error) {
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		return nil, err
	}
	object = nil
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err := d.Decode(&object)
	return object, err
}

// typeName returns the Go type that encoding/json chooses for a JSON value.
func typeName(value any) string {
	if _, ok := value.(json.Number); ok {
		return "float64"
	}
	return fmt.Sprintf("%T", value)
}

// values decodes valid JSON values for callers, who expect numbers to be a float64. Integers that a
// float64 cannot hold exactly are a [json.Number].
func values(raw map[string]json.RawMessage) map[string]any {
	if raw == nil {
		return nil
	}
	decoded := make(map[string]any, len(raw))
	for key, value := range raw {
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber()
		var v any
		_ = d.Decode(&v)
		decoded[key] = floats(v)
	}
	return decoded
}

// floats replaces the numbers in a decoded value as described for values.
func floats(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && !inexact(v.String(), f) {
			return f
		}
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = floats(v[key])
		}
	}
	return v
}

// inexact reports whether a number is an integer that differs from f.
func inexact(number string, f float64) bool {
	if i, err := strconv.ParseInt(number, 10, 64); err == nil {
		return int64(f) != i
	}
	_, err := strconv.ParseUint(number, 10, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}
