package cni

import (
	"encoding/json"
	"slices"
	"strings"
)

// VersionReply is a plugin's answer to VERSION.
type VersionReply struct {
	CNIVersion string   `json:"cniVersion"`        // echo of the request at best; only [DecodeVersionReply] interprets it
	Supported  []string `json:"supportedVersions"` // in the plugin's order; may hold versions this package does not know
}

// Encode returns the reply as one line of JSON. Versions are plain text, so it is put together by hand: the reflection of
// encoding/json would be 5 % of what it takes to start a plugin, which is what VERSION costs.
func (r VersionReply) Encode() []byte {
	if !plain(r.CNIVersion) || slices.ContainsFunc(r.Supported, func(s string) bool { return !plain(s) }) || r.Supported == nil {
		return encode(r)
	}
	list := strings.Join(r.Supported, `","`)
	if len(r.Supported) > 0 {
		list = `"` + list + `"`
	}
	return []byte(`{"cniVersion":"` + r.CNIVersion + `","supportedVersions":[` + list + `]}`)
}

// plain reports whether JSON has s as it is: digits, dots, letters and hyphens.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '.' && c != '-'
	})
}

// Supports reports whether the plugin accepts version v.
func (r VersionReply) Supports(v Version) bool { return slices.Contains(r.Supported, v.String()) }

// DecodeVersionReply reads the answer to VERSION. A reply that says 0.2.0 and has no list means 0.1.0 and 0.2.0, as
// the first plugins of that version answered. A missing cniVersion, a missing or empty list and entries that are not
// versions have [CodeDecodingFailure].
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
