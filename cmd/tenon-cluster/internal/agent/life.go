package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// live joins the node, renews its lease every third of its duration, and joins again after the
// lease was lost. It returns an error only if the node can never join.
func (a *Agent) live(ctx context.Context) error {
	backoff := minBackoff
	first := sync.OnceFunc(func() { close(a.tried) })
	defer first()
	defer a.leave(ctx)
	announced := ""
	for ctx.Err() == nil {
		err := a.identity.checkPlace()
		if errors.Is(err, local.ErrCopied) {
			return err
		}
		if err == nil {
			err = a.beat(ctx)
		}
		first()
		a.announce(&announced)
		if errors.Is(err, registry.ErrIdentity) {
			return a.membership.expel(ctx, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		a.problems.report("store", err)
		pause := a.o.TTL / 3
		if err != nil {
			backoff = min(2*backoff, maxBackoff)
			pause = min(backoff/2+a.o.Jitter(backoff), pause)
		} else {
			backoff = minBackoff
		}
		a.rest(ctx, pause)
	}
	return nil
}

// announce reports the state of the node to the service manager if it has changed. The agent is
// ready after the first attempt to join, because it also works without the store.
func (a *Agent) announce(last *string) {
	text := "no contact with the store"
	switch s, err := a.session.joined(); {
	case errors.Is(err, registry.ErrFenced):
		text = "fenced"
	case err == nil:
		text = fmt.Sprintf("%s, epoch %d", s.Node.State, s.Node.Epoch)
	}
	if text == *last {
		return
	}
	ready := ""
	if *last == "" {
		ready = "READY=1\n"
	}
	*last = text
	a.o.Notify(ready + "STATUS=" + text)
}

// leave ends the lease of an agent that stops, so that it need not wait for itself after a reboot.
// It replaces the proof, so that no copy of the files that exists now can take the node's place.
func (a *Agent) leave(ctx context.Context) {
	s, err := a.session.joined()
	if err != nil {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	end, err := a.turn.take(last)
	if err == nil {
		err = a.session.renewProof(last)
		end()
	}
	if err != nil {
		a.o.Log.Warn("cannot replace the proof of this node; a copy of its files that was made within "+
			"the last lease time could take its place", "error", err)
	}
	a.session.store().Nodes.Leave(context.WithoutCancel(ctx), s)
}

// rest waits for a duration, an event, or the end of ctx.
func (a *Agent) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.wake:
	case <-ctx.Done():
	}
}

// beat joins or renews, and then does the work that depends on it.
func (a *Agent) beat(ctx context.Context) error {
	end, err := a.turn.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	at := a.trust.asking()
	err = a.membership.renew(ctx)
	a.problems.report("trust", a.trust.distrust())
	if err == nil {
		a.trust.meet(at)
		a.problems.report("contact", a.o.Local.SetContact())
		err = a.upkeep(ctx)
	}
	// Also without contact: limits pass, and blocks are lost.
	a.problems.report("guard", a.hold.guard(ctx, nil))
	return err
}

// upkeep does what must be done after each contact with the store. The caller has the turn.
func (a *Agent) upkeep(ctx context.Context) error {
	if err := a.claims.resolve(ctx); err != nil {
		return err
	}
	names, err := a.view.poolNames()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := a.files.sync(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
			continue
		}
		if err := a.claims.look(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
		}
	}
	a.problems.report("guard", a.hold.guard(ctx, nil))
	errs = append(errs, a.hold.publish(ctx), a.claims.returns(ctx), a.commons.upkeep(ctx),
		a.session.keepSeenSometimes(ctx), a.membership.answer(ctx))
	return errors.Join(errs...)
}
