package registry

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Suspect marks an active or draining node that has no leased key. It returns ErrConflict if
// the key exists or the node has changed. It succeeds if the node is suspect in the same epoch.
func (r Nodes) Suspect(ctx context.Context, n Node) (now Node, err error) {
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.node(ctx, n.Name)
		switch {
		case err != nil:
			return err
		case now.Epoch == n.Epoch && now.State == cluster.NodeSuspect:
			return nil
		case now.Revision != n.Revision, now.State == cluster.NodeFenced:
			return fmt.Errorf("suspect node %s: it has changed and is %s: %w", n.Name, now.State,
				ErrConflict)
		case now.Live:
			return fmt.Errorf("suspect node %s: its leased key exists: %w", n.Name, ErrConflict)
		}
		next := now.Node
		next.Drain = now.State == cluster.NodeDraining
		next.State, next.Since = cluster.NodeSuspect, r.o.Now()
		var c change
		c.same(r.keys.Node(n.Name), now.Revision)
		c.absent(r.keys.Live(n.Name))
		c.put(r.keys.Node(n.Name), next)
		revision, err := r.write(ctx, "suspect node "+n.Name, c)
		if err == nil {
			now = Node{Node: next, Revision: revision}
		}
		return err
	})
	return now, err
}

// Fence records the evidence that a suspect node uses no address any more. n must be the suspect
// node as it was when the evidence was collected: ErrConflict if it has changed since. It
// succeeds if the node is fenced in the same epoch.
func (r Nodes) Fence(
	ctx context.Context, n Node, evidence, author string,
) (now Node, err error) {
	if evidence == "" || author == "" {
		return n, fmt.Errorf("fence node %s: %w: evidence and author are required", n.Name, ErrRefused)
	}
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.node(ctx, n.Name)
		switch {
		case err != nil:
			return err
		case now.Epoch == n.Epoch && now.State == cluster.NodeFenced:
			return nil
		case now.Revision != n.Revision || now.State != cluster.NodeSuspect:
			return fmt.Errorf("fence node %s: it has changed and is %s: %w", n.Name, now.State,
				ErrConflict)
		}
		next := now.Node
		next.State, next.Since = cluster.NodeFenced, r.o.Now()
		next.Evidence, next.Author = evidence, author
		now, err = r.writeNode(ctx, "fence node "+n.Name, now, next)
		return err
	})
	return now, err
}

// Reclaim takes at most 40 blocks of a fenced node; when it has none, it takes its shared
// addresses and tokens. done reports that nothing is left. Blocks and shared addresses cool down.
// ErrConflict: the node is not fenced in this epoch.
func (r Nodes) Reclaim(
	ctx context.Context, n Node, reason string,
) (rest Node, done bool, err error) {
	leases := newCoolLeases(r.requests)
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		rest, err = r.node(ctx, n.Name)
		switch {
		case err != nil:
			return err
		case rest.State != cluster.NodeFenced || rest.Epoch != n.Epoch:
			return fmt.Errorf("reclaim node %s: it is %s in epoch %d: %w", n.Name, rest.State,
				rest.Epoch, ErrConflict)
		case len(rest.Blocks) > 0:
			rest, err = r.reclaimBlocks(ctx, rest, leases, reason)
			return err
		}
		done, err = r.reclaimOther(ctx, rest, leases, reason)
		return err
	})
	leases.drop(ctx, unknown)
	return rest, done, err
}

// reclaimBlocks takes the first blocks of a fenced node's list.
func (r Nodes) reclaimBlocks(
	ctx context.Context, n Node, leases *coolLeases, reason string,
) (Node, error) {
	refs := n.Blocks[:min(len(n.Blocks), maxBlocks)]
	blocks, err := r.blocksOf(ctx, n, refs)
	if err != nil {
		return n, err
	}
	var c change
	for _, b := range blocks {
		lease, err := leases.named(ctx, b.Pool)
		if err != nil {
			return n, err
		}
		r.cool(&c, b, lease, reason)
	}
	next := withoutRefs(n.Node, func(ref cluster.BlockRef) bool { return slices.Contains(refs, ref) })
	c.same(r.keys.Node(n.Name), n.Revision)
	c.put(r.keys.Node(n.Name), next)
	revision, err := leases.write(ctx, "reclaim blocks of node "+n.Name, c)
	if err != nil {
		return n, err
	}
	return Node{Node: next, Revision: revision, Live: n.Live}, nil
}

// reclaimOther takes the shared addresses and tokens of a fenced node without blocks, at most 40.
func (r Nodes) reclaimOther(
	ctx context.Context, n Node, leases *coolLeases, reason string,
) (done bool, err error) {
	left, err := r.belongings(ctx, n.Name)
	if err != nil {
		return false, err
	}
	var tokens change
	for _, b := range left[:min(len(left), maxBlocks)] {
		if b.holder == nil {
			tokens.same(b.key, b.revision)
			tokens.then = append(tokens.then, clientv3.OpDelete(b.key))
			continue
		}
		if err := Shared(r).takeHolder(ctx, n, *b.holder, leases, reason); err != nil {
			return false, err
		}
	}
	if len(tokens.then) > 0 {
		tokens.same(r.keys.Node(n.Name), n.Revision)
		if _, err := r.write(ctx, "reclaim tokens of node "+n.Name, tokens); err != nil {
			return false, err
		}
	}
	return len(left) <= maxBlocks, nil
}
