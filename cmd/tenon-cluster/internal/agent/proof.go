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
func (a *Agent) prover() *registry.Registry {
	a.mu.Lock()
	p := registry.Proofs{Turn: a.identity.Turn, Known: a.identity.Proof, Next: a.identity.Next,
		InDoubt: a.distrusts(), Revision: a.newest}
	if a.unsaid() {
		p = registry.Proofs{}
	}
	a.mu.Unlock()
	return a.store().Proving(p)
}

// proved notes that the store has the next proof. It becomes durable together with its successor.
func (a *Agent) proved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unsaid() {
		return
	}
	a.provedAt = time.Now()
	if a.identity.Next != "" {
		a.identity.Proof, a.identity.Next = a.identity.Next, ""
		a.identity.Turn++
	}
}

// renewProof replaces the node's proof in the store, and makes durable what the agent has seen. The
// file has the new proof first: a process that dies in between, and starts again, knows both.
func (a *Agent) renewProof(ctx context.Context) error {
	s, err := a.joined()
	newest := a.seen.Newest()
	a.mu.Lock()
	revision, unsaid := a.newest, a.unsaid()
	a.mu.Unlock()
	if err != nil || unsaid {
		return errors.Join(err, a.keepSeen())
	}
	err = a.remember(func(n *local.Node) {
		if n.Next == "" { // otherwise an earlier attempt may still commit
			n.Next = a.o.Nonce()
		}
		n.Seen, n.Revision = newest, revision
	})
	if err == nil {
		err = a.prover().Nodes.Prove(ctx, s)
	}
	if err != nil {
		return a.lapse(fmt.Errorf("prove the identity: %w", err))
	}
	a.proved()
	return nil
}

// expel handles the proof that another process uses the identity of this node: the plugin allocates
// nothing from the blocks, because the other one may do so. If both have had a session, the other
// finds out, too: either may be the copy. It returns the error for the end of the agent.
func (a *Agent) expel(ctx context.Context, cause error) error {
	err := a.foreign(cause)
	if s, joinErr := a.joined(); joinErr == nil && errors.Is(cause, registry.ErrRival) {
		contest := a.store().Nodes.Contest(ctx, s.Node.Name, s.Node.Identity, cause.Error())
		if contest != nil {
			a.log.Error("cannot stop the other process with this identity", "error", contest)
		}
	}
	a.lose()
	pools, listErr := a.o.Local.Pools()
	if listErr != nil {
		a.log.Error("cannot stop allocations from the blocks of this node", "error", listErr)
	}
	for _, name := range pools {
		if editErr := a.edit(ctx, name, func(p *local.Pool) error {
			p.State.Rival = true
			return nil
		}); editErr != nil {
			a.log.Error("cannot stop allocations from the blocks of this node", "pool", name,
				"error", editErr)
		}
	}
	return err
}
