package watch

import (
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host/events"
)

// Cause is why objects were missing.
type Cause struct {
	Process events.Process // zero if it is not known
	Text    string         // what it did: "flushed table inet tenon"; or how watch found out
	rank    rank
}

// rank orders causes of rtnetlink: the kernel reports the loss of a link, and then everything that
// the link loses with it.
type rank int

const (
	independent rank = iota
	ofRoute
	ofAddress
	ofPort
	ofLink
)

// roots returns the causes without the consequences of others.
func roots(causes []Cause) (list []Cause) {
	highest := independent
	for _, c := range causes {
		highest = max(highest, c.rank)
	}
	for _, c := range causes {
		if c.rank == independent || c.rank == highest {
			list = append(list, c)
		}
	}
	return list
}

// String returns a phrase: "nft (PID 4711, from nftables.service) flushed table inet tenon".
func (c Cause) String() string {
	if c.Process.PID == 0 {
		return c.Text
	}
	return c.Process.String() + " " + c.Text
}

// Event is a repair, or a problem that watch cannot repair.
type Event struct {
	Time    time.Time `json:"time"`
	Cause   string    `json:"cause"`
	Process string    `json:"process,omitzero"`
	PID     int       `json:"pid,omitzero"`
	Unit    string    `json:"unit,omitzero"` // of systemd

	Lost        int      `json:"lost"`             // missing elements and other objects
	Restored    int      `json:"restored"`         // of these
	Attachments int      `json:"attachments"`      // that lost any
	Objects     []string `json:"objects,omitzero"` // some of them, at most 8
	Millis      int64    `json:"ms"`               // of the comparison and the repair
	Suppressed  int      `json:"suppressed"`       // attachments that back-off delayed since the last one
	DryRun      bool     `json:"dryRun,omitzero"`

	// Problem is set if objects could not be restored, or are removed again and again. It is reported
	// once.
	Problem string `json:"problem,omitzero"`
	Hint    string `json:"hint,omitzero"`
	// Attachment is the attachment with the problem, if it is about one.
	Attachment string `json:"attachment,omitzero"`
}

// maxObjects bounds the objects of an event.
const maxObjects = 8

// event returns an event with causes.
func (w *watcher) event(causes []Cause) Event {
	e := Event{Time: w.now(), Cause: phrase(causes), DryRun: w.DryRun}
	for _, c := range roots(causes) {
		if e.PID == 0 {
			e.Process, e.PID, e.Unit = c.Process.Name, c.Process.PID, c.Process.Unit
		}
	}
	return e
}

// phrase describes causes.
func phrase(causes []Cause) string {
	var list []string
	for _, c := range roots(causes) {
		list = append(list, c.String())
	}
	if len(list) == 0 {
		return "found by a comparison"
	}
	return strings.Join(list, "; ")
}

// problem reports a problem, unless it was reported before.
func (r *result) problem(a cni.Attachment, text, hint string) {
	key := a.String() + " " + text
	if a == (cni.Attachment{}) {
		key = text
	}
	r.current[key] = true
	if _, before := r.known[key]; before {
		return
	}
	r.known[key] = a
	e := Event{Time: r.now(), Problem: text, Hint: hint, DryRun: r.DryRun}
	if a != (cni.Attachment{}) {
		e.Attachment = a.String()
	}
	r.Report(e)
}
