// Package watch repairs attachments whenever another program deletes one of their objects: rules,
// links, addresses, routes. Notifications of the kernel say when to look (package events); package
// repair compares the objects with the attachment records, and restores the missing ones. Watch
// decides which attachments to repair, how often, and what to report.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host/events"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/plugin"
)

// Options configure [Run].
type Options struct {
	Client  *network.Client // with the records; watch changes nothing in it
	Plugins []plugin.Definition
	Caller  invoke.Caller // for CHECK, with DryRun

	DryRun   bool          // report missing objects, and change nothing
	Interval time.Duration // between two full comparisons; 0: none but the first

	// Detach returns a hint with the command that detaches an attachment.
	Detach func(network.Record) string
	Report func(Event)     // gets every event, one call at a time
	Reload <-chan struct{} // a value requests a full comparison; may be nil
	Ready  func()          // is called after the first comparison; may be nil
	Log    *slog.Logger    // for errors that concern no attachment
}

const (
	// settle is how long a burst of notifications must be over before watch looks, and patience how
	// long watch waits for that. A reload of a firewall deletes and restores its rules within
	// milliseconds.
	settle   = 100 * time.Millisecond
	patience = time.Second

	// lockWait limits how long a repair waits for an ADD or DEL on its networks, because meanwhile it
	// keeps other networks locked. A later attempt repairs the rest.
	lockWait = 2 * time.Second

	// reread is the time after which watch reads changed records. It spends at most a tenth of its
	// time on that.
	reread = time.Second
)

// Run watches the current namespace, of the caller's thread, and its containers until ctx is done.
// It returns an error only if it cannot watch.
func Run(ctx context.Context, o Options) error {
	host, err := kernel.CurrentNamespace()
	if err != nil {
		return err
	}
	defer host.Close()
	w := newWatcher(o, host)
	source, err := events.Open(ctx, host, events.Options{
		Relevant: w.index.relevant, Tables: relevantTable, LegacyLock: events.XtablesLock,
	})
	if err != nil {
		return err
	}
	defer source.Close()
	w.source = source
	reloaded := w.watchFirewalld(ctx)
	if err := w.watchRecords(); err != nil {
		return err
	}
	w.all(Cause{Text: "found at the start"})
	w.handle(ctx)
	if o.Ready != nil {
		o.Ready()
	}
	return w.loop(ctx, reloaded)
}

// watchRecords watches the directories with attachment records, which other runtimes add to.
func (w *watcher) watchRecords() error {
	dirs, err := w.Client.RecordDirs()
	return errors.Join(err, w.source.Watch(dirs))
}

// Once compares all attachments, repairs them, and reports the missing objects.
func Once(ctx context.Context, o Options) error {
	host, err := kernel.CurrentNamespace()
	if err != nil {
		return err
	}
	defer host.Close()
	w := newWatcher(o, host)
	w.all(Cause{Text: "found by the comparison"})
	w.handle(ctx)
	return errors.Join(w.unread, w.failed)
}

// watcher is a Run in progress. Only the index is used by other goroutines.
type watcher struct {
	Options
	host   *kernel.Namespace
	source *events.Source
	again  chan struct{} // a value makes watchFirewalld try to connect again
	index  *index
	limits *limits

	pending pending
	due     time.Time // of the next look; zero if there is nothing to do
	burst   time.Time // begin of the burst of notifications that due waits for
	rest    time.Time // no look before that, unless it is urgent
	now     func() time.Time

	known    map[string]cni.Attachment // problems that were reported, until they are gone
	suspects map[string]bool           // attachments with a problem that libcni may be detaching
	shown    string                    // last report of DryRun
	failed   error                     // of the last repair
	unread   error                     // about records, when they were last read
}

func newWatcher(o Options, host *kernel.Namespace) *watcher {
	client := *o.Client
	client.Timeout = lockWait
	o.Client = &client
	return &watcher{Options: o, host: host, again: make(chan struct{}, 1),
		index: newIndex(host, o.Detach), limits: newLimits(), pending: newPending(), now: time.Now,
		known: map[string]cni.Attachment{}, suspects: map[string]bool{}}
}

func (w *watcher) loop(ctx context.Context, reloaded <-chan string) error {
	var interval <-chan time.Time
	if w.Interval > 0 {
		ticker := time.NewTicker(w.Interval)
		defer ticker.Stop()
		interval = ticker.C
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Stop()
		var due <-chan time.Time
		if !w.due.IsZero() {
			timer.Reset(w.due.Sub(w.now()))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.source.C:
			batch, err := w.source.Take()
			if err != nil {
				return err
			}
			w.take(batch)
		case by := <-reloaded:
			w.all(Cause{Text: by})
			w.pending.urgent = true
			w.hurry(settle)
		case <-w.Reload:
			select {
			case w.again <- struct{}{}:
			default:
			}
			w.all(Cause{Text: "found after the request to reload"})
			w.pending.urgent = true
			w.hurry(0)
		case <-interval:
			w.all(Cause{Text: "found by the regular comparison"})
			w.pending.urgent = true
			w.hurry(0)
		case <-due:
			w.handle(ctx)
		}
	}
}

// hurry plans a look after a time, unless an earlier one is planned.
func (w *watcher) hurry(after time.Duration) {
	if at := w.now().Add(after); w.due.IsZero() || at.Before(w.due) {
		w.due = at
	}
}

// take adds notifications, and plans the look for the end of the burst.
func (w *watcher) take(b events.Batch) {
	if b.Files {
		w.index.outdated()
		w.hurry(reread)
	}
	if b.Overrun {
		w.index.outdated() // it has missed changes of links
		w.all(Cause{Text: "found after notifications were lost"})
	}
	w.pending.notices = append(w.pending.notices, b.Notices...)
	if !b.Overrun && len(b.Notices) == 0 {
		return
	}
	now := w.now()
	if w.burst.IsZero() {
		w.burst = now
	}
	w.due = now.Add(settle)
	if last := w.burst.Add(patience); w.due.After(last) {
		w.due = last
	}
}
