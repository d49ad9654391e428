package cache

import (
	"encoding/json"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
)

// Kind is the format of the files since libcni 0.8, the value of their key "kind". Older releases
// stored only the result.
const Kind = "cniCacheV1"

// Entry is the content of a file: an attachment and the arguments of its ADD.
type Entry struct {
	Attachment cni.Attachment

	// Config is the list, or the configuration of a single plugin, as the runtime read it. It lacks
	// plugins from drop-in files.
	Config []byte

	Netns          string                     // older releases do not store it
	Args           cni.Args                   // CNI_ARGS
	CapabilityArgs map[string]json.RawMessage // all arguments, supported by a plugin or not
	Result         json.RawMessage            // nil if there is none
}

// FormatError is the error for a file that is not in the format [Kind]: a damaged file, a file of a
// newer release, or a bare result of libcni before 0.8.
type FormatError struct {
	Content []byte          // of the file
	Kind    json.RawMessage // value of the key "kind"; nil if there is none or Err is set
	Err     error           // of package encoding/json; nil if only the kind is wrong
}

// Error returns the text of the error of package encoding/json, or names the wrong kind.
func (e *FormatError) Error() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.Kind == nil:
		return fmt.Sprintf("kind is missing, not %q", Kind)
	}
	return fmt.Sprintf("kind is %s, not %q", e.Kind, Kind)
}

// Unwrap returns e.Err.
func (e *FormatError) Unwrap() error { return e.Err }

// wireEntry is the JSON form of an [Entry].
type wireEntry struct {
	Kind           json.RawMessage            `json:"kind"`
	Container      string                     `json:"containerId"`
	Config         []byte                     `json:"config"`
	IfName         string                     `json:"ifName"`
	Network        string                     `json:"networkName"`
	Netns          string                     `json:"netns,omitempty"`
	Args           [][2]string                `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result,omitempty"`
}

// Decode decodes the content of a file. It does not validate the values: any program can write a
// file in the cache. All errors are a [*FormatError].
func Decode(b []byte) (*Entry, error) {
	var w wireEntry
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, &FormatError{Content: b, Err: err}
	}
	if string(w.Kind) != `"`+Kind+`"` {
		return nil, &FormatError{Content: b, Kind: w.Kind}
	}
	e := &Entry{
		Attachment:     cni.Attachment{Network: w.Network, Container: w.Container, IfName: w.IfName},
		Config:         w.Config,
		Netns:          w.Netns,
		CapabilityArgs: w.CapabilityArgs,
	}
	for _, pair := range w.Args {
		e.Args = append(e.Args, cni.Arg{Key: pair[0], Value: pair[1]})
	}
	if string(w.Result) != "null" {
		e.Result = w.Result
	}
	return e, nil
}

// Encode returns the content of the file, one line of JSON. It returns an error of package
// encoding/json if a capability argument or the result is not JSON.
func (e *Entry) Encode() ([]byte, error) {
	w := wireEntry{
		Kind:           json.RawMessage(`"` + Kind + `"`),
		Container:      e.Attachment.Container,
		Config:         e.Config,
		IfName:         e.Attachment.IfName,
		Network:        e.Attachment.Network,
		Netns:          e.Netns,
		CapabilityArgs: e.CapabilityArgs,
		Result:         e.Result,
	}
	for _, a := range e.Args {
		w.Args = append(w.Args, [2]string{a.Key, a.Value})
	}
	return json.Marshal(w)
}

// isOf reports whether the key in the file is a, as far as the file states it.
func (e *Entry) isOf(a cni.Attachment) bool {
	same := func(stored, part string) bool { return stored == "" || stored == part }
	return same(e.Attachment.Network, a.Network) &&
		same(e.Attachment.Container, a.Container) && same(e.Attachment.IfName, a.IfName)
}
