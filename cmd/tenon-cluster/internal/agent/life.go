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
			return a.expel(ctx, err)
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
	end, err := a.exclusive(last)
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
	end, err := a.exclusive(ctx)
	if err != nil {
		return err
	}
	defer end()
	at := a.trust.asking()
	err = a.renew(ctx)
	a.problems.report("trust", a.trust.distrust())
	if err == nil {
		a.touch(at)
		err = a.upkeep(ctx)
	}
	a.problems.report("guard", a.hold.guard(ctx, nil)) // also without contact: limits pass, and blocks are lost
	return err
}

// renew proves that the node may go on, and reports to all nodes that the store was restored: also
// if this node cannot join, because it may be the only one that knows.
func (a *Agent) renew(ctx context.Context) error {
	for {
		err := a.prolong(ctx)
		if errors.Is(err, registry.ErrIdentity) {
			return err
		}
		spoken, failed := a.trust.speak(ctx)
		if failed != nil || !spoken {
			return errors.Join(err, failed)
		}
		a.session.lose()
	}
}

// prolong renews the lease. After the loss of the lease, or when another node suspects this one, it
// joins again; after fencing it gives the blocks up.
func (a *Agent) prolong(ctx context.Context) error {
	for {
		s, err := a.session.joined()
		if err != nil {
			if err := a.join(ctx); err != nil {
				return err
			}
			if _, err := a.session.joined(); err == nil {
				return nil
			}
			continue // the operator has confirmed a restored store
		}
		err = a.session.prover().Nodes.Renew(ctx, s)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, registry.ErrConflict):
			if err := a.session.refresh(ctx); err != nil {
				return err
			}
		case errors.Is(err, registry.ErrIdentity):
			return err
		case ends(err), errors.Is(err, registry.ErrNotFound):
			a.o.Log.Warn("the session has ended; joining again", "cause", err)
			a.session.lose()
		default:
			return fmt.Errorf("renew: %w", err)
		}
	}
}

// touch records the time of an answer of the store.
func (a *Agent) touch(at stamp) {
	a.trust.meet(at)
	a.problems.report("contact", a.o.Local.SetContact())
}

// join makes the node known, or known again, and confirms its blocks.
func (a *Agent) join(ctx context.Context) error {
	at := a.trust.asking()
	meta, doubt, err := a.o.Registry.Meta.Trust(ctx)
	if err != nil {
		return fmt.Errorf("read the identity of the store: %w", err)
	}
	a.session.bind(meta.Nonce)
	n, err := a.excludeRival(ctx)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if err := a.trust.compareStore(meta, doubt, n); err != nil {
		return err
	}
	first := a.identity.node().Store == "" && !a.trust.distrusts()
	doc := a.session.document()
	if first {
		doc.Store = meta.Nonce
	}
	s, err := a.session.prover().Nodes.Join(ctx, doc, a.o.TTL)
	if errors.Is(err, registry.ErrFenced) {
		s, err = a.comeBack(ctx)
	}
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	a.trust.meet(at)
	a.session.proved()
	a.session.begin(s)
	a.rival = rival{}
	a.commons.reconciled = time.Time{}
	if first {
		err = a.identity.remember(func(n *local.Node) { n.Store = meta.Nonce })
	}
	if err == nil {
		err = a.session.renewProof(ctx)
	}
	if err == nil {
		err = a.confirm(ctx)
	}
	if err != nil {
		if !errors.Is(err, errAway) && !errors.Is(err, registry.ErrRival) {
			a.session.lose() // allocations from unconfirmed blocks stay forbidden; try again
		}
		return fmt.Errorf("confirm the blocks: %w", err)
	}
	a.o.Log.Info("joined", "node", s.Node.Name, "epoch", s.Node.Epoch, "blocks", len(s.Node.Blocks))
	return a.session.accept(s.Node)
}
