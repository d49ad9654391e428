// Package ordered encodes values as libcni prints them: with sorted keys, without an empty dns
// object, or indented by four blanks. It knows no type of the protocol.
package ordered

import (
	"bytes"
	"encoding/json"
	"io"
)

// Marshal encodes v, which must become a JSON object, with the keys of all objects sorted. It omits
// the key dns of the outermost object if its value is an empty object. Numbers keep their text.
func Marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, err
	}
	if dns, ok := object["dns"].(map[string]any); ok && len(dns) == 0 {
		delete(object, "dns")
	}
	return json.Marshal(object)
}

// WriteIndented writes v to w as JSON, indented by four blanks, without a final newline.
func WriteIndented(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
