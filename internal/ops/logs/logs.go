// Package logs selects and describes the operations that the journal holds. It changes nothing.
package logs

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
)

// Entry is an operation that has ended.
type Entry struct {
	Time          time.Time   `json:"time"` // end, by the wall clock then
	BootID        string      `json:"bootID,omitzero"`
	UptimeSeconds float64     `json:"uptimeSeconds,omitzero"` // end, since the boot
	Kind          Kind        `json:"kind"`
	Verb          cni.Command `json:"verb"`

	Network   string `json:"network,omitzero"`
	Container string `json:"containerID,omitzero"`
	IfName    string `json:"ifname,omitzero"`

	Outcome      Outcome  `json:"outcome"`
	Code         cni.Code `json:"code,omitzero"`
	Error        string   `json:"error,omitzero"`
	Milliseconds float64  `json:"milliseconds"`
	Plugins      []Call   `json:"plugins,omitzero"`

	Addresses  []netip.Addr        `json:"addresses,omitzero"`
	Interfaces []journal.Interface `json:"interfaces,omitzero"`
	Ports      []journal.Port      `json:"ports,omitzero"`
	Netns      string              `json:"netns,omitzero"`
	Runtime    string              `json:"runtime,omitzero"`
	PID        int                 `json:"pid,omitzero"`
}

// Kind is the origin of an operation.
type Kind = journal.Kind

// Outcome is how an operation ended.
type Outcome string

// The outcomes.
const (
	OK     Outcome = "ok"
	Failed Outcome = "failed"
)

// Call is one call of a plugin.
type Call struct {
	Type         string   `json:"type"`
	Milliseconds float64  `json:"milliseconds"`
	Code         cni.Code `json:"code,omitzero"`
}

// EntryOf describes a record.
func EntryOf(r journal.Record) Entry {
	e := Entry{
		Time: r.Time, BootID: r.Boot, UptimeSeconds: r.Uptime.Seconds(), Kind: r.Kind, Verb: r.Verb,
		Network: r.Network, Container: r.Container, IfName: r.IfName,
		Outcome: OK, Code: r.Code, Error: r.Error, Milliseconds: milliseconds(r.Duration),
		Addresses: r.Addresses, Interfaces: r.Interfaces, Ports: r.Ports,
		Netns: r.Netns, Runtime: r.Runtime, PID: r.PID,
	}
	if r.Failed() {
		e.Outcome = Failed
	}
	for _, p := range r.Plugins {
		e.Plugins = append(e.Plugins, Call{p.Type, milliseconds(p.Duration), p.Code})
	}
	return e
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Attachment returns the key of the attachment.
func (e *Entry) Attachment() cni.Attachment {
	return cni.Attachment{Network: e.Network, Container: e.Container, IfName: e.IfName}
}

// Subject returns the attachment of the operation, or the network of one that has none.
func (e *Entry) Subject() string {
	if e.Container == "" {
		return e.Network
	}
	return e.Attachment().String()
}

// Filter selects operations. The zero value selects all.
type Filter struct {
	Name   string    // see [Filter.Resolve]
	Since  time.Time // operations that ended then or later
	Failed bool      // only operations that failed
}

// Match reports whether the filter selects a record.
func (f Filter) Match(r *journal.Record) bool {
	return !r.Time.Before(f.Since) && (!f.Failed || r.Failed()) && (f.Name == "" || named(r, f.Name))
}

// named reports whether a record is about a network, a container or an attachment.
func named(r *journal.Record, name string) bool {
	return r.Network == name || r.Container == name ||
		r.IfName != "" && (r.Attachment().String() == name || string(r.Attachment().Owner()) == name)
}

// AmbiguousError reports that a prefix fits several containers.
type AmbiguousError struct {
	Name       string
	Candidates []string // sorted
}

func (e *AmbiguousError) Error() string {
	return e.Name + " is ambiguous: " + strings.Join(e.Candidates, ", ")
}

// Resolve returns the filter with the name in full: the name of a network, a container ID, an
// attachment as NETWORK/CONTAINER/INTERFACE or by its ID, or a unique prefix of a container ID. A name
// that no record has stays. The error is an [*AmbiguousError].
func (f Filter) Resolve(records []journal.Record) (Filter, error) {
	if f.Name == "" || f.Known(records) {
		return f, nil
	}
	var candidates []string
	for _, c := range Containers(records) {
		if strings.HasPrefix(c, f.Name) {
			candidates = append(candidates, c)
		}
	}
	switch len(candidates) {
	case 0:
	case 1:
		f.Name = candidates[0]
	default:
		return f, &AmbiguousError{f.Name, candidates}
	}
	return f, nil
}

// Known reports whether any record is about the name of the filter.
func (f Filter) Known(records []journal.Record) bool {
	return slices.ContainsFunc(records, func(r journal.Record) bool { return named(&r, f.Name) })
}

// Containers returns the IDs of all containers in records, sorted.
func Containers(records []journal.Record) []string {
	return words(records, func(r *journal.Record) string { return r.Container })
}

// Names returns the networks and the containers in records, each sorted.
func Names(records []journal.Record) []string {
	networks := words(records, func(r *journal.Record) string { return r.Network })
	return append(networks, Containers(records)...)
}

func words(records []journal.Record, word func(*journal.Record) string) (list []string) {
	for i := range records {
		if w := word(&records[i]); w != "" {
			list = append(list, w)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Last returns the last n of the selected operations, the oldest first; all if n is 0.
func (f Filter) Last(records []journal.Record, n int) []Entry {
	list := []Entry{}
	for _, r := range slices.Backward(records) {
		if n > 0 && len(list) == n {
			break
		}
		if f.Match(&r) {
			list = append(list, EntryOf(r))
		}
	}
	slices.Reverse(list)
	return list
}
