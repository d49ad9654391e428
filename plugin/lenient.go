package plugin

import (
	"bytes"
	"encoding/json"
)

// decodeLeniently decodes a JSON object and skips members of the wrong type; the other members are
// still decoded. DEL and GC need it because a configuration may have been edited after the ADD.
func decodeLeniently(object []byte, into any) {
	if json.Unmarshal(object, into) == nil {
		return
	}
	decodeMembers(object, into, func(b []byte) []byte { return b })
}

// decodeMembers decodes the members of object one by one, in their order, so that among members
// that differ only in case the last one wins, as in encoding/json; see [exactKeys]. wrap restores the nesting of a
// value in the document.
func decodeMembers(object []byte, into any, wrap func([]byte) []byte) {
	d := json.NewDecoder(bytes.NewReader(object))
	if brace, err := d.Token(); err != nil || brace != json.Delim('{') {
		return
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return
		}
		name, err := json.Marshal(key)
		if err != nil {
			return
		}
		at := func(b []byte) []byte {
			return wrap([]byte("{" + string(name) + ":" + string(b) + "}"))
		}
		if json.Unmarshal(at(value), into) != nil {
			decodeMembers(value, into, at)
		}
	}
}
