package client

import "strings"

// Limits of RFC 1035 section 2.3.4, in bytes. The RFC does not limit a list; maxNames exceeds what
// resolvers use.
const (
	maxLabel = 63
	maxName  = 253
	maxNames = 32
)

// Names decodes names in the form of RFC 1035 section 3.1, compressed (RFC 3397, DHCPv4 option 119)
// or not (RFC 8415 section 10). If a list contains an error, or a name that is not a valid host
// name, Names returns nil, because the rest of the list is unreliable.
func Names(b []byte) (names []string) {
	for at := 0; at < len(b); {
		name, next, ok := decodeName(b, at)
		if !ok || len(names) == maxNames {
			return nil
		}
		if name != "" {
			names = append(names, name)
		}
		at = next
	}
	return names
}

// decodeName decodes the name at an offset, and returns the offset of the next name. A pointer must
// point to a position before the name or pointer that contains it, so decoding terminates.
func decodeName(b []byte, at int) (name string, next int, ok bool) {
	var labels []string
	length, start := 0, at
	for at < len(b) {
		n := int(b[at])
		switch {
		case n == 0:
			return strings.Join(labels, "."), max(next, at+1), true
		case n >= 0xc0 && at+1 < len(b):
			to := (n&0x3f)<<8 | int(b[at+1])
			if to >= start {
				return "", 0, false
			}
			next = max(next, at+2)
			at, start = to, to
			continue
		case n > maxLabel || at+1+n > len(b):
			return "", 0, false
		}
		label := string(b[at+1 : at+1+n])
		if length += n + 1; length > maxName+1 || strings.ContainsFunc(label, strange) {
			return "", 0, false
		}
		labels = append(labels, label)
		at += 1 + n
	}
	return "", 0, false
}

// strange reports whether a character is neither valid in host names (RFC 1123 section 2.1) nor the
// underscore of service names.
func strange(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '-' && r != '_'
}
