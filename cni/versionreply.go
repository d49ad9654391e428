package cni

import (
	"encoding/json"
	"slices"
)

// VersionReply is a plugin's answer to VERSION.
type VersionReply struct {
	CNIVersion string   `json:"cniVersion"`        // echo of the request at best; only [DecodeVersionReply] interprets it
	Supported  []string `json:"supportedVersions"` // in the plugin's order; may hold versions this package does not know
}

// Encode returns the reply as one line of JSON.
func (r VersionReply) Encode() []byte { return encode(r) }

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
