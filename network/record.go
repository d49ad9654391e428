package network

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// State is how far an attachment has come.
type State string

// The states of a recorded attachment.
const (
	// Adding is written before the first plugin runs. If nobody works on the attachment any more, its
	// ADD was cut short, or failed and could not be taken back: DEL is due. So it is for an attachment that belongs to
	// a [Manager.Setup] which has not come to its end.
	Adding State = "adding"

	// Attached is written when the last plugin has succeeded.
	Attached State = "attached"

	// Deleting is noted before the first plugin gets DEL, or before the first of several attachments that
	// [Manager.Remove] takes away. If nobody works on the attachment any more, that DEL was cut short or failed, and
	// is due again.
	Deleting State = "deleting"
)

// ReferenceRuntime is what stands for [Client.Runtime] where an attachment was made with the reference library
// (libcni), which keeps no such name.
const ReferenceRuntime = "libcni"

// Record is what is remembered of an attachment, from before the first plugin runs until all have
// succeeded on DEL.
type Record struct {
	Attachment cni.Attachment
	State      State
	List       *cni.List // as it was run: drop-ins included, in the version that was selected
	Parameters           // what Add was given

	// Result is that of the last plugin. It is nil before there is one, where it cannot be read, and
	// where it cannot be expressed in the version of the list (0.1.0 and 0.2.0 know no interface without an address).
	Result *cni.Result

	Created time.Time // begin of the ADD
	Done    time.Time // its end; zero before
	BootID  string    // of the kernel that ran then (random/boot_id); no namespace outlives it

	Runtime string // [Client.Runtime] of the ADD

	// Source is the file of the reference library that all this comes from, empty for what this library has
	// recorded. Such a file tells no boot, and of times only when it was written.
	Source string

	resultErr error // why Result could not be read
	due       bool  // State is what [due] says; the record itself still says that it is attached
}

// leftOver reports whether DEL is due, provided that nobody works on the attachment.
func (r *Record) leftOver() bool { return r.State != Attached || r.earlierBoot() }

// earlierBoot reports whether the machine was started since the ADD.
func (r *Record) earlierBoot() bool {
	now := bootID()
	return r.BootID != "" && now != "" && r.BootID != now
}

// wireRecord is a record within its seal. The key comes first: keyOf relies on it.
type wireRecord struct {
	Network        string                     `json:"network"`
	Container      string                     `json:"container"`
	IfName         string                     `json:"ifname"`
	Runtime        string                     `json:"runtime,omitempty"`
	State          State                      `json:"state"`
	Netns          string                     `json:"netns"`
	HostNetns      bool                       `json:"hostNetns,omitempty"`
	CNIVersion     string                     `json:"cniVersion"` // the one that was selected, whatever it would be today
	Config         json.RawMessage            `json:"config"`
	Args           string                     `json:"args,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result,omitempty"`
	Created        time.Time                  `json:"created"`
	Done           time.Time                  `json:"done,omitzero"`
	BootID         string                     `json:"bootID"`
}

// encode returns the record as it is stored. A result that the version of the list cannot express, one
// of interfaces without addresses in 0.1.0 and 0.2.0, is left out: these versions use it for nothing later.
func (r *Record) encode() ([]byte, error) {
	config, err := r.List.MarshalJSON()
	if err != nil {
		return nil, err
	}
	w := wireRecord{
		Network: r.Attachment.Network, Container: r.Attachment.Container, IfName: r.Attachment.IfName,
		Runtime: r.Runtime, State: r.State,
		Netns: r.Netns, HostNetns: r.HostNetns, Args: r.Args.String(), CapabilityArgs: r.Capabilities,
		CNIVersion: r.List.Version.String(), Config: config, Created: r.Created, Done: r.Done, BootID: r.BootID,
	}
	if r.Result != nil {
		if w.Result, _, err = r.Result.Relay(r.List.Version, r.Result); err != nil && r.List.Version.PrevResultOnDel() {
			return nil, err
		}
	}
	body, err := json.Marshal(w)
	return seal(recordKind, body), err
}

// decodeRecord reads what encode wrote and checks that it speaks of a valid attachment. A result that
// cannot be read leaves the rest usable. Codes are those of the documents inside; what is no record has
// [cni.CodeDecodingFailure].
func decodeRecord(b []byte) (*Record, error) {
	body, err := unseal(recordKind, b)
	if err != nil {
		return nil, err
	}
	var w wireRecord
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, cni.DecodeFailure("record", err)
	}
	if w.State != Adding && w.State != Attached {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "record: state %q is unknown", w.State)
	}
	r := &Record{
		Attachment: cni.Attachment{Network: w.Network, Container: w.Container, IfName: w.IfName},
		State:      w.State,
		Parameters: Parameters{Netns: w.Netns, HostNetns: w.HostNetns, Capabilities: w.CapabilityArgs},
		Created:    w.Created,
		Done:       w.Done,
		BootID:     w.BootID,
		Runtime:    w.Runtime,
	}
	if err := r.Attachment.Validate(); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if r.Args, err = cni.ParseArgs(w.Args); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if r.List, err = cni.ParseList(w.Config); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.List.Name = w.Network // a caller may have run the configuration under a name of its own
	if r.List.Version, err = cni.ParseVersion(w.CNIVersion); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if err := (&config.Network{List: r.List}).Validate(); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.Result, r.resultErr = readResult("record", w.Result, r.List.Version)
	return r, nil
}

// readResult decodes the result in a document; none is nil.
func readResult(document string, raw json.RawMessage, v cni.Version) (*cni.Result, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	r, err := cni.DecodeResult(raw, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", document, err)
	}
	return r, nil
}
