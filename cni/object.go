package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
)

// parseObject splits a JSON object into its members without changing their bytes. Keys match
// exactly; the last of equal keys counts.
func parseObject(b []byte) (map[string]json.RawMessage, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, errors.New("document is empty")
	}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		return nil, errors.New("document begins with a byte order mark")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		if t := (*json.UnmarshalTypeError)(nil); errors.As(err, &t) {
			return nil, errors.New("document is a JSON " + t.Value + ", not an object")
		}
		return nil, err
	}
	if m == nil {
		return nil, errors.New("document is null, not an object")
	}
	return m, nil
}

// lookup finds a member by its exact key, or else without regard to case, as encoding/json does and
// existing configurations expect. If several keys differ only in case, it returns the last one in
// the order in which [List.Request] writes them, because a plugin that decodes with encoding/json
// sees that one.
func lookup(m map[string]json.RawMessage, key string) json.RawMessage {
	if raw, ok := m[key]; ok {
		return raw
	}
	last := ""
	for k := range m {
		if strings.EqualFold(k, key) {
			last = max(last, k)
		}
	}
	if last == "" {
		return nil
	}
	return m[last]
}

// resultMembers are the keys of the objects in a result.
var resultMembers = [...]string{
	"ip", "gateway", "routes", "dst", "gw", "mtu", "advmss", "priority", "table", "scope",
	"name", "mac", "sandbox", "socketPath", "pciID", "version", "interface", "address",
	"nameservers", "domain", "search", "options",
}

// preferExact drops members of a value in a result if their keys differ only in case from a
// specified key that is also present; encoding/json would use the last of them.
func preferExact(raw json.RawMessage) json.RawMessage {
	if !bytes.ContainsFunc(raw,
		func(r rune) bool { return r >= 'A' && r <= 'Z' || r > unicode.MaxASCII }) {
		return raw // all keys are spelled as specified, or unknown
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for i := range list {
			list[i] = preferExact(list[i])
		}
		return encode(list)
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return raw
	}
	for _, key := range resultMembers {
		if value, ok := m[key]; ok {
			removeKey(m, key)
			m[key] = preferExact(value)
		}
	}
	return encode(m)
}

// isNull reports whether a member is present and null.
func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// encode marshals a value that cannot fail to marshal, without escaping for HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("cni: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
