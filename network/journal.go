package network

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/records"
)

// journal returns the journal of the client; ok is false if it has none.
func (c *Client) journal() (j journal.Journal, ok bool) {
	switch c.Journal {
	case "":
		return journal.Journal{Dir: filepath.Join(c.stateDir(), "journal")}, true
	case NoJournal:
		return j, false
	}
	return journal.Journal{Dir: c.Journal, Create: true}, true
}

// entry collects what the journal records about one operation. One goroutine uses it. The methods of
// a nil entry do nothing.
type entry struct {
	record journal.Record
	public []string // words that errors may quote
}

// journaled is observe for an operation that the journal records. The operation must use the
// returned client.
func (c *Client) journaled(
	ctx context.Context, kind EventKind, verb cni.Command, a cni.Attachment,
) (*Client, context.Context, func(*cni.Result, error)) {
	ctx, observed := c.observe(ctx, kind, verb, a)
	j, ok := c.journal()
	if !ok {
		return c, ctx, observed
	}
	start := time.Now()
	e := &entry{record: journal.Record{
		Kind: journalKind(kind), Verb: verb,
		Network: a.Network, Container: a.Container, IfName: a.IfName,
		Runtime: c.Runtime, PID: os.Getpid(),
	}}
	recording := *c
	recording.entry = e
	return &recording, ctx, func(r *cni.Result, err error) {
		e.ended()
		e.record.Duration = time.Since(start)
		e.record.SetResult(r)
		e.record.SetError(err, e.public...)
		if err := j.Append(e.record); err != nil && c.Journal != "" {
			c.log().DebugContext(ctx, "cannot write the journal", "error", err)
		}
		observed(r, err)
	}
}

func journalKind(k EventKind) journal.Kind {
	switch k {
	case Rollback:
		return journal.Rollback
	case Cleanup:
		return journal.Cleanup
	}
	return journal.Operation
}

// about adds what a record says about the attachment. The plugins of DEL need not have succeeded on
// ADD; the result is of the ADD.
func (e *entry) about(r *records.Record) {
	if e == nil {
		return
	}
	e.record.Netns = r.Netns
	e.record.SetResult(r.Result)
	e.record.SetPorts(r.Capabilities["portMappings"])
	if r.Runtime != "" {
		e.record.Runtime = r.Runtime
	}
	for _, p := range r.List.Plugins {
		e.public = append(e.public, p.Type, p.IPAM)
	}
}

// ended records the time at which the attachment was complete or gone, while its lock is held: the
// records of several operations on it must not change places.
func (e *entry) ended() {
	if e != nil && e.record.Time.IsZero() {
		e.record.Stamp()
	}
}

// begin starts the time of a plugin call. The caller calls the returned function at its end.
func (e *entry) begin(plugin string, verb cni.Command) func(error) {
	if e == nil || verb == cni.VersionCommand {
		return func(error) {}
	}
	start := time.Now()
	return func(err error) {
		call := journal.Call{Type: plugin, Duration: time.Since(start)}
		if err != nil {
			call.Code = cni.CodeOf(err)
		}
		e.record.Plugins = append(e.record.Plugins, call)
	}
}
