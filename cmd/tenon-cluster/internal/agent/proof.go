package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// prover returns the registry of the store, with the proofs of this process. A restored store has
// an older proof, and none is compared until a node has said so. From then on two processes with
// this identity find each other again, long before an operator confirms the store.
func (s *session) prover() *registry.Registry {
	n := s.identity.node()
	p := registry.Proofs{Turn: n.Turn, Known: n.Proof, Next: n.Next, InDoubt: s.trust.distrusts(),
		Revision: s.trust.newestRevision()}
	if s.trust.unsaid() {
		p = registry.Proofs{}
	}
	return s.store().Proving(p)
}

// proved notes that the store has the next proof.
func (s *session) proved() {
	if s.trust.unsaid() {
		return
	}
	s.mu.Lock()
	s.provedAt = time.Now()
	s.mu.Unlock()
	s.identity.advance()
}

// renewProof replaces the node's proof in the store, and makes durable what the agent has seen. The
// file has the new proof first: a process that dies in between, and starts again, knows both.
func (s *session) renewProof(ctx context.Context) error {
	now, err := s.joined()
	if err != nil || s.trust.unsaid() {
		return errors.Join(err, s.trust.keepSeen())
	}
	err = s.identity.remember(func(n *local.Node) {
		if n.Next == "" { // otherwise an earlier attempt may still commit
			n.Next = s.o.Nonce()
		}
		s.trust.mark(n)
	})
	if err == nil {
		err = s.prover().Nodes.Prove(ctx, now)
	}
	if err != nil {
		return s.lapse(fmt.Errorf("prove the identity: %w", err))
	}
	s.proved()
	return nil
}

// keepSeenSometimes is keepSeen for a node at rest, and replaces the node's proof: once in a lease
// time.
func (s *session) keepSeenSometimes(ctx context.Context) error {
	s.mu.Lock()
	due := time.Since(s.provedAt) >= s.o.TTL
	s.mu.Unlock()
	switch {
	case due:
		return s.renewProof(ctx)
	case s.trust.newestRevision() != s.identity.node().Revision:
		return s.trust.keepSeen()
	}
	return nil
}
