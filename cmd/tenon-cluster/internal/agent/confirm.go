package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// confirm compares the blocks of this node in the store with those in its files, with one
// linearizable read, and then allows allocations in this boot. The store decides: blocks that it
// gives this node are adopted, and blocks that it does not are dropped, or lost if addresses of
// them are in use.
//
// After a restored snapshot, or with another store, both must agree: the store may show a block
// that this node gave back since, and that another node has claimed.
func (a *Agent) confirm(ctx context.Context) error {
	if err := a.resolve(ctx); err != nil {
		return err
	}
	n, blocks, err := a.session.store().Blocks.Owned(ctx, a.o.Node.Name)
	if err != nil {
		return a.session.lapse(err)
	}
	a.session.setNode(n)
	pools, err := a.session.store().Pools.List(ctx)
	if err != nil {
		return err
	}
	known, err := a.o.Local.Pools()
	if err != nil {
		return err
	}
	a.view.setPools(pools)
	owned := ownBlocks(n, blocks)
	if err := a.findRewind(ctx, n, owned); err != nil {
		return err
	}
	if err := errors.Join(a.trust.distrust(), a.trust.keepSeen()); err != nil {
		return err
	}
	for _, name := range known {
		owned[name] = append(owned[name], []local.Block{}...)
	}
	for _, p := range pools {
		if a.view.uses(p) {
			owned[p.Name] = append(owned[p.Name], []local.Block{}...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if err := a.confirmPool(ctx, name, owned[name]); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return a.identity.remember(func(l *local.Node) { l.Epoch = n.Epoch })
}

// findRewind looks for blocks of the present epoch that the node has and the store does not show.
// Only a restored snapshot explains them: a node loses its blocks together with its epoch.
func (a *Agent) findRewind(
	ctx context.Context, n registry.Node, owned map[string][]local.Block,
) error {
	names, err := a.o.Local.Pools()
	if err != nil {
		return err
	}
	for _, name := range names {
		p, err := a.o.Local.Open(ctx, name, true)
		if err != nil {
			return err
		}
		for _, b := range p.State.Blocks {
			if b.Phase == local.Owned && b.Epoch == n.Epoch && !slices.ContainsFunc(owned[name],
				func(o local.Block) bool { return o.Block == b.Block && o.Nonce == b.Nonce }) {
				a.trust.doubt("block %s of pool %s, which this node owns, is missing", b.Block, name)
			}
		}
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

// ownBlocks returns the blocks, by pool, that belong to the node in its present epoch.
func ownBlocks(n registry.Node, blocks []registry.Block) map[string][]local.Block {
	own := map[string][]local.Block{}
	for _, b := range blocks {
		if b.State == cluster.BlockOwned && b.Owner == n.Name && b.Epoch == n.Epoch {
			own[b.Pool] = append(own[b.Pool], ownBlock(b))
		}
	}
	return own
}

// ownBlock returns a block of this node.
func ownBlock(b registry.Block) local.Block {
	return local.Block{Block: b.Block.Block, Epoch: b.Epoch, Generation: b.Generation,
		Nonce: b.Nonce, Phase: local.Owned, Since: b.Since}
}

// confirmPool writes the confirmed blocks of a pool.
func (a *Agent) confirmPool(ctx context.Context, name string, owned []local.Block) error {
	return a.edit(ctx, name, func(p *local.Pool) error {
		use, err := inUse(ctx, p)
		if err != nil {
			return err
		}
		p.State.Blocks = a.merge(name, p.State.Blocks, owned, use)
		a.fill(&p.State, name)
		p.State.Boot = a.o.BootID
		return nil
	})
}

// merge returns the blocks that the node keeps: the owned ones, in the order of the files and then
// of the store, and the lost ones that still have addresses in use.
func (a *Agent) merge(
	pool string, have, owned []local.Block, use map[netip.Prefix]uint64,
) (keep []local.Block) {
	for _, b := range have {
		i := slices.IndexFunc(owned, func(o local.Block) bool {
			return o.Block == b.Block && o.Nonce == b.Nonce
		})
		switch {
		case i >= 0:
			phase := owned[i].Phase
			if b.Phase == local.Returning { // the return was interrupted; it is repeated
				phase = b.Phase
			}
			b = owned[i]
			b.Phase = phase
			keep = append(keep, b)
		case b.Phase != local.Returning && use[b.Block] > 0:
			if b.Phase != local.Lost {
				a.o.Log.Error("lost a block with addresses in use", "pool", pool, "block", b.Block,
					"used", use[b.Block])
			}
			b.Phase = local.Lost
			keep = append(keep, b)
		default:
			a.o.Log.Info("dropped a block that this node no longer owns", "pool", pool,
				"block", b.Block, "phase", b.Phase)
		}
	}
	for _, o := range owned {
		same := func(b local.Block) bool { return b.Block == o.Block && b.Nonce == o.Nonce }
		if slices.ContainsFunc(keep, same) {
			continue
		}
		if err := a.trust.mayGrow(); err != nil { // if it only has to wait, drifted finds the block later
			a.o.Log.Warn("the store shows a block that this node does not know; not using it",
				"pool", pool, "block", o.Block, "cause", err)
			continue
		}
		keep = append(keep, o)
	}
	return keep
}

// inUse returns the number of reserved addresses in each block of a pool.
func inUse(ctx context.Context, p *local.Pool) (map[netip.Prefix]uint64, error) {
	blocks, _, err := p.Usage(ctx)
	if err != nil {
		return nil, err
	}
	used := map[netip.Prefix]uint64{}
	for _, u := range blocks {
		used[u.Block.Block] = u.Used
	}
	return used, nil
}
