package format

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// decode returns the value of a JSON text, with integers as int64 or uint64, so that a template
// can compare them and prints all their digits.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return withNumbers(v), err
}

func withNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number(v.String())
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = withNumbers(v[k])
		}
	}
	return v
}

func number(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil { // out of range
		return text
	}
	return n
}
