// Package inspect compares the recorded attachments of this host with the kernel. It changes
// nothing.
package inspect

import (
	"errors"
	"time"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network"
)

// State is the state of an attachment.
type State string

// The states of an attachment.
const (
	OK            State = "ok"                       // attached, and its namespace and interfaces exist
	InterfaceGone State = "interface gone"           // the namespace exists, but lacks an interface
	Adding        State = "adding"                   // ADD is in progress, or was interrupted
	Deleting      State = "deleting"                 // DEL is in progress, was interrupted, or failed
	EarlierBoot   State = "earlier boot"             // the node has restarted since; DEL is due
	NamespaceGone State = "namespace gone"           // the path is no longer a network namespace; DEL is due
	Unknown       State = "namespace not accessible" // the namespace cannot be opened, or is not recorded
)

// Attachment is a recorded attachment.
type Attachment struct {
	network.Record
	State State
	Age   time.Duration // since the start of ADD
}

// Attachments returns the states of records, in their order.
func Attachments(records []network.Record) ([]Attachment, error) {
	id, err := statefile.BootID()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	list := make([]Attachment, len(records))
	for i, r := range records {
		list[i] = Attachment{Record: r, State: state(r, id), Age: max(0, now.Sub(r.Created))}
	}
	return list, nil
}

// Holder returns the recorded attachment that holds a lease in a network. If the lease names no
// interface, it returns any attachment of the container, preferably one that still exists.
func Holder(list []Attachment, network string, l ipam.Lease) (holder Attachment, ok bool) {
	for _, a := range list {
		key := a.Attachment
		if key.Network != network || key.Container != l.Owner.Container ||
			l.Owner.IfName != "" && key.IfName != l.Owner.IfName {
			continue
		}
		if !ok || a.State == OK {
			holder, ok = a, true
		}
	}
	return holder, ok
}

// Due reports whether DEL is due because the container ended without it.
func (s State) Due() bool { return s == NamespaceGone || s == EarlierBoot }

func state(r network.Record, boot string) State {
	if r.BootID != "" && r.BootID != boot {
		return EarlierBoot
	}
	switch r.State {
	case network.Adding:
		return Adding
	case network.Deleting:
		return Deleting
	}
	if r.Netns == "" {
		return Unknown
	}
	ns, err := kernel.OpenNamespace(r.Netns)
	switch {
	case err == nil:
		defer ns.Close()
		if linksGone(ns, r) {
			return InterfaceGone
		}
		return OK
	case errors.Is(err, kernel.ErrNoNamespace), errors.Is(err, kernel.ErrNotNamespace):
		return NamespaceGone
	default:
		return Unknown
	}
}
