package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// errSettling means that other nodes, which may know more about the store, have not had the time
// to look at it.
var errSettling = errors.New("the agent waits for doubts of other nodes about the store")

// mayGrow returns nil if the node may get what it did not have before: it trusts the store, and all
// nodes with a connection have had the time to say that they do not.
func (a *Agent) mayGrow() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.distrusts() {
		return errRestored
	}
	if wait := a.settling(); wait > 0 {
		return fmt.Errorf("%w, for another %s", errSettling, wait.Round(time.Second))
	}
	return nil
}

// settling returns the remaining time that other nodes have. It begins with the first answer of the
// store after a silence, so before that answer all of it remains. The caller holds a.mu.
func (a *Agent) settling() time.Duration {
	if a.broken() {
		poke(a.wake) // the next renewal finds out whether the store answers
	}
	silent := a.contact != stamp{} && a.now().boot-a.contact.boot > a.o.TTL
	if a.away || silent {
		return a.o.TTL
	}
	return time.Until(a.settleAt)
}

// broken notes whether all connections to the store have broken since the last call: it may have
// been restored since its last answer. The caller holds a.mu.
func (a *Agent) broken() bool {
	if a.o.Breaks == nil || a.o.Breaks() == a.breaks {
		return false
	}
	a.breaks, a.away = a.o.Breaks(), true
	return true
}

// asking returns the time of a request of which meet gets the answer. Hold counts from it.
func (a *Agent) asking() stamp {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken()
	return a.now()
}

// meet evaluates an answer of the store to a request that began at an instant. It gives the other
// nodes time if this is the first answer since the agent started or since the connections broke, or
// if the store was silent for so long that it may have been restored meanwhile. Agents that run
// look at the store every third of a lease time. A new node holds no addresses yet, and gives them
// half a lease time, so that its first containers need not wait long.
func (a *Agent) meet(at stamp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.contact == stamp{}
	switch {
	case a.broken(): // perhaps after this answer
	case first && a.identity.Store == "":
		a.settleAt, a.away = time.Now().Add(a.o.TTL/2), false
	case first, a.away, at.boot-a.contact.boot > a.o.TTL:
		a.settleAt, a.away = time.Now().Add(a.o.TTL), false
	}
	a.contact = at
}

// settled waits until the node may grow as far as other nodes are concerned, or returns at once if
// ctx ends before: the request then reports the cause.
func (a *Agent) settled(ctx context.Context) error {
	for {
		a.mu.Lock()
		wait := a.settling()
		a.mu.Unlock()
		end, limited := ctx.Deadline()
		if wait <= 0 || limited && time.Until(end) <= wait {
			return nil
		}
		if !sleep(ctx, min(wait, a.o.TTL/3)) { // it may begin meanwhile
			return ctx.Err()
		}
	}
}

// isRestored reports whether the node distrusts the store.
func (a *Agent) isRestored() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.distrusts()
}

// distrusts is isRestored. The caller holds a.mu.
func (a *Agent) distrusts() bool { return a.seen.Restored() != "" }

// distrust makes evidence durable, and shows it. Nothing but an operator's confirmation removes it:
// see accept.
func (a *Agent) distrust() error {
	cause := a.seen.Restored()
	if cause == "" {
		return nil
	}
	a.mu.Lock()
	a.problem("restored", "the store was restored or replaced ("+cause+"): this node claims no "+
		"blocks until an operator has confirmed it: run `tenon-cluster confirm`")
	a.mu.Unlock()
	return a.remember(func(n *local.Node) { n.Restored = cause })
}

// unsaid reports whether this node distrusts the store and no node has said so: the store has the
// nonce that this node has trusted, or, if it was restored to a time before that, an earlier one. The
// caller holds a.mu.
func (a *Agent) unsaid() bool {
	return a.distrusts() && a.nonce != "" && !cluster.LaterNonce(a.nonce, a.identity.Store)
}

// speak gives the store another nonce if this node distrusts it and no node has said so. All other
// nodes find out at their next request. spoken means that this one must join again.
func (a *Agent) speak(ctx context.Context) (spoken bool, err error) {
	a.mu.Lock()
	trusted, present, unsaid := a.identity.Store, a.nonce, a.unsaid()
	a.mu.Unlock()
	if !unsaid {
		return false, nil
	}
	cause := a.seen.Restored()
	_, _, err = a.o.Registry.Meta.Distrust(ctx, present, trusted,
		cluster.Doubt{Cause: cause, Author: "node " + a.o.Node.Name})
	if err != nil {
		return false, fmt.Errorf("report that the store was restored: %w", err)
	}
	a.lose()
	return true, nil
}

// compareStore looks for the doubts of other nodes or an operator, and for evidence in the node's
// document: the next join would overwrite it.
func (a *Agent) compareStore(
	meta cluster.Meta, doubt *cluster.Doubt, n registry.Node,
) error {
	a.mu.Lock()
	known, newest, same := a.identity.Store, a.newest, a.identity.Identity == n.Identity
	a.mu.Unlock()
	switch {
	case known != meta.Nonce && doubt != nil:
		a.seen.Doubt("%s: %s", doubt.Author, doubt.Cause)
	case known != meta.Nonce && known != "":
		a.seen.Doubt("the store has another nonce")
	case same && n.Revision < newest:
		a.seen.Doubt("the revision of this node's document was %d and is %d", newest, n.Revision)
	}
	return a.distrust()
}

// accept notices that an operator has confirmed the node's blocks in the store, which then is the
// one that the node trusts. The nonce of a store to which the node has said that it was restored is
// later than the trusted one: a document with an earlier one comes from the snapshot.
func (a *Agent) accept(n registry.Node) error {
	a.mu.Lock()
	confirmed := a.distrusts() && n.Store == a.nonce && cluster.LaterNonce(n.Store, a.identity.Store)
	a.mu.Unlock()
	if !confirmed {
		return nil
	}
	latest := a.seen.Latest()
	err := a.remember(func(l *local.Node) {
		l.Store, l.Revision, l.Seen, l.Restored = n.Store, n.Revision, latest, ""
	})
	if err != nil {
		return err
	}
	a.seen.Reset(latest)
	a.mu.Lock()
	a.newest = n.Revision
	delete(a.problems, "restored")
	a.mu.Unlock()
	a.lose() // join again, with the store that the operator has confirmed
	return nil
}

// keepSeen makes durable what the agent has seen of the store, before the node acts on it.
func (a *Agent) keepSeen() error {
	newest := a.seen.Newest()
	a.mu.Lock()
	revision := a.newest
	a.mu.Unlock()
	return a.remember(func(n *local.Node) { n.Seen, n.Revision = newest, revision })
}

// keepSeenSometimes is keepSeen for a node at rest, and replaces the node's proof: once in a lease
// time.
func (a *Agent) keepSeenSometimes(ctx context.Context) error {
	a.mu.Lock()
	due, changed := time.Since(a.provedAt) >= a.o.TTL, a.newest != a.identity.Revision
	a.mu.Unlock()
	switch {
	case due:
		return a.renewProof(ctx)
	case changed:
		return a.keepSeen()
	}
	return nil
}
