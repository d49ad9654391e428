package watch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// handle looks at the attachments that notifications are about, and repairs them.
func (w *watcher) handle(ctx context.Context) {
	w.due, w.burst = time.Time{}, time.Time{}
	if after := w.index.pause(w.now()); after > 0 {
		w.hurry(after)
		return
	}
	if read, err := w.refresh(ctx); read {
		w.unreadable(err)
	}
	w.attribute()
	if !w.pending.whole && len(w.pending.scope) == 0 {
		w.pending.causes = nil // of attachments that no longer exist
		return
	}
	if after := w.rest.Sub(w.now()); after > 0 && !w.pending.urgent {
		w.hurry(after)
		return
	}
	w.pending.urgent = false
	scope := w.admit()
	if len(scope) == 0 {
		return
	}
	if after := w.limits.wait(w.now()); after > 0 {
		w.pending.put(scope)
		w.hurry(after)
		return
	}
	causes := w.pending.causes
	w.pending.causes = nil
	w.repair(ctx, scope, causes)
	w.limits.forget(w.now())
	if len(scope) > many {
		debug.FreeOSMemory() // until the next repair, which may be days away
	}
}

// refresh reads the records again if they have changed, and watches the directories of runtimes
// that are new on the host. It reports whether it has read them.
func (w *watcher) refresh(ctx context.Context) (read bool, err error) {
	read, err = w.index.refresh(ctx, w.Client)
	if read && w.source != nil {
		err = errors.Join(err, w.watchRecords())
	}
	return read, err
}

// unreadable keeps an error about records, which Once returns. Run logs it, but not again as long as
// there is one, because each ADD and DEL of another container would repeat it.
func (w *watcher) unreadable(err error) {
	if err != nil && w.unread == nil && w.source != nil {
		w.Log.Warn("cannot read some attachment records", "err", err)
	}
	w.unread = err
}

// many is a number of attachments: to compare more leaves megabytes of garbage.
const many = 20

// restAfter returns how long watch waits after a look in vain: 20 times as long as it took, so that
// a program that changes objects all the time costs at most 5 % of a processor, but at most 10
// seconds. A look also takes long if it waits for an ADD or for a busy host, and missing rules must
// not wait for that.
func restAfter(look time.Duration) time.Duration { return min(20*look, 10*time.Second) }

// put returns attachments to the ones that the next look is about.
func (p *pending) put(list []cni.Attachment) {
	for _, a := range list {
		p.scope[a] = true
	}
}

// admit returns the attachments that may be repaired now, and plans the look at the others.
func (w *watcher) admit() (scope []cni.Attachment) {
	p := &w.pending
	if p.whole {
		p.put(w.index.all())
	}
	p.whole = false
	now := w.now()
	for a := range p.scope {
		until := w.limits.until(a.String(), now)
		if later := p.later[a]; later.After(until) {
			until = later
		}
		if until.After(now) {
			w.hurry(until.Sub(now))
			p.missed++
			continue
		}
		delete(p.later, a)
		delete(p.scope, a)
		scope = append(scope, a)
	}
	return scope
}

// repair compares and repairs attachments, and reports the missing objects.
func (w *watcher) repair(ctx context.Context, scope []cni.Attachment, causes []Cause) {
	start := time.Now()
	r := &result{watcher: w, lost: map[cni.Attachment][]string{}, objects: map[string]bool{},
		current: map[string]bool{}}
	skipped, err := w.Client.RepairAttachments(ctx, scope, r.run)
	r.took = time.Since(start)
	if ctx.Err() != nil {
		w.report(r, causes) // the objects restored so far
		return
	}
	w.failed = err
	for _, s := range skipped {
		r.skipped(s)
	}
	if busy(err) {
		// Another look is cheap where this one has repaired everything.
		w.pending.put(scope)
		w.hurry(lockWait)
	} else if err != nil && r.failures == 0 {
		r.problem(cni.Attachment{}, cni.AsError(err).Msg, "")
	}
	if len(r.lost) == 0 {
		w.limits.refund()
		w.rest = w.now().Add(restAfter(time.Since(start)))
	}
	if !r.delayed.IsZero() {
		w.pending.put(scope)
		w.pending.missed++
		w.hurry(r.delayed.Sub(w.now()))
	}
	r.forgetProblems(scope)
	w.report(r, causes)
	if len(w.pending.scope) > 0 {
		w.pending.causes = causes // of the attachments that wait
	}
}

// busy reports whether a network stayed locked by an ADD or DEL.
func busy(err error) bool {
	return err != nil && slices.ContainsFunc(flatten(err), func(e error) bool {
		return cni.CodeOf(e) == cni.CodeTryAgainLater
	})
}

func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []error
		for _, e := range joined.Unwrap() {
			list = append(list, flatten(e)...)
		}
		return list
	}
	return []error{err}
}

// result collects the outcomes of a repair.
type result struct {
	*watcher
	took     time.Duration
	lost     map[cni.Attachment][]string
	missing  int             // that were not restored
	objects  map[string]bool // restored, other than rules
	delayed  time.Time       // end of the first back-off of an object
	failures int
	current  map[string]bool // problems, see problem
}

// run repairs the calls of [network.Client.RepairAttachments].
func (r *result) run(ctx context.Context, calls []invoke.Call) error {
	var outcomes []repair.Outcome
	var err error
	if r.DryRun {
		outcomes, err = repair.Missing(ctx, r.Plugins, calls, r.Caller)
	} else {
		outcomes, err = repair.RunAllowed(ctx, r.Plugins, calls, r.allow)
	}
	for i, o := range outcomes {
		name, _, _ := cni.DecodeHeader(calls[i].Stdin)
		a := calls[i].Env.Attachment(name)
		if len(o.Restored) > 0 {
			r.lost[a] = append(r.lost[a], o.Restored...)
		}
		plugin := filepath.Base(calls[i].Path)
		switch {
		case errors.Is(o.Err, repair.ErrForeign):
			r.problem(cni.Attachment{}, fmt.Sprintf("network %s: plugin %s is not part of Tenon, so "+
				"watch cannot repair its rules", name, plugin), "to compare, run: tenon check")
		case o.Failed():
			r.failures++
			r.missing++
			r.problem(a, plugin+": "+cni.AsError(o.Err).Msg, cni.AsError(o.Err).Details)
		case o.Err != nil:
			r.skipped(network.Unrepaired{Attachment: a, Err: o.Err})
		case r.pending.check[a]:
			r.check(ctx, a, calls[i])
		}
	}
	for _, call := range calls {
		name, _, _ := cni.DecodeHeader(call.Stdin)
		delete(r.pending.check, call.Env.Attachment(name))
	}
	return err
}

// check reports an object that is missing and that its plugin does not restore.
func (r *result) check(ctx context.Context, a cni.Attachment, call invoke.Call) {
	if _, err := r.Caller.Call(ctx, call); err != nil {
		own, _ := r.index.owner(a.Owner())
		r.problem(a, fmt.Sprintf("%s cannot restore this: %s", filepath.Base(call.Path),
			cni.AsError(err).Msg), own.detach+"; then attach the container again")
	}
}

// allow reports whether an object other than rules may be restored.
func (r *result) allow(object string) bool {
	until := r.limits.until(object, r.now())
	if until.IsZero() {
		r.objects[object] = true
		return true
	}
	if r.delayed.IsZero() || until.Before(r.delayed) {
		r.delayed = until
	}
	return false
}

// skipped reports an attachment that cannot be repaired.
func (r *result) skipped(s network.Unrepaired) {
	a, known := r.index.owner(s.Attachment.Owner())
	if !known {
		return // its ADD or DEL is in progress
	}
	text := cni.AsError(s.Err).Msg
	if suspect := a.key.String() + " " + text; a.libcni && !r.suspects[suspect] {
		// libcni may be detaching it. Without record at the next look there is no problem.
		r.suspects[suspect] = true
		r.pending.scope[a.key] = true
		r.pending.later[a.key] = r.now().Add(libcniWait)
		r.hurry(libcniWait)
		return
	}
	r.problem(a.key, "cannot be repaired: "+text, a.detach+"; then attach the container again")
}

// maxSuspects bounds the attachments that watch suspects to be detached.
const maxSuspects = 1000

// forgetProblems drops the problems of the attachments in scope that no longer exist.
func (r *result) forgetProblems(scope []cni.Attachment) {
	for key, a := range r.known {
		if !r.current[key] && slices.Contains(scope, a) {
			delete(r.known, key)
		}
	}
	if len(r.suspects) > maxSuspects {
		clear(r.suspects)
	}
}

// report reports the missing objects, and records it for the limits.
func (w *watcher) report(r *result, causes []Cause) {
	if len(r.lost) == 0 {
		return
	}
	e := w.event(causes)
	e.Millis, e.Attachments = r.took.Milliseconds(), len(r.lost)
	var all []string
	for _, objects := range r.lost {
		all = append(all, objects...)
	}
	slices.Sort(all)
	e.Restored = len(all)
	e.Lost = e.Restored + r.missing
	e.Objects = all[:min(len(all), maxObjects)]
	if w.DryRun {
		e.Restored = 0
		shown := strings.Join(all, "\n")
		if shown == w.shown {
			return
		}
		w.shown = shown
	}
	e.Suppressed, w.pending.missed = w.pending.missed, 0
	w.Report(e)
	if !w.DryRun {
		w.fights(r, e)
	}
}

// fights notes the losses, and reports a program that removes the same objects again and again.
func (w *watcher) fights(r *result, e Event) {
	now := w.now()
	again, times, next := 0, 0, time.Duration(0)
	note := func(key string) {
		count, delay := w.limits.lost(key, now)
		if delay > 0 {
			again++
			times, next = max(times, count), max(next, delay)
		}
	}
	for a, list := range r.lost {
		// Attachments share objects such as the gateway, which have histories of their own.
		if slices.ContainsFunc(list, func(text string) bool { return !r.objects[text] }) {
			note(a.String())
		}
	}
	for object := range r.objects {
		note(object)
	}
	if again == 0 || times&(times-1) != 0 && times != free+1 { // report the 3rd, 4th, 8th, … time
		return
	}
	e.Problem = fmt.Sprintf("the same objects were deleted %d times in a row: %s", times, e.Cause)
	e.Hint = fmt.Sprintf("keep this program from deleting them; the next repair waits %v", next)
	e.Lost, e.Restored, e.Attachments, e.Millis, e.Suppressed = 0, 0, 0, 0, 0
	e.Objects = nil
	w.Report(e)
}
