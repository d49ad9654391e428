// Package repair restores the rules of many attachments on the host in one transaction, after
// another program has flushed them, and other objects that another program has deleted. It knows
// neither the attachments nor the rules.
package repair

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// ErrForeign reports that the executable file of a call is not part of Tenon, so its rules are
// unknown.
var ErrForeign = errors.New("is not a plugin of Tenon")

// errUnmet is the error of a call if the error of the whole transaction contains the cause.
var errUnmet = errors.New("is still missing in the ruleset")

// Outcome is the outcome of a call.
type Outcome struct {
	Restored []string // missing rules and other objects that were restored, for people
	Moved    []session.Move
	Err      error // [ErrForeign]; code [cni.CodeUnknownContainer] if the container no longer exists
}

// Failed reports whether a rule of an existing attachment could not be restored.
func (o Outcome) Failed() bool {
	return o.Err != nil && !errors.Is(o.Err, ErrForeign) && cni.CodeOf(o.Err) != cni.CodeUnknownContainer
}

// Run repairs the attachments of CHECK calls. It restores all rule sets in one transaction, then
// the other rules: rules that refuse packets before rules that accept packets. In between it
// restores links, addresses, routes and settings. The outcomes are in the order of the calls; the
// error concerns all of them. No ADD or DEL of these attachments may run at the same time.
func Run(ctx context.Context, plugins []plugin.Definition, calls []invoke.Call) ([]Outcome, error) {
	return RunAllowed(ctx, plugins, calls, nil)
}

// RunAllowed is Run, and restores only those links, addresses, routes and settings for which allow
// returns true. Its argument is the name of the object, as in [Outcome.Restored]. A nil allow
// permits all objects.
func RunAllowed(
	ctx context.Context, plugins []plugin.Definition, calls []invoke.Call,
	allow func(object string) bool,
) ([]Outcome, error) {
	known := ours{}
	all := gather(ctx, plugins, calls, known.has)
	err := all.inHost(ctx, all.meet)
	mended := all.finish(ctx, allow)
	outcomes := all.outcomes()
	if len(mended) == 0 {
		return outcomes, err
	}
	// Rules depend on addresses that exist only now.
	var again []invoke.Call
	for _, i := range mended {
		again = append(again, calls[i])
	}
	rest := gather(ctx, plugins, again, known.has)
	errAgain := rest.inHost(ctx, rest.meet)
	for _, p := range rest {
		p.Mend = nil
	}
	rest.finish(ctx, nil)
	for i, o := range rest.outcomes() {
		first := &outcomes[mended[i]]
		first.Restored = append(first.Restored, o.Restored...)
		first.Moved = append(first.Moved, o.Moved...)
		first.Err = errors.Join(all[mended[i]].unmended, o.Err)
	}
	return outcomes, errors.Join(err, errAgain)
}

// Missing reports missing elements of rule sets, missing objects other than rules, and attachments
// that Run would move, and changes nothing. For the other steps of calls that lack none of these,
// it runs CHECK through caller and reports the error.
func Missing(ctx context.Context, plugins []plugin.Definition, calls []invoke.Call, caller invoke.Caller) ([]Outcome, error) {
	all := gather(ctx, plugins, calls, ours{}.has)
	err := all.inHost(ctx, all.compare)
	for _, p := range all {
		p.mend(ctx, &session.Mending{DryRun: true})
		if p.Move != nil {
			moves, wrong := p.Move(ctx, true)
			p.Moved, p.Err = moves, errors.Join(p.Err, wrong)
		}
		if p.Restore == nil || len(p.Restored) > 0 {
			continue // nothing else to restore, or known to be incomplete
		}
		if _, err := caller.Call(ctx, p.call); err != nil {
			p.Restored = []string{cni.AsError(err).Msg}
		}
	}
	return all.outcomes(), err
}

// Convert creates the rules of attachments with the backends in the configurations of the calls,
// for configurations that have changed to another backend since ADD. It ignores where the
// executable files are, and leaves Tenon's tables unchanged.
func Convert(ctx context.Context, plugins []plugin.Definition, calls []invoke.Call) []Outcome {
	all := gather(ctx, plugins, calls, func(string) bool { return true })
	for _, p := range all {
		p.Mend = nil
	}
	all.finish(ctx, nil)
	return all.outcomes()
}

// pending is the repair of one call in progress.
type pending struct {
	Outcome
	session.Repairs
	call  invoke.Call
	watch func(op string) error // see [plugin.Call]; may be nil

	unmended error // the error of Mend
}

type repairs []*pending

// gather asks each plugin for the repairs of its calls, if isOurs accepts the path of its
// executable file.
func gather(
	ctx context.Context, plugins []plugin.Definition, calls []invoke.Call, isOurs func(path string) bool,
) repairs {
	all := make(repairs, len(calls))
	for i, call := range calls {
		p := &pending{call: call}
		if d, ok := plugin.Select(plugins, call.Path, call.Stdin); !ok || !isOurs(call.Path) {
			p.Err = ErrForeign
		} else {
			p.Err = p.ask(ctx, d)
		}
		if p.Err != nil { // all repairs of a plugin, or none
			p.Repairs = session.Repairs{}
		}
		all[i] = p
	}
	return all
}

// ask asks the plugin for its repairs.
func (p *pending) ask(ctx context.Context, d plugin.Definition) error {
	return d.With(ctx, p.call.Env, p.call.Stdin, func(c *plugin.Call, of plugin.Plugin) error {
		p.watch = c.Watch
		if r, ok := of.(session.Repairer); ok {
			return r.Repair(ctx, c, &p.Repairs)
		}
		return nil
	})
}

// inHost opens the namespace of the host for f.
func (r repairs) inHost(ctx context.Context, f func(*kernel.Space) error) error {
	tx := kernel.Begin(ctx)
	tx.Watch(r.watch)
	host, closeHost, err := tx.OpenHost()
	if err != nil {
		return err
	}
	defer closeHost()
	return f(host)
}

// watch calls [plugin.Call.Watch] of every call before a change for all of them.
func (r repairs) watch(op string) error {
	for _, p := range r {
		if p.watch == nil {
			continue
		}
		if err := p.watch(op); err != nil {
			return err
		}
	}
	return nil
}

// meet applies all elements that can be applied. A call fails if one of its elements cannot.
func (r repairs) meet(host *kernel.Space) error {
	missing, failure := host.Rules.ApplyBatches(r.batches()...)
	still := make([][]kernel.Held, len(r))
	if failure != nil {
		var err error
		if still, err = host.Rules.MissingInBatches(r.batches()...); err != nil {
			return r.fail(errors.Join(failure, err))
		}
	}
	for i, p := range r {
		if len(still[i]) == 0 {
			p.note(missing[i])
		} else {
			p.Err = errUnmet
		}
	}
	return failure
}

// fail fails all calls, because the state of their rule sets is unknown and no packet may be
// accepted then.
func (r repairs) fail(err error) error {
	for _, p := range r {
		if p.Err == nil {
			p.Err = errUnmet
		}
	}
	return err
}

// compare notes the missing elements.
func (r repairs) compare(host *kernel.Space) error {
	missing, err := host.Rules.MissingInBatches(r.batches()...)
	for i, held := range missing {
		r[i].note(held)
	}
	return err
}

func (r repairs) batches() []*kernel.Batch {
	list := make([]*kernel.Batch, len(r))
	for i, p := range r {
		list[i] = &p.Rules
	}
	return list
}

func (p *pending) note(missing []kernel.Held) {
	for _, held := range missing {
		p.Restored = append(p.Restored, held.Set+" "+held.Text)
	}
}

// finish restores and moves rules outside the rule sets, and mends other objects. It returns the
// indexes of the calls of attachments with mended objects.
func (r repairs) finish(ctx context.Context, allow func(object string) bool) (mended []int) {
	r.step(ctx, session.Deny)
	attachments := map[cni.Attachment]bool{}
	for _, p := range r {
		if p.mend(ctx, &session.Mending{Allow: allow}) {
			attachments[p.attachment()] = true
		}
	}
	r.step(ctx, session.Allow)
	for i, p := range r {
		if p.Err == nil && p.Move != nil {
			p.Moved, p.Err = p.Move(ctx, false)
		}
		if attachments[p.attachment()] {
			mended = append(mended, i)
		}
	}
	return mended
}

// step runs a step of each call without error.
func (r repairs) step(ctx context.Context, of session.Step) {
	for _, p := range r {
		if p.Err != nil || p.Restore == nil {
			continue
		}
		restored, err := p.Restore(ctx, of)
		p.Restored, p.Err = append(p.Restored, restored...), err
	}
}

// mend restores objects other than rules, and reports whether it restored any.
func (p *pending) mend(ctx context.Context, m *session.Mending) bool {
	if p.Err != nil || p.Mend == nil {
		return false
	}
	err := p.Mend(ctx, m)
	p.Restored = append(p.Restored, m.Restored...)
	p.unmended = errors.Join(err, m.Err)
	p.Err = p.unmended
	return len(m.Restored) > 0
}

// attachment returns the attachment of a call, without the network, which only its configuration
// names.
func (p *pending) attachment() cni.Attachment {
	e := p.call.Env
	return cni.Attachment{Container: e.ContainerID, IfName: e.IfName}
}

func (r repairs) outcomes() []Outcome {
	list := make([]Outcome, len(r))
	for i, p := range r {
		list[i] = p.Outcome
	}
	return list
}
