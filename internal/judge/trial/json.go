package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// DecodeExactly decodes a JSON document and keeps the text of numbers.
func DecodeExactly(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(to)
}

// Compact returns a value as JSON, or the first part of it.
func Compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%.300s", b)
}
