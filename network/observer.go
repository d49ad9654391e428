package network

import (
	"context"
	"log/slog"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/about"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Observer is told what a [Client] does, while it does it: for metrics (package metrics has some), traces (module otel has
// an adapter) and hooks. It is called in the goroutine that does the work, of several at once, and has to be quick: what it
// takes, the operation takes longer. Nothing catches its panics.
type Observer interface {
	// Begin is called before something is done. That is done with the context it returns, which is ctx or made of it,
	// so that a tracer can hand on its span (with [invoke.WithTrace] to plugins too). The function is called once, in the
	// end; nil if that is of no interest.
	Begin(ctx context.Context, e Event) (context.Context, func(Outcome))
}

// Observers are told one after the other, each with the context of those before, and of the end in reverse.
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

// EventKind is what sort of work an [Event] is about. There may be more some day.
type EventKind string

// The kinds of work. Those that are part of another begin and end within it, with its context.
const (
	// Operation is a whole ADD, DEL, CHECK, STATUS or GC of a network, as Verb says: [Client.Add] and so on. What is
	// refused because of its form (a network without plugins, a key that is none) is no operation.
	Operation EventKind = "operation"

	// Setup and Removal are a whole [Manager.Setup] and [Manager.Remove]. The operations on the attachments of the container
	// are part of them. They have no Verb, and of the Attachment only the container.
	Setup   EventKind = "setup"
	Removal EventKind = "removal"

	// Rollback is the DEL that takes back an ADD, because that failed or another one of the same Setup; part of either.
	Rollback EventKind = "rollback"

	// Cleanup is the DEL of what is in nobody's use: by [Client.Recover], as part of GC, and of what is under the key of an
	// ADD before that begins.
	Cleanup EventKind = "cleanup"

	// Repair is a whole [Client.Repair]. It has neither Verb nor Attachment.
	Repair EventKind = "repair"

	// Lock is the wait for a lock of a network or a container, whichever Attachment names, mostly as part of something else.
	Lock EventKind = "lock"

	// PluginCall is one call of a plugin; that of VERSION has no Attachment. Delegates are the business of plugins.
	PluginCall EventKind = "plugin call"
)

// Event is work that begins. There may be more fields some day.
type Event struct {
	Kind       EventKind
	Verb       cni.Command    // what plugins are called with; empty for Repair and Lock
	Attachment cni.Attachment // what it is about, as far as there is one: GC and STATUS have only a network
	Plugin     string         // type of the plugin of a PluginCall
	Path       string         // its executable
}

// ID returns what logs, link aliases and rules of the kernel call the attachment ([cni.Attachment.Owner]), empty if e is
// not about one alone.
func (e Event) ID() cni.Owner {
	if e.Attachment.IfName == "" {
		return ""
	}
	return e.Attachment.Owner()
}

// Outcome is how work ended.
type Outcome struct {
	Err      error         // nil for success; [cni.CodeOf] has its code
	Result   *cni.Result   // of an ADD operation that succeeded; must not be changed
	Duration time.Duration // since Begin
}

// observe tells the observer and, at level Debug, the log what is done for an attachment, or a network or a container. It has
// to be done with the context, and the function to be called in the end, with the result of an ADD.
func (c *Client) observe(
	ctx context.Context, kind EventKind, verb cni.Command, a cni.Attachment,
) (context.Context, func(*cni.Result, error)) {
	return c.observeEvent(ctx, Event{Kind: kind, Verb: verb, Attachment: a})
}

func (c *Client) observeEvent(ctx context.Context, e Event) (context.Context, func(*cni.Result, error)) {
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

// logEnd writes a line about what has ended, but not about locks that nobody held. The text of an error, which can quote
// what a plugin was given, is the caller's to log.
func (c *Client) logEnd(ctx context.Context, e Event, o Outcome) {
	if e.Kind == Lock && o.Err == nil && o.Duration < statefile.FirstWait {
		return
	}
	args := append(about.Args(e.Attachment, "verb", string(e.Verb), "plugin", e.Plugin, "path", e.Path), "duration", o.Duration)
	if o.Err != nil {
		args = append(args, "code", cni.CodeOf(o.Err))
	}
	c.log().DebugContext(ctx, string(e.Kind), args...)
}

// warn logs what deserves attention about an attachment.
func (c *Client) warn(ctx context.Context, a cni.Attachment, what string, err error) {
	c.log().WarnContext(ctx, what, append(about.Args(a), "error", err)...)
}
