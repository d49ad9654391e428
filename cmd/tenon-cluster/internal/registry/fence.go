package registry

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Suspect marks an active or draining node that has no leased key. It returns ErrConflict if
// the key exists or the node has changed. It succeeds if the node is suspect in the same epoch.
func (r *Registry) Suspect(ctx context.Context, n Node) (now Node, err error) {
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.Node(ctx, n.Name)
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
func (r *Registry) Fence(
	ctx context.Context, n Node, evidence, author string,
) (now Node, err error) {
	if evidence == "" || author == "" {
		return n, fmt.Errorf("fence node %s: %w: evidence and author are required", n.Name, ErrRefused)
	}
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.Node(ctx, n.Name)
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
// addresses and tokens. done reports that nothing is left. Blocks and shared addresses cool down;
// a borrowed address cools down in the block of its owner, see Regain. ErrConflict: the node is
// not fenced in this epoch.
func (r *Registry) Reclaim(
	ctx context.Context, n Node, reason string,
) (rest Node, done bool, err error) {
	leases := newCoolLeases(r)
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		rest, err = r.Node(ctx, n.Name)
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
func (r *Registry) reclaimBlocks(
	ctx context.Context, n Node, leases *coolLeases, reason string,
) (Node, error) {
	refs := n.Blocks[:min(len(n.Blocks), maxBlocks)]
	blocks, err := r.blocksOf(ctx, n, refs)
	if err != nil {
		return n, err
	}
	var c change
	gone := map[cluster.BlockRef]bool{}
	written := map[string]bool{} // two borrowed addresses of one block need two transactions
	for i, b := range blocks {
		key := r.keys.Block(b.Pool, b.Block.Block)
		if written[key] {
			continue
		}
		if err := r.takeBlock(ctx, &c, b, refs[i], leases, reason); err != nil {
			return n, err
		}
		written[key], gone[refs[i]] = true, true
	}
	next := withoutRefs(n.Node, func(ref cluster.BlockRef) bool { return gone[ref] })
	c.same(r.keys.Node(n.Name), n.Revision)
	c.put(r.keys.Node(n.Name), next)
	revision, err := leases.write(ctx, "reclaim blocks of node "+n.Name, c)
	if err != nil {
		return n, err
	}
	return Node{Node: next, Revision: revision, Live: n.Live}, nil
}

// takeBlock adds to a transaction that an owned block cools down, or a borrowed address.
func (r *Registry) takeBlock(
	ctx context.Context, c *change, b Block, ref cluster.BlockRef, leases *coolLeases, reason string,
) error {
	lease, err := leases.named(ctx, b.Pool)
	if err != nil {
		return err
	}
	switch {
	case Borrowed(ref):
	case borrowers(b):
		// Other nodes use addresses of the block: it stays until they have repaid them.
		r.share(c, b, lease, reason)
		return nil
	default:
		r.cool(c, b, lease, reason)
		return nil
	}
	a := ref.Block.Addr()
	next := withGrant(b.Block, a, cluster.Grant{Nonce: ref.Nonce}) // Regain ends it
	if b.State == cluster.BlockShared {                            // its owner was fenced, too
		if next = withoutGrant(b.Block, a); len(next.Grants) == 0 {
			r.cool(c, b, lease, reason)
			return nil
		}
	}
	key := r.keys.Block(b.Pool, b.Block.Block)
	c.same(key, b.Revision)
	c.put(key, next)
	c.then = append(c.then, clientv3.OpPut(r.keys.Cool(b.Pool, ref.Block), reason,
		clientv3.WithLease(lease)))
	return nil
}

// borrowers reports whether other nodes use addresses of a block.
func borrowers(b Block) bool {
	for _, g := range b.Grants {
		if g.Borrower != "" {
			return true
		}
	}
	return false
}

// share adds to a transaction that an owned block with lent addresses becomes shared. Its other
// addresses cool down.
func (r *Registry) share(c *change, b Block, lease clientv3.LeaseID, reason string) {
	next := b.Block
	next.State, next.Owner, next.Epoch, next.Since = cluster.BlockShared, "", 0, r.o.Now()
	next.Grants = maps.Clone(b.Grants)
	maps.DeleteFunc(next.Grants, func(_ netip.Addr, g cluster.Grant) bool { return g.Borrower == "" })
	key := r.keys.Block(b.Pool, b.Block.Block)
	c.same(key, b.Revision)
	c.put(key, next)
	c.then = append(c.then, clientv3.OpPut(r.keys.Cool(b.Pool, b.Block.Block), reason,
		clientv3.WithLease(lease)))
}

// reclaimOther takes the shared addresses and tokens of a fenced node without blocks, at most 40.
func (r *Registry) reclaimOther(
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
		if err := r.takeHolder(ctx, n, *b.holder, leases, reason); err != nil {
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
