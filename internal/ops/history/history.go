// Package history reconstructs from the journal which attachment had an address, a port, a MAC
// address or an interface at which time. Its functions are pure: they work on records of the
// journal, records of attachments, and the present time.
package history

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/network"
)

// Certainty says how a point in time is known.
type Certainty string

// The certainties.
const (
	Recorded Certainty = "recorded" // the journal has the operation
	Inferred Certainty = "inferred" // from other operations, a reboot, or the record of the attachment
)

// Ended says how an attachment ended.
type Ended string

// The ends of attachments. All but the first three are inferred.
const (
	ByDel      Ended = "DEL"
	ByRollback Ended = "rollback"
	ByCleanup  Ended = "cleanup" // DEL by GC, by recovery, or before an ADD; GC of a plugin
	ByReboot   Ended = "reboot"
	ByAdd      Ended = "ADD"     // another ADD of the same attachment, or of the address
	Unknown    Ended = "unknown" // the attachment has no record, and the journal has no end
	Open       Ended = ""        // the attachment exists
)

// Interval is the life of an attachment.
type Interval struct {
	Network   string `json:"network"`
	Container string `json:"containerID"`
	IfName    string `json:"ifname"`

	From          time.Time `json:"from,omitzero"` // zero: before the journal begins
	FromCertainty Certainty `json:"fromCertainty"`
	To            time.Time `json:"to,omitzero"` // zero: open, or unknown
	ToCertainty   Certainty `json:"toCertainty"`
	Certainty     Certainty `json:"certainty"` // recorded if both ends are
	Ended         Ended     `json:"ended,omitzero"`
	BootID        string    `json:"bootID,omitzero"` // in which it began

	Runtime    string              `json:"runtime,omitzero"`
	Addresses  []netip.Addr        `json:"addresses,omitzero"`
	Interfaces []journal.Interface `json:"interfaces,omitzero"`
	Ports      []journal.Port      `json:"ports,omitzero"`
	Netns      string              `json:"netns,omitzero"`

	plugins map[string]bool // plugins of a runtime with an ADD; true after their DEL
}

// Attachment returns the key of the attachment.
func (i *Interval) Attachment() cni.Attachment {
	return cni.Attachment{Network: i.Network, Container: i.Container, IfName: i.IfName}
}

// Covers reports whether the attachment existed at a time, or may have existed because its end is
// unknown.
func (i *Interval) Covers(t time.Time) bool {
	return !i.From.After(t) && (i.To.IsZero() || t.Before(i.To))
}

// Intervals returns the lives of all attachments, in the order of their begins. live are the records
// of attachments; complete says that all could be read.
func Intervals(records []journal.Record, live []network.Record, complete bool, now Now) []Interval {
	b := builder{open: map[cni.Attachment]*Interval{}}
	all := boots(records, now)
	for i, boot := range all {
		if i > 0 {
			b.reboot(boot.anchor)
		}
		for j := range boot.records {
			b.add(boot, &boot.records[j])
		}
	}
	b.merge(live, all[len(all)-1], complete)
	list := make([]Interval, len(b.all))
	for i, x := range b.all {
		list[i] = *x
		list[i].Certainty = Recorded
		if x.FromCertainty == Inferred || x.ToCertainty == Inferred {
			list[i].Certainty = Inferred
		}
	}
	slices.SortStableFunc(list, func(a, b Interval) int { return a.From.Compare(b.From) })
	return list
}

// builder follows attachments from record to record.
type builder struct {
	all  []*Interval
	open map[cni.Attachment]*Interval // the last interval of each attachment that can change
}

// reboot ends all open intervals: no network namespace outlives its kernel.
func (b *builder) reboot(at time.Time) {
	for key, x := range b.open {
		if x.Ended == Open {
			x.end(ByReboot, at, Inferred)
		}
		delete(b.open, key)
	}
}

func (i *Interval) end(how Ended, at time.Time, c Certainty) {
	i.Ended, i.To, i.ToCertainty = how, at, c
	if i.To.Before(i.From) {
		i.To = i.From // the clock of an earlier boot was wrong
	}
}

// add evaluates the next record.
func (b *builder) add(boot *boot, r *journal.Record) {
	if r.Failed() {
		return
	}
	at := boot.at(r)
	switch r.Verb {
	case cni.Add:
		b.begin(boot, r, at)
	case cni.Del:
		b.finish(boot, r, at)
	case cni.GC:
		b.collect(r, at)
	}
}

// begin starts an interval, or adds the result of another plugin of the chain to it.
func (b *builder) begin(boot *boot, r *journal.Record, at time.Time) {
	key, start := r.Attachment(), at.Add(-r.Duration)
	x := b.open[key]
	if x != nil && x.Ended == Open {
		if r.Kind == journal.Plugin && x.extend(r) {
			b.displace(x, start)
			return
		}
		x.end(ByAdd, start, Inferred)
	}
	x = b.start(r, boot.id)
	x.From, x.FromCertainty, x.ToCertainty = start, Recorded, Recorded
	b.open[key] = x
	b.displace(x, start)
}

func (b *builder) start(r *journal.Record, boot string) *Interval {
	x := &Interval{
		Network: r.Network, Container: r.Container, IfName: r.IfName, BootID: boot,
		Runtime: r.Runtime, Addresses: r.Addresses, Interfaces: r.Interfaces, Ports: r.Ports,
		Netns: r.Netns, ToCertainty: Recorded,
	}
	if r.Kind == journal.Plugin {
		x.plugins = map[string]bool{pluginOf(r): false}
	}
	b.all = append(b.all, x)
	return x
}

// pluginOf returns the plugin of a record of [journal.Plugin].
func pluginOf(r *journal.Record) string {
	if len(r.Plugins) == 0 {
		return ""
	}
	return r.Plugins[0].Type
}

// extend adds the result of the ADD of another plugin. It reports false for a plugin that had its
// ADD before, because that begins another attachment.
func (i *Interval) extend(r *journal.Record) bool {
	if _, again := i.plugins[pluginOf(r)]; i.plugins == nil || again {
		return false
	}
	i.plugins[pluginOf(r)] = false
	if r.Addresses != nil {
		i.Addresses = r.Addresses
	}
	if r.Interfaces != nil {
		i.Interfaces = r.Interfaces
	}
	if r.Ports != nil {
		i.Ports = r.Ports
	}
	return true
}

// displace ends other intervals of the network with the same address: its IPAM plugin had got the
// address back, though the journal has no DEL.
func (b *builder) displace(x *Interval, at time.Time) {
	for _, other := range b.open {
		if other != x && other.Ended == Open && other.Network == x.Network &&
			slices.ContainsFunc(other.Addresses, x.has) {
			other.end(ByAdd, at, Inferred)
		}
	}
}

func (i *Interval) has(a netip.Addr) bool { return slices.Contains(i.Addresses, a) }

// finish ends an interval with a DEL.
func (b *builder) finish(boot *boot, r *journal.Record, at time.Time) {
	how := map[journal.Kind]Ended{journal.Rollback: ByRollback, journal.Cleanup: ByCleanup}[r.Kind]
	if how == "" {
		how = ByDel
	}
	x := b.open[r.Attachment()]
	switch {
	case x == nil && len(r.Addresses)+len(r.Ports)+len(r.Interfaces) > 0 && how != ByRollback:
		x = b.start(r, "") // attached before the journal begins
		x.FromCertainty = Inferred
		b.open[r.Attachment()] = x
		x.end(how, at, Recorded)
	case x == nil:
	case x.Ended == Open:
		x.end(how, at, Recorded)
		x.deleted(r)
	case x.deleted(r): // the next plugin of the chain
		x.end(how, at, Recorded)
	}
}

// deleted notes the DEL of a plugin. It reports whether this is its first DEL after its ADD.
func (i *Interval) deleted(r *journal.Record) bool {
	done, known := i.plugins[pluginOf(r)]
	if r.Kind != journal.Plugin || !known || done {
		return false
	}
	i.plugins[pluginOf(r)] = true
	return true
}

// collect ends the intervals that GC of a plugin has removed.
func (b *builder) collect(r *journal.Record, at time.Time) {
	if r.Kind != journal.Plugin || r.Keep == nil {
		return
	}
	for _, x := range b.open {
		_, own := x.plugins[pluginOf(r)]
		if x.Ended == Open && own && x.Network == r.Network &&
			!slices.Contains(r.Keep, x.Container+"/"+x.IfName) {
			x.end(ByCleanup, at, Recorded)
		}
	}
}

// slack is the difference between the begin of an ADD in its record and in the journal.
const slack = 2 * time.Second

// merge adds the recorded attachments that the journal does not know, and ends the intervals of
// attachments that have no record although their runtime keeps records.
func (b *builder) merge(live []network.Record, running *boot, complete bool) {
	known := map[cni.Attachment]bool{}
	for i := range live {
		rec := &live[i]
		known[rec.Attachment] = true
		if b.knows(rec) {
			continue
		}
		var r journal.Record
		r.Network, r.Container, r.IfName = rec.Attachment.Network, rec.Attachment.Container,
			rec.Attachment.IfName
		r.Runtime, r.Netns = rec.Runtime, rec.Netns
		r.SetResult(rec.Result)
		r.SetPorts(rec.Capabilities["portMappings"])
		x := b.start(&r, rec.BootID)
		x.From, x.FromCertainty = rec.Created, Inferred
		if rec.BootID != "" && rec.BootID != running.id {
			x.end(ByReboot, running.anchor, Inferred)
		}
	}
	for key, x := range b.open {
		if complete && x.Ended == Open && x.plugins == nil && !known[key] {
			x.Ended, x.ToCertainty = Unknown, Inferred
		}
	}
}

// knows reports whether the journal has the attachment of a record.
func (b *builder) knows(rec *network.Record) bool {
	return slices.ContainsFunc(b.all, func(x *Interval) bool {
		return x.Attachment() == rec.Attachment && (x.Ended == Open ||
			x.BootID == rec.BootID && rec.BootID != "" && !x.From.After(rec.Created.Add(slack)) &&
				!x.To.Before(rec.Created))
	})
}
