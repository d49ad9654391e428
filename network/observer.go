package network

import (
	"context"
	"log/slog"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/about"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Observer is called for the operations of a [Client], for metrics (see package metrics), traces
// (see module otel) and hooks. The client calls it in the goroutine that runs the operation, so
// calls can be concurrent, and the operation waits for the observer. The client does not recover
// panics of the observer.
type Observer interface {
	// Begin is called at the start of an operation. The operation uses the returned context, which
	// is ctx or derived from it, so that a tracer can pass on its span (to plugins with
	// [invoke.WithTrace]). The returned function is called once, at the end of the operation; it
	// may be nil.
	Begin(ctx context.Context, e Event) (context.Context, func(Outcome))
}

// Observers calls several observers in order, each with the context of the previous one. It calls
// their end functions in reverse order.
type Observers []Observer

// Begin implements [Observer].
func (o Observers) Begin(ctx context.Context, e Event) (context.Context, func(Outcome)) {
	ends := make([]func(Outcome), len(o))
	for i, observer := range o {
		ctx, ends[i] = observer.Begin(ctx, e)
	}
	return ctx, func(out Outcome) {
		for i := len(ends) - 1; i >= 0; i-- {
			if ends[i] != nil {
				ends[i](out)
			}
		}
	}
}

// EventKind is the kind of an [Event]. Later versions may add kinds.
type EventKind string

// The kinds of events. An event that is part of another begins and ends within it, with its
// context.
const (
	// Operation is a whole ADD, DEL, CHECK, STATUS or GC of a network; Verb is the kind. A call
	// with malformed arguments, such as a network without plugins or an invalid key, is not an
	// operation.
	Operation EventKind = "operation"

	// Setup and Removal are a whole [Manager.Setup] and [Manager.Remove]. The operations on the
	// attachments of the container are part of them. They have no Verb, and their Attachment has
	// only the container.
	Setup   EventKind = "setup"
	Removal EventKind = "removal"

	// Rollback is the DEL after a failed ADD, or after the failure of another ADD of the same
	// Setup. It is part of the ADD or the Setup.
	Rollback EventKind = "rollback"

	// Cleanup is the DEL of an attachment that is not in use: by [Client.Recover], by GC, or before
	// an ADD with the same key.
	Cleanup EventKind = "cleanup"

	// Repair is a whole [Client.Repair]. It has neither Verb nor Attachment.
	Repair EventKind = "repair"

	// Lock is the wait for the lock of a network or a container, named by Attachment, usually as
	// part of another event.
	Lock EventKind = "lock"

	// PluginCall is one call of a plugin. A call of VERSION has no Attachment. Calls of delegates
	// are not observed, because the plugins make them.
	PluginCall EventKind = "plugin call"
)

// Event describes work that begins. Later versions may add fields.
type Event struct {
	Kind       EventKind
	Verb       cni.Command    // empty for Repair and Lock
	Attachment cni.Attachment // GC and STATUS have only a network
	Plugin     string         // type of the called plugin
	Path       string         // path of its binary
}

// ID returns the attachment's owner, as logs, link aliases and kernel rules show it
// ([cni.Attachment.Owner]), or "" if e is not about one attachment.
func (e Event) ID() cni.Owner {
	if e.Attachment.IfName == "" {
		return ""
	}
	return e.Attachment.Owner()
}

// Outcome describes the end of an event.
type Outcome struct {
	Err      error         // nil for success; see [cni.CodeOf]
	Result   *cni.Result   // of a successful ADD; must not be changed
	Duration time.Duration // since Begin
}

// observe reports the start of an event about an attachment, a network or a container to the
// observer. The caller runs the operation with the returned context, and then calls the returned
// function, which also logs the event at level Debug. The function takes the result of an ADD.
func (c *Client) observe(
	ctx context.Context, kind EventKind, verb cni.Command, a cni.Attachment,
) (context.Context, func(*cni.Result, error)) {
	return c.observeEvent(ctx, Event{Kind: kind, Verb: verb, Attachment: a})
}

func (c *Client) observeEvent(
	ctx context.Context, e Event,
) (context.Context, func(*cni.Result, error)) {
	debug := c.log().Enabled(ctx, slog.LevelDebug)
	if c.Observer == nil && !debug {
		return ctx, func(*cni.Result, error) {}
	}
	start := time.Now()
	var end func(Outcome)
	if c.Observer != nil {
		ctx, end = c.Observer.Begin(ctx, e)
	}
	return ctx, func(r *cni.Result, err error) {
		o := Outcome{Err: err, Result: r, Duration: time.Since(start)}
		if end != nil {
			end(o)
		}
		if debug {
			c.logEnd(ctx, e, o)
		}
	}
}

// logEnd logs the end of an event. It leaves out locks that were free. It does not log the text of
// an error, which can quote the input of a plugin; the caller decides about that.
func (c *Client) logEnd(ctx context.Context, e Event, o Outcome) {
	if e.Kind == Lock && o.Err == nil && o.Duration < statefile.FirstWait {
		return
	}
	args := append(about.Args(e.Attachment, "verb", string(e.Verb), "plugin", e.Plugin, "path",
		e.Path), "duration", o.Duration)
	if o.Err != nil {
		args = append(args, "code", cni.CodeOf(o.Err))
	}
	c.log().DebugContext(ctx, string(e.Kind), args...)
}

// warn logs a warning about an attachment.
func (c *Client) warn(ctx context.Context, a cni.Attachment, what string, err error) {
	c.log().WarnContext(ctx, what, append(about.Args(a), "error", err)...)
}
