package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host/events"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// pending is what the next look is about.
type pending struct {
	notices []events.Notice
	whole   bool // all attachments
	urgent  bool // rules of attachments were deleted
	scope   map[cni.Attachment]bool
	causes  []Cause
	// check lists attachments that lost objects in their container, among which can be some that no
	// plugin restores. CHECK finds these.
	check  map[cni.Attachment]bool
	later  map[cni.Attachment]time.Time // attachments that wait, until when
	missed int                          // triggers during a delay
}

func newPending() pending {
	return pending{scope: map[cni.Attachment]bool{}, check: map[cni.Attachment]bool{},
		later: map[cni.Attachment]time.Time{}}
}

// all requests a look at all attachments.
func (w *watcher) all(c Cause) {
	w.pending.whole = true
	w.pending.cause(c)
}

// maxCauses bounds the causes of one repair. Of too many, the first ones with a high rank stay.
const maxCauses = 8

func (p *pending) cause(c Cause) {
	if slices.Contains(p.causes, c) {
		return
	}
	if len(p.causes) < maxCauses {
		p.causes = append(p.causes, c)
		return
	}
	lowest := slices.MinFunc(p.causes, func(a, b Cause) int { return int(a.rank - b.rank) })
	if lowest.rank < c.rank {
		p.causes[slices.Index(p.causes, lowest)] = c
	}
}

// attribute finds the attachments that the notices are about.
func (w *watcher) attribute() {
	for _, n := range w.pending.notices {
		switch {
		case n.Loss != nil:
			w.attributeLoss(n)
		case n.Legacy != nil:
			w.all(Cause{Text: "rules of table " + tableName(*n.Legacy) + " of legacy iptables were deleted"})
		default:
			w.attributeDeletions(n)
		}
	}
	w.pending.notices = nil
}

func (w *watcher) attributeLoss(n events.Notice) {
	if n.Loss.Kind == events.LostForwarding {
		w.all(Cause{Process: n.Process, Text: n.Loss.Object + " was turned off"})
		return
	}
	name, list := w.index.of(n.Loss)
	if len(list) == 0 {
		return
	}
	for _, a := range list {
		w.pending.scope[a] = true
		if n.Loss.NSID != events.Own {
			w.pending.check[a] = true
		}
	}
	c := causeOfLoss(n.Loss, name)
	c.Process = n.Process
	w.pending.cause(c)
}

func causeOfLoss(l *events.Loss, name string) Cause {
	switch {
	case l.Kind == events.LostRule:
		return Cause{Text: "deleted " + l.Object + name, rank: ofRoute}
	case l.Kind == events.LostRoute:
		return Cause{Text: "deleted " + l.Object + " dev " + name, rank: ofRoute}
	case l.Kind == events.LostAddress:
		return Cause{Text: "deleted " + l.Object + " dev " + name, rank: ofAddress}
	case l.Deleted:
		return Cause{Text: "deleted link " + name, rank: ofLink}
	case l.Left:
		return Cause{Text: "removed link " + name + " from its bridge", rank: ofPort}
	case !l.Up:
		return Cause{Text: "set link " + name + " down", rank: ofPort}
	}
	return Cause{Text: "moved link " + name + " to another bridge", rank: ofPort}
}

// attributeDeletions finds the attachments that lost elements of nftables. Deleted tables, chains
// and rules concern all attachments.
func (w *watcher) attributeDeletions(n events.Notice) {
	text, whole, own := "", false, false
	for _, d := range n.Deleted {
		if !ours(d.Table) { // iptables-nft
			whole, text = true, "deleted rules of table "+tableName(d.Table)
			continue
		}
		w.pending.urgent = w.pending.urgent || d.Kind == "table"
		switch d.Kind {
		case "table":
			whole, text = true, "flushed table "+tableName(d.Table)
		case "element":
			found := w.attributeOwners(d)
			own = own || found
		default:
			if whole {
				continue
			}
			// A chain or rule of one attachment, or a skeleton that ADD replaces: elements say more.
			whole, text = true, fmt.Sprintf("deleted a %s of table %s", d.Kind, tableName(d.Table))
		}
	}
	switch {
	case whole:
		w.all(Cause{Process: n.Process, Text: text})
	case own:
		w.pending.cause(Cause{Process: n.Process, Text: describeElements(n.Deleted)})
	}
}

func (w *watcher) attributeOwners(d events.Deletion) (found bool) {
	for _, comment := range d.Owners {
		o, ok := cni.ParseTag(comment)
		if !ok {
			continue
		}
		if a, ok := w.index.owner(o); ok {
			found, w.pending.urgent = true, true
			w.pending.scope[a.key] = true
			if a.libcni {
				// libcni keeps its file until DEL has ended, and has no locks.
				w.pending.later[a.key] = w.now().Add(libcniWait)
			}
		}
	}
	return found
}

// libcniWait is how long watch waits after elements of a single attachment of libcni have been
// deleted, because its DEL may be in progress.
const libcniWait = 10 * time.Second

func describeElements(list []events.Deletion) string {
	count, table := 0, ""
	for _, d := range list {
		if d.Kind == "element" {
			count, table = count+d.Count, tableName(d.Table)
		}
	}
	return fmt.Sprintf("deleted %s of table %s", plural.Count(count, "element"), table)
}

func tableName(t events.Table) string { return t.Family.String() + " " + t.Name }

// ours reports whether a table is Tenon's.
func ours(t events.Table) bool { return t.Name == "tenon" }

// relevantTable reports whether a table can contain rules of attachments: Tenon's tables, and
// tables of iptables-nft.
func relevantTable(t events.Table) bool {
	return ours(t) || (t.Family == nftmsg.IPv4 || t.Family == nftmsg.IPv6) &&
		(t.Name == "nat" || t.Name == "filter")
}
