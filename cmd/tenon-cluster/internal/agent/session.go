package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/cluster/routes"
)

// errAway means that the node has no session: the store has not answered since the agent started or
// since the lease ended.
var errAway = errors.New("the agent has no contact with the store")

// live joins the node, renews its lease every third of its duration, and joins again after the
// lease was lost. It returns an error only if the node can never join.
func (a *Agent) live(ctx context.Context) error {
	backoff := minBackoff
	first := sync.OnceFunc(func() { close(a.tried) })
	defer first()
	defer a.leave(ctx)
	announced := ""
	for ctx.Err() == nil {
		err := a.checkPlace()
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
		a.report("store", err)
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
	a.mu.Lock()
	text := "no contact with the store"
	switch {
	case a.fenced:
		text = "fenced"
	case a.session != nil:
		text = fmt.Sprintf("%s, epoch %d", a.session.Node.State, a.session.Node.Epoch)
	}
	a.mu.Unlock()
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
	s, err := a.joined()
	if err != nil {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	end, err := a.exclusive(last)
	if err == nil {
		err = a.renewProof(last)
		end()
	}
	if err != nil {
		a.log.Warn("cannot replace the proof of this node; a copy of its files that was made within "+
			"the last lease time could take its place", "error", err)
	}
	a.store().Nodes.Leave(context.WithoutCancel(ctx), s)
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
	at := a.asking()
	err = a.renew(ctx)
	a.report("trust", a.distrust())
	if err == nil {
		a.touch(at)
		err = a.upkeep(ctx)
	}
	a.report("guard", a.guard(ctx, nil)) // also without contact: limits pass, and blocks are lost
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
		spoken, failed := a.speak(ctx)
		if failed != nil || !spoken {
			return errors.Join(err, failed)
		}
	}
}

// prolong renews the lease. After the loss of the lease, or when another node suspects this one, it
// joins again; after fencing it gives the blocks up.
func (a *Agent) prolong(ctx context.Context) error {
	for {
		s, err := a.joined()
		if err != nil {
			if err := a.join(ctx); err != nil {
				return err
			}
			if _, err := a.joined(); err == nil {
				return nil
			}
			continue // the operator has confirmed a restored store
		}
		err = a.prover().Nodes.Renew(ctx, s)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, registry.ErrConflict):
			if err := a.refresh(ctx); err != nil {
				return err
			}
		case errors.Is(err, registry.ErrIdentity):
			return err
		case ends(err), errors.Is(err, registry.ErrNotFound):
			a.log.Warn("the session has ended; joining again", "cause", err)
			a.lose()
		default:
			return fmt.Errorf("renew: %w", err)
		}
	}
}

// refresh reads the node's document after another program changed it. A document of another boot or
// identity means that a second host, a copy of this one, has joined under the name.
func (a *Agent) refresh(ctx context.Context) error {
	n, err := a.store().Nodes.Read(ctx, a.o.Node.Name)
	if err != nil {
		return a.lapse(err)
	}
	s, err := a.joined()
	if err != nil {
		return err
	}
	switch {
	case n.Identity != s.Node.Identity || n.Boot != s.Node.Boot:
		cause := registry.ErrIdentity
		if n.Identity == s.Node.Identity {
			cause = registry.ErrRival
		}
		return fmt.Errorf("%w (boot %s)", cause, n.Boot)
	case n.State == cluster.NodeSuspect || n.State == cluster.NodeFenced || n.Epoch != s.Node.Epoch:
		a.lose()
		return nil
	}
	a.setNode(n)
	return a.accept(n)
}

// lapse ends the session if the error of a transaction shows that the store has given the node up.
// It returns the error.
func (a *Agent) lapse(err error) error {
	if ends(err) {
		a.lose()
		poke(a.wake)
	}
	return err
}

// ends reports whether an error means that the session has ended: the lease is gone, the node is
// suspect or fenced, or the store was restored or replaced.
func ends(err error) bool {
	return slices.ContainsFunc([]error{registry.ErrLease, registry.ErrSuspect, registry.ErrFenced,
		registry.ErrForeign}, func(end error) bool { return errors.Is(err, end) })
}

// joined returns the session, or an error that wraps errAway or [registry.ErrFenced].
func (a *Agent) joined() (registry.Session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.fenced:
		return registry.Session{}, registry.ErrFenced
	case a.session == nil:
		return registry.Session{}, errAway
	}
	return *a.session, nil
}

// lose ends the session.
func (a *Agent) lose() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = nil
}

// setNode records the present document of the node.
func (a *Agent) setNode(n registry.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == nil {
		return
	}
	if n.Revision < a.newest && !a.distrusts() {
		a.seen.Doubt("the revision of this node's document was %d and is %d", a.newest, n.Revision)
	}
	a.session = &registry.Session{Node: n, Lease: a.session.Lease}
	a.newest = max(a.newest, n.Revision)
}

// touch records the time of an answer of the store.
func (a *Agent) touch(at stamp) {
	a.meet(at)
	a.report("contact", a.o.Local.SetContact())
}

// document returns what this node publishes of itself.
func (a *Agent) document() cluster.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.o.Node
	n.Schema, n.Identity, n.Boot = cluster.Schema, a.identity.Identity, a.o.BootID
	n.Epoch, n.Store = a.identity.Epoch, a.identity.Store
	n.MTU = cmp.Or(n.MTU, a.underlay)
	if a.o.Router != nil {
		n.MAC = routes.VTEPMAC(n.Identity).String()
	}
	n.Labels, n.Addresses = maps.Clone(n.Labels), slices.Clone(n.Addresses)
	return n
}

// join makes the node known, or known again, and confirms its blocks.
func (a *Agent) join(ctx context.Context) error {
	at := a.asking()
	meta, doubt, err := a.o.Registry.Meta.Trust(ctx)
	if err != nil {
		return fmt.Errorf("read the identity of the store: %w", err)
	}
	a.bind(meta)
	n, err := a.excludeRival(ctx)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if err := a.compareStore(meta, doubt, n); err != nil {
		return err
	}
	a.mu.Lock()
	first := a.identity.Store == "" && !a.distrusts()
	a.mu.Unlock()
	doc := a.document()
	if first {
		doc.Store = meta.Nonce
	}
	s, err := a.prover().Nodes.Join(ctx, doc, a.o.TTL)
	if errors.Is(err, registry.ErrFenced) {
		s, err = a.comeBack(ctx)
	}
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	a.meet(at)
	a.proved()
	a.mu.Lock()
	a.session, a.fenced = &s, false
	a.rival = rival{}
	a.commons.reconciled = time.Time{}
	a.mu.Unlock()
	if first {
		err = a.remember(func(n *local.Node) { n.Store = meta.Nonce })
	}
	if err == nil {
		err = a.renewProof(ctx)
	}
	if err == nil {
		err = a.confirm(ctx)
	}
	if err != nil {
		if !errors.Is(err, errAway) && !errors.Is(err, registry.ErrRival) {
			a.lose() // allocations from unconfirmed blocks stay forbidden; try again
		}
		return fmt.Errorf("confirm the blocks: %w", err)
	}
	a.log.Info("joined", "node", s.Node.Name, "epoch", s.Node.Epoch, "blocks", len(s.Node.Blocks))
	return a.accept(s.Node)
}

// bind makes all further transactions depend on the nonce of the store.
func (a *Agent) bind(meta cluster.Meta) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bound, a.nonce = a.o.Registry.Bound(meta.Nonce), meta.Nonce
}
