package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// ValidAttachment is one entry of the list that GC gets: an attachment of the network that is still in use.
type ValidAttachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// Keys of the list of valid attachments. The first is that of the current text, the second was in the text of the tag
// spec-v1.1.0.
const (
	validKey    = "cni.dev/valid-attachments"
	validKeyOld = "cni.dev/attachments"
)

// RequestData is what a runtime knows about a call beyond the configuration.
type RequestData struct {
	// Capabilities are the capability arguments by name; a plugin gets those that it declares. ADD, CHECK and DEL.
	Capabilities map[string]json.RawMessage

	// PrevResult is that of the plugin before on ADD, nil for the first, and that of the whole ADD on CHECK and DEL.
	PrevResult *Result

	// Valid are all attachments of the network that are still in use. GC.
	Valid []ValidAttachment
}

// Request returns what plugin i gets on standard input (specification, "Deriving request configuration from plugin
// configuration"): its configuration with the name and the version of the list, without capabilities and the keys that
// the protocol reserves, and with what d adds for this verb. A nerdctlID of the list is passed on (de facto). A
// runtimeConfig of the configuration is replaced if there is one to send, and removed where the verb has no attachment.
// Other members keep their values to the digit.
//
// A capability argument that is not JSON has [CodeDecodingFailure], a previous result that the version cannot express
// [CodeInvalidConfig].
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

// nerdctlKey marks the lists that nerdctl writes (de facto). Plugins that forward ports must know of it.
const nerdctlKey = "nerdctlID"

// addAttached adds what the verbs about one attachment carry.
func (l *List) addAttached(m map[string]json.RawMessage, verb Command, p *PluginConfig, d RequestData) error {
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

// reserved reports whether a key of a plugin's configuration is the runtime's to set. It compares as plugins that
// decode with encoding/json do, by Unicode case folding: "prevReſult" is prevResult to them.
func reserved(key string) bool {
	for _, k := range []string{"name", "cniVersion", "prevResult", "capabilities"} {
		if strings.EqualFold(key, k) {
			return true
		}
	}
	return len(key) >= len(reservedPrefix) && strings.EqualFold(key[:len(reservedPrefix)], reservedPrefix)
}

// removeKey removes a key in every spelling that plugins would take for it.
func removeKey(m map[string]json.RawMessage, key string) {
	maps.DeleteFunc(m, func(k string, _ json.RawMessage) bool { return strings.EqualFold(k, key) })
}

// DecodeHeader reads the two members that every request has, without judging them: see [ValidateNetworkName] and
// [ParseVersion]. What is absent or null is empty. What is not a JSON object, and a member of another type than string,
// has [CodeDecodingFailure].
//
// Keys are matched as encoding/json does, so that what is judged is what a plugin decodes later, whatever keys that
// differ in case stand next to each other.
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

// DecodeValidAttachments reads the list of valid attachments from a GC request, in either spelling of its key. A null list is
// empty, as libcni sends null for an empty list of Go; an array under the other key takes precedence over it. A request
// without the key has [CodeInvalidConfig], because a runtime that sends no list has not said that nothing is in use; so has an
// entry that lacks one of its members. A wrong JSON type has [CodeDecodingFailure].
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
		WithDetails("without the list of valid attachments nothing can be called stale")
}
