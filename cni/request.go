package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// ValidAttachment is an entry in the list that GC receives: an attachment of the network that is
// still in use.
type ValidAttachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// Keys of the list of valid attachments: the key in the current specification, and the key in the
// text of the tag spec-v1.1.0.
const (
	validKey    = "cni.dev/valid-attachments"
	validKeyOld = "cni.dev/attachments"
)

// RequestData are the values of a call that are not part of the configuration.
type RequestData struct {
	// Capabilities are the capability arguments by name; a plugin receives the ones that it
	// declares. Used for ADD, CHECK and DEL.
	Capabilities map[string]json.RawMessage

	// PrevResult is, for ADD, the result of the previous plugin and nil for the first; for CHECK
	// and DEL, the result of the whole ADD.
	PrevResult *Result

	// Valid are all attachments of the network that are still in use. Used for GC.
	Valid []ValidAttachment
}

// Request returns the standard input of plugin i (specification, "Deriving request configuration
// from plugin configuration"): its configuration with the name and the version of the list and the
// values of d for this verb, without capabilities and the keys that the protocol reserves. It
// passes on a nerdctlID of the list (de facto). It replaces a runtimeConfig in the configuration if
// there is one to send, and removes it for verbs without an attachment. Other members keep their
// values exactly.
//
// The code is [CodeDecodingFailure] for a capability argument that is not JSON, and
// [CodeInvalidConfig] for a previous result that the version cannot express.
func (l *List) Request(verb Command, i int, d RequestData) ([]byte, error) {
	p := l.Plugins[i]
	object := p.object()
	m := make(map[string]json.RawMessage, len(object)+4)
	for key, value := range object {
		if !reserved(key) {
			m[key] = value
		}
	}
	m["name"], m["cniVersion"] = encode(l.Name), encode(l.Version)
	if id, marked := l.members[nerdctlKey]; marked && m[nerdctlKey] == nil {
		m[nerdctlKey] = id
	}
	if !verb.attached() {
		removeKey(m, "runtimeConfig")
	} else if err := l.addAttached(m, verb, p, d); err != nil {
		return nil, DecodeFailure(fmt.Sprintf("request of %s for plugin %s", verb, p.Type), err)
	}
	if verb == GC {
		valid := d.Valid
		if valid == nil {
			valid = []ValidAttachment{}
		}
		m[validKey] = encode(valid)
		m[validKeyOld] = m[validKey]
	}
	return encode(m), nil
}

// nerdctlKey marks lists written by nerdctl (de facto). Plugins that forward ports need it.
const nerdctlKey = "nerdctlID"

// addAttached adds the values for verbs that concern one attachment.
func (l *List) addAttached(
	m map[string]json.RawMessage, verb Command, p *PluginConfig, d RequestData,
) error {
	granted := map[string]json.RawMessage{}
	for name, value := range d.Capabilities {
		if !p.Capabilities[name] {
			continue
		}
		if !json.Valid(value) {
			return Errorf(CodeDecodingFailure, "argument of capability %s is not JSON", name)
		}
		granted[name] = value
	}
	if len(granted) > 0 {
		removeKey(m, "runtimeConfig")
		m["runtimeConfig"] = encode(granted)
	}
	if d.PrevResult == nil || verb == Del && !l.Version.PrevResultOnDel() {
		return nil
	}
	prev, _, err := d.PrevResult.Relay(l.Version, d.PrevResult)
	if err != nil {
		return DecodeFailure("prevResult", err)
	}
	m["prevResult"] = prev
	return nil
}

const reservedPrefix = "cni.dev/"

// reserved reports whether only the runtime may set a key of a plugin's configuration. It compares
// by Unicode case folding, as plugins that decode with encoding/json do: for them "prevReſult" is
// prevResult.
func reserved(key string) bool {
	for _, k := range []string{"name", "cniVersion", "prevResult", "capabilities"} {
		if strings.EqualFold(key, k) {
			return true
		}
	}
	return len(key) >= len(reservedPrefix) &&
		strings.EqualFold(key[:len(reservedPrefix)], reservedPrefix)
}

// removeKey removes a key in every spelling that plugins accept.
func removeKey(m map[string]json.RawMessage, key string) {
	maps.DeleteFunc(m, func(k string, _ json.RawMessage) bool { return strings.EqualFold(k, key) })
}

// DecodeHeader decodes the two members that every request has, without validating them: see
// [ValidateNetworkName] and [ParseVersion]. Absent and null members are empty. The code is
// [CodeDecodingFailure] if the request is not a JSON object or a member is not a string.
//
// Keys match as in encoding/json, so that the validated values are the values that a plugin decodes
// later, even if several keys differ only in case.
func DecodeHeader(request []byte) (name, version string, err error) {
	if _, err := parseObject(request); err != nil {
		return "", "", DecodeFailure(networkConfig, err)
	}
	var h struct {
		Name       string `json:"name"`
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(request, &h); err != nil {
		return "", "", DecodeFailure(networkConfig, err)
	}
	return h.Name, h.CNIVersion, nil
}

// DecodeValidAttachments decodes the list of valid attachments in a GC request, under either of its
// keys. A null list is empty, because libcni sends null for an empty Go slice; an array under the
// other key takes precedence over null. The code is [CodeInvalidConfig] for a request without
// either key, because a missing list does not mean that no attachment is in use, and for an entry
// with a missing member. It is [CodeDecodingFailure] for a wrong JSON type.
func DecodeValidAttachments(request []byte) ([]ValidAttachment, error) {
	m, err := parseObject(request)
	if err != nil {
		return nil, DecodeFailure(networkConfig, err)
	}
	null := false
	for _, key := range []string{validKey, validKeyOld} {
		raw, ok := m[key]
		if !ok {
			continue
		}
		if isNull(raw) {
			null = true
			continue
		}
		valid := []ValidAttachment{}
		if err := json.Unmarshal(raw, &valid); err != nil {
			return nil, DecodeFailure(key, err)
		}
		for i, a := range valid {
			if a.ContainerID == "" || a.IfName == "" {
				return nil, Errorf(CodeInvalidConfig, "%s[%d] lacks containerID or ifname", key, i)
			}
		}
		return valid, nil
	}
	if null {
		return []ValidAttachment{}, nil
	}
	return nil, Errorf(CodeInvalidConfig, "%s is missing", validKey).
		WithDetails("without this list GC cannot determine which attachments are stale")
}
