package plugin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
)

// Decode decodes a JSON value of a configuration into a pointer like [json.Unmarshal], except that
// the exact key counts if several keys differ only in case. The configuration itself is decoded so
// before a plugin gets it; Decode is for values that the plugin keeps as a [json.RawMessage].
func Decode(value []byte, into any) error {
	return json.Unmarshal(exactKeys(value, reflect.TypeOf(into)), into)
}

// exactKeys removes members of a request if their keys differ only in case from the key of a field
// of t that is also present. Without that, the last of them would count, as always in
// encoding/json. It returns a request that is not a JSON object as it is.
func exactKeys(request []byte, t reflect.Type) []byte {
	if !ambiguous(request) {
		return request
	}
	return dropInexact(request, describe(t, "", nil))
}

// ambiguous reports whether two keys of a document, not necessarily of the same object, may differ
// only in case. Almost no document has such keys, so that it does not have to be decoded twice.
func ambiguous(document []byte) bool {
	spelling := map[string]string{} // key in lower case → key
	for {
		_, rest, found := bytes.Cut(document, []byte(`"`))
		end := stringEnd(rest)
		if !found || end < 0 {
			return false
		}
		text := rest[:end]
		document = bytes.TrimLeft(rest[end+1:], " \t\r\n")
		if !bytes.HasPrefix(document, []byte(":")) {
			continue // a value
		}
		if bytes.ContainsFunc(text, func(r rune) bool { return r == '\\' || r > unicode.MaxASCII }) {
			return true // "prevReſult", for example, is prevResult for encoding/json
		}
		key := string(text)
		lower := strings.ToLower(key)
		if former, ok := spelling[lower]; ok && former != key {
			return true
		}
		spelling[lower] = key
	}
}

// stringEnd returns the index of the quotation mark that ends a JSON string, or -1.
func stringEnd(s []byte) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// dropInexact removes members from the objects of a value that s describes.
func dropInexact(value json.RawMessage, s *Schema) json.RawMessage {
	switch {
	case s.Items != nil:
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil || list == nil {
			return value
		}
		for i := range list {
			list[i] = dropInexact(list[i], s.Items)
		}
		return encoded(list, value)
	case s.Properties == nil:
		return value
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil || members == nil {
		return value
	}
	for key := range members {
		if s.Properties[key] != nil {
			continue
		}
		for exact := range s.Properties {
			if _, ok := members[exact]; ok && strings.EqualFold(key, exact) {
				delete(members, key)
			}
		}
	}
	for key, property := range s.Properties {
		if member, ok := members[key]; ok {
			members[key] = dropInexact(member, property)
		}
	}
	return encoded(members, value)
}

// encoded returns the JSON of v, or value if v cannot be encoded.
func encoded(v any, value json.RawMessage) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return value
	}
	return b
}
