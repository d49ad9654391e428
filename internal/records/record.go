// Package records reads and writes the files about attachments: a record for each attachment, a
// file for each unfinished operation on several attachments, the cache of libcni, the versions that
// plugins support, and the registry of the state directories of a host. The package runs no plugins
// and takes no locks of networks or containers; its callers do.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network/config"
)

// Errors to test for with [errors.Is].
var (
	ErrNoRecord   = errors.New("no record of this attachment")
	ErrUnreadable = errors.New("unreadable record") // the file is damaged or has an unknown format
)

// State is the progress of an attachment.
type State string

// The states of a recorded attachment.
const (
	Adding   State = "adding"   // written before the first plugin runs
	Attached State = "attached" // written when the last plugin has succeeded
	Deleting State = "deleting" // set before the first plugin receives DEL
)

// libcniRuntime is the [Record.Runtime] of attachments of libcni.
const libcniRuntime = "libcni"

// Parameters are the arguments of an ADD other than the key and the network.
type Parameters struct {
	Netns        string
	Args         cni.Args
	Capabilities map[string]json.RawMessage
	HostNetns    bool
}

// Validate returns an error for parameters that cannot be passed to a plugin.
func (p Parameters) Validate() error {
	text := p.Args.String()
	if args, err := cni.ParseArgs(text); err != nil || !slices.Equal(args, p.Args) {
		return cni.Errorf(cni.CodeInvalidEnvironment,
			"CNI_ARGS: a key or value contains '=' or ';'")
	}
	for name, value := range p.Capabilities {
		if !json.Valid(value) {
			return cni.Errorf(cni.CodeDecodingFailure, "capability argument %q is not JSON", name)
		}
	}
	return nil
}

// Record describes one attachment.
type Record struct {
	Attachment cni.Attachment
	State      State
	List       *cni.List // as run: with drop-ins, in the selected version
	Parameters
	Result  *cni.Result // nil if absent, unreadable or not expressible in the version of the list
	Created time.Time   // start of the ADD
	Done    time.Time   // end of the ADD; zero before
	BootID  string      // of the kernel at that time
	Runtime string      // name of the runtime that attached
	Source  string      // path of the file of libcni; empty for a record of Tenon

	StateDir string // of the [Store] that the record was read from

	ResultErr error // why Result could not be read
	Due       bool  // State is from a [Due]; the record itself is still in the state attached
}

// LeftOver reports whether DEL is due, provided that no operation on the attachment is in progress.
func (r *Record) LeftOver() bool { return r.State != Attached || r.EarlierBoot() }

// EarlierBoot reports whether the system has rebooted since the ADD.
func (r *Record) EarlierBoot() bool {
	now := BootID()
	return r.BootID != "" && now != "" && r.BootID != now
}

// BootID returns the ID of the running boot, or "" if the system has none.
func BootID() string {
	id, _ := statefile.BootID()
	return id
}

// wireRecord is a record without its seal. The key comes first, because keyOf relies on that.
type wireRecord struct {
	Network        string                     `json:"network"`
	Container      string                     `json:"container"`
	IfName         string                     `json:"ifname"`
	Runtime        string                     `json:"runtime,omitempty"`
	State          State                      `json:"state"`
	Netns          string                     `json:"netns"`
	HostNetns      bool                       `json:"hostNetns,omitempty"`
	CNIVersion     string                     `json:"cniVersion"` // as selected by ADD
	Config         json.RawMessage            `json:"config"`
	Args           string                     `json:"args,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result,omitempty"`
	Created        time.Time                  `json:"created"`
	Done           time.Time                  `json:"done,omitzero"`
	BootID         string                     `json:"bootID"`
}

// encode returns the content of the file of a record. It omits a result that the version of the
// list cannot express (interfaces without addresses in 0.1.0 and 0.2.0), because these versions do
// not use it on DEL.
func (r *Record) encode() ([]byte, error) {
	config, err := r.List.MarshalJSON()
	if err != nil {
		return nil, err
	}
	w := wireRecord{
		Network: r.Attachment.Network, Container: r.Attachment.Container,
		IfName:  r.Attachment.IfName,
		Runtime: r.Runtime, State: r.State,
		Netns: r.Netns, HostNetns: r.HostNetns, Args: r.Args.String(),
		CapabilityArgs: r.Capabilities, CNIVersion: r.List.Version.String(), Config: config,
		Created: r.Created, Done: r.Done, BootID: r.BootID,
	}
	if r.Result != nil {
		w.Result, _, err = r.Result.Relay(r.List.Version, r.Result)
		if err != nil && r.List.Version.PrevResultOnDel() {
			return nil, err
		}
	}
	body, err := json.Marshal(w)
	return seal(recordKind, body), err
}

// decodeRecord decodes the content of a file and validates the attachment. An unreadable result
// does not affect the rest. Errors have the codes of the embedded documents, or
// [cni.CodeDecodingFailure] if the file is not a record.
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
		return nil, cni.Errorf(cni.CodeDecodingFailure, "record: unknown state %q", w.State)
	}
	r := &Record{
		Attachment: cni.Attachment{Network: w.Network, Container: w.Container, IfName: w.IfName},
		State:      w.State,
		Parameters: Parameters{Netns: w.Netns, HostNetns: w.HostNetns,
			Capabilities: w.CapabilityArgs},
		Created: w.Created,
		Done:    w.Done,
		BootID:  w.BootID,
		Runtime: w.Runtime,
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
	r.List.Name = w.Network // a caller may have run the configuration under a different name
	if r.List.Version, err = cni.ParseVersion(w.CNIVersion); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if err := (&config.Network{List: r.List}).Validate(); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.Result, r.ResultErr = readResult("record", w.Result, r.List.Version)
	return r, nil
}

// readResult decodes the result in a document; nil if there is none.
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
