package cni

import (
	"encoding/json"
	"slices"
	"strings"
)

// VersionReply is a plugin's reply to VERSION.
type VersionReply struct {
	// CNIVersion is at best an echo of the request; only [DecodeVersionReply] interprets it.
	CNIVersion string `json:"cniVersion"`

	// Supported is in the plugin's order and may contain versions that this package does not know.
	Supported []string `json:"supportedVersions"`
}

// Encode returns the reply as one line of JSON. It builds the text itself, because the reflection
// of encoding/json would take 5 % of the time to start a plugin, and a VERSION call consists of
// little else.
func (r VersionReply) Encode() []byte {
	special := func(s string) bool { return !plain(s) }
	if special(r.CNIVersion) || slices.ContainsFunc(r.Supported, special) || r.Supported == nil {
		return encode(r)
	}
	list := strings.Join(r.Supported, `","`)
	if len(r.Supported) > 0 {
		list = `"` + list + `"`
	}
	return []byte(`{"cniVersion":"` + r.CNIVersion + `","supportedVersions":[` + list + `]}`)
}

// plain reports whether s needs no escaping in JSON: it holds only digits, dots, letters and
// hyphens.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '.' &&
			c != '-'
	})
}

// Supports reports whether the plugin accepts version v.
func (r VersionReply) Supports(v Version) bool { return slices.Contains(r.Supported, v.String()) }

// DecodeVersionReply decodes a reply to VERSION. A reply with cniVersion 0.2.0 and no list means
// 0.1.0 and 0.2.0, because the first plugins of that version replied so. The code is
// [CodeDecodingFailure] for a missing cniVersion, a missing or empty list and entries that are not
// versions.
func DecodeVersionReply(b []byte) (VersionReply, error) {
	const document = "VERSION reply"
	if _, err := parseObject(b); err != nil {
		return VersionReply{}, DecodeFailure(document, err)
	}
	var r VersionReply
	if err := json.Unmarshal(b, &r); err != nil {
		return VersionReply{}, DecodeFailure(document, err)
	}
	if r.CNIVersion == "" {
		return VersionReply{}, Errorf(CodeDecodingFailure, document+" has no cniVersion")
	}
	if r.Supported == nil && r.CNIVersion == V020.String() {
		r.Supported = []string{V010.String(), V020.String()}
	}
	if len(r.Supported) == 0 {
		return VersionReply{}, Errorf(CodeDecodingFailure, document+" has no supportedVersions")
	}
	for _, s := range r.Supported {
		if !wellFormedVersion(s) {
			return VersionReply{}, Errorf(CodeDecodingFailure, document+": %q is not a version", s)
		}
	}
	return r, nil
}
