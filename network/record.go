package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// State is how far an attachment has come.
type State string

// The states of a recorded attachment.
const (
	// Adding is written before the first plugin runs. If nobody works on the attachment any more, its
	// ADD was cut short, or failed and could not be taken back: DEL is due.
	Adding State = "adding"

	// Attached is written when the last plugin has succeeded.
	Attached State = "attached"
)

// Record is what is remembered of an attachment, from before the first plugin runs until all have
// succeeded on DEL.
type Record struct {
	Attachment cni.Attachment
	State      State
	List       *cni.List // as it was run: drop-ins included, in the version that was selected
	Parameters           // what Add was given

	// Result is that of the last plugin. It is nil before there is one, where it cannot be read, and
	// where it cannot be expressed in the version of the list (0.1.0 and 0.2.0 know only addresses).
	Result *cni.Result

	Created time.Time // begin of the ADD
	BootID  string    // of the kernel that ran then (random/boot_id); no namespace outlives it

	resultErr error // why Result could not be read
}

// leftOver reports whether DEL is due, provided that nobody works on the attachment.
func (r *Record) leftOver() bool { return r.State == Adding || r.earlierBoot() }

// earlierBoot reports whether the machine was started since the ADD.
func (r *Record) earlierBoot() bool {
	now := bootID()
	return r.BootID != "" && now != "" && r.BootID != now
}

// recordKind is the format of a record on disk: an on-disk format, never changed, only succeeded by another.
const recordKind = "tenonRecordV1"

type wireRecord struct {
	Kind           string                     `json:"kind"`
	State          State                      `json:"state"`
	Network        string                     `json:"network"`
	Container      string                     `json:"container"`
	IfName         string                     `json:"ifname"`
	Netns          string                     `json:"netns"`
	HostNetns      bool                       `json:"hostNetns,omitempty"`
	CNIVersion     string                     `json:"cniVersion"` // the one that was selected, whatever it would be today
	Config         json.RawMessage            `json:"config"`
	Args           string                     `json:"args,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result,omitempty"`
	Created        time.Time                  `json:"created"`
	BootID         string                     `json:"bootID"`
}

// encode returns the record as it is stored. A result that the version of the list cannot express, one
// without addresses in 0.1.0 and 0.2.0, is left out: these versions use it for nothing later.
func (r *Record) encode() ([]byte, error) {
	config, err := r.List.MarshalJSON()
	if err != nil {
		return nil, err
	}
	w := wireRecord{
		Kind: recordKind, State: r.State,
		Network: r.Attachment.Network, Container: r.Attachment.Container, IfName: r.Attachment.IfName,
		Netns: r.Netns, HostNetns: r.HostNetns, Args: r.Args.String(), CapabilityArgs: r.Capabilities,
		CNIVersion: r.List.Version.String(), Config: config, Created: r.Created, BootID: r.BootID,
	}
	if r.Result != nil {
		if w.Result, err = r.Result.Encode(r.List.Version); err != nil && r.List.Version.PrevResultOnDel() {
			return nil, err
		}
	}
	return json.Marshal(w)
}

// decodeRecord reads what encode wrote and checks that it speaks of a valid attachment. A result that
// cannot be read leaves the rest usable. Codes are those of the documents inside; what is no record has
// [cni.CodeDecodingFailure].
func decodeRecord(b []byte) (*Record, error) {
	var w wireRecord
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, cni.DecodeFailure("record", err)
	}
	if w.Kind != recordKind {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "record: kind is %q, not %q", w.Kind, recordKind)
	}
	if w.State != Adding && w.State != Attached {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "record: state %q is unknown", w.State)
	}
	r := &Record{
		Attachment: cni.Attachment{Network: w.Network, Container: w.Container, IfName: w.IfName},
		State:      w.State,
		Parameters: Parameters{Netns: w.Netns, HostNetns: w.HostNetns, Capabilities: w.CapabilityArgs},
		Created:    w.Created,
		BootID:     w.BootID,
	}
	if err := r.Attachment.Validate(); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	var err error
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
	if len(r.List.Plugins) == 0 {
		return nil, fmt.Errorf("record: %w", noPlugins(r.List))
	}
	if w.Result != nil {
		if r.Result, err = cni.DecodeResult(w.Result, r.List.Version); err != nil {
			r.Result, r.resultErr = nil, fmt.Errorf("record: %w", err)
		}
	}
	return r, nil
}

// Record returns what is recorded of an attachment, [ErrNoRecord] if nothing is. A record that cannot be
// read has the code of what is wrong with it.
func (c *Client) Record(a cni.Attachment) (*Record, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	r, err := c.store().get(a)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", a, err)
	}
	return r, nil
}

// List returns all records, oldest first. The error joins those of records that cannot be read; the
// others are returned in any case.
func (c *Client) List() ([]Record, error) {
	found, err := c.store().scan("")
	if err != nil {
		return nil, err
	}
	var records []Record
	var errs []error
	for _, s := range found {
		if s.err != nil {
			errs = append(errs, s.err)
			continue
		}
		records = append(records, *s.record)
	}
	slices.SortStableFunc(records, func(a, b Record) int { return a.Created.Compare(b.Created) })
	return records, errors.Join(errs...)
}
