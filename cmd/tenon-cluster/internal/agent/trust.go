package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// Errors of a node that may not grow.
var (
	errRestored = errors.New("the store was restored from a snapshot and not confirmed since")
	// errSettling means that other nodes, which may know more about the store, have not had the
	// time to look at it.
	errSettling = errors.New("the agent waits for doubts of other nodes about the store")
)

// trust decides whether the node may rely on the store: it keeps the evidence that the store was
// restored, and the time that other nodes have to doubt it.
type trust struct {
	o        *Options
	identity *identity
	problems *problems
	wake     chan<- struct{} // ends the wait for the next renewal
	seen     *registry.Seen  // the evidence about the store, in memory

	mu       sync.Mutex // guards the following fields
	nonce    string     // of the store in the last attempt to join
	newest   int64      // the newest revision of the node's document that the agent has seen
	settleAt time.Time  // when other nodes have had the time to doubt the store
	breaks   uint64     // the last answer of Options.Breaks
	away     bool       // the store has not answered since the connections broke
	contact  stamp      // of the last answer of the store
}

// doubt records evidence that the store was restored.
func (t *trust) doubt(format string, args ...any) { t.seen.Doubt(format, args...) }

// begin takes over what earlier processes of this node have seen of the store.
func (t *trust) begin() {
	n := t.identity.node()
	t.mu.Lock()
	t.newest = n.Revision
	t.mu.Unlock()
	t.seen.Reset(n.Seen)
	if n.Restored != "" {
		t.seen.Doubt("%s", n.Restored)
	}
}

// mayGrow returns nil if the node may get what it did not have before: it trusts the store, and all
// nodes with a connection have had the time to say that they do not.
func (t *trust) mayGrow() error {
	if t.distrusts() {
		return errRestored
	}
	if wait := t.settling(); wait > 0 {
		return fmt.Errorf("%w, for another %s", errSettling, wait.Round(time.Second))
	}
	return nil
}

// settling returns the remaining time that other nodes have. It begins with the first answer of the
// store after a silence, so before that answer all of it remains.
func (t *trust) settling() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken() {
		poke(t.wake) // the next renewal finds out whether the store answers
	}
	silent := t.contact != stamp{} && t.o.now().boot-t.contact.boot > t.o.TTL
	if t.away || silent {
		return t.o.TTL
	}
	return time.Until(t.settleAt)
}

// broken notes whether all connections to the store have broken since the last call: it may have
// been restored since its last answer. The caller holds t.mu.
func (t *trust) broken() bool {
	if t.o.Breaks == nil || t.o.Breaks() == t.breaks {
		return false
	}
	t.breaks, t.away = t.o.Breaks(), true
	return true
}

// asking returns the time of a request of which meet gets the answer. Hold counts from it.
func (t *trust) asking() stamp {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken()
	return t.o.now()
}

// meet evaluates an answer of the store to a request that began at an instant. It gives the other
// nodes time if this is the first answer since the agent started or since the connections broke, or
// if the store was silent for so long that it may have been restored meanwhile. Agents that run
// look at the store every third of a lease time. A new node holds no addresses yet, and gives them
// half a lease time, so that its first containers need not wait long.
func (t *trust) meet(at stamp) {
	known := t.identity.node().Store
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.contact == stamp{}
	switch {
	case t.broken(): // perhaps after this answer
	case first && known == "":
		t.settleAt, t.away = time.Now().Add(t.o.TTL/2), false
	case first, t.away, at.boot-t.contact.boot > t.o.TTL:
		t.settleAt, t.away = time.Now().Add(t.o.TTL), false
	}
	t.contact = at
}

// lastContact returns the time of the last answer of the store.
func (t *trust) lastContact() stamp {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.contact
}

// settled waits until the node may grow as far as other nodes are concerned, or returns at once if
// ctx ends before: the request then reports the cause.
func (t *trust) settled(ctx context.Context) error {
	for {
		wait := t.settling()
		end, limited := ctx.Deadline()
		if wait <= 0 || limited && time.Until(end) <= wait {
			return nil
		}
		if !sleep(ctx, min(wait, t.o.TTL/3)) { // it may begin meanwhile
			return ctx.Err()
		}
	}
}

// distrusts reports whether there is evidence that the store was restored.
func (t *trust) distrusts() bool { return t.seen.Restored() != "" }

// distrust makes evidence durable, and shows it. Nothing but an operator's confirmation removes it:
// see accept.
func (t *trust) distrust() error {
	cause := t.seen.Restored()
	if cause == "" {
		return nil
	}
	t.problems.note("restored", "the store was restored or replaced ("+cause+"): this node claims "+
		"no blocks until an operator has confirmed it: run `tenon-cluster confirm`")
	return t.identity.remember(func(n *local.Node) { n.Restored = cause })
}

// bind notes the nonce of the store that the node is about to join.
func (t *trust) bind(nonce string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nonce = nonce
}

// present returns the nonce of the store in the last attempt to join.
func (t *trust) present() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nonce
}

// unsaid reports whether this node distrusts the store and no node has said so: the store has the
// nonce that this node has trusted, or, if it was restored to a time before that, an earlier one.
func (t *trust) unsaid() bool {
	present := t.present()
	return t.distrusts() && present != "" &&
		!cluster.LaterNonce(present, t.identity.node().Store)
}

// speak gives the store another nonce if this node distrusts it and no node has said so. All other
// nodes find out at their next request. spoken means that this one must join again.
func (t *trust) speak(ctx context.Context) (spoken bool, err error) {
	if !t.unsaid() {
		return false, nil
	}
	_, _, err = t.o.Registry.Meta.Distrust(ctx, t.present(), t.identity.node().Store,
		cluster.Doubt{Cause: t.seen.Restored(), Author: "node " + t.o.Node.Name})
	if err != nil {
		return false, fmt.Errorf("report that the store was restored: %w", err)
	}
	return true, nil
}

// compareStore looks for the doubts of other nodes or an operator, and for evidence in the node's
// document: the next join would overwrite it.
func (t *trust) compareStore(meta cluster.Meta, doubt *cluster.Doubt, n registry.Node) error {
	own, newest := t.identity.node(), t.newestRevision()
	known, same := own.Store, own.Identity == n.Identity
	switch {
	case known != meta.Nonce && doubt != nil:
		t.seen.Doubt("%s: %s", doubt.Author, doubt.Cause)
	case known != meta.Nonce && known != "":
		t.seen.Doubt("the store has another nonce")
	case same && n.Revision < newest:
		t.seen.Doubt("the revision of this node's document was %d and is %d", newest, n.Revision)
	}
	return t.distrust()
}

// compareDocument looks for evidence in the node's present document.
func (t *trust) compareDocument(n registry.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.Revision < t.newest && !t.distrusts() {
		t.seen.Doubt("the revision of this node's document was %d and is %d", t.newest, n.Revision)
	}
	t.newest = max(t.newest, n.Revision)
}

// newestRevision returns the newest revision of the node's document that the agent has seen.
func (t *trust) newestRevision() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest
}

// accept notices that an operator has confirmed the node's blocks in the store, which then is the
// one that the node trusts. The nonce of a store to which the node has said that it was restored is
// later than the trusted one: a document with an earlier one comes from the snapshot. confirmed
// means that the node must join again.
func (t *trust) accept(n registry.Node) (confirmed bool, err error) {
	trusted := t.identity.node().Store
	if !t.distrusts() || n.Store != t.present() || !cluster.LaterNonce(n.Store, trusted) {
		return false, nil
	}
	latest := t.seen.Latest()
	err = t.identity.remember(func(l *local.Node) {
		l.Store, l.Revision, l.Seen, l.Restored = n.Store, n.Revision, latest, ""
	})
	if err != nil {
		return false, err
	}
	t.seen.Reset(latest)
	t.mu.Lock()
	t.newest = n.Revision
	t.mu.Unlock()
	t.problems.end("restored")
	return true, nil
}

// keepSeen makes durable what the agent has seen of the store, before the node acts on it.
func (t *trust) keepSeen() error {
	return t.identity.remember(t.mark)
}

// mark notes in the node's own document what the agent has seen of the store.
func (t *trust) mark(n *local.Node) { n.Seen, n.Revision = t.seen.Newest(), t.newestRevision() }
