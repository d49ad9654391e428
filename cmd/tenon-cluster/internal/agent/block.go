package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

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

// adopt adds blocks to the states of their pools.
func (f *files) adopt(ctx context.Context, blocks []registry.Block) error {
	s, err := f.session.joined()
	if err == nil && len(blocks) > 0 {
		// The answer may come from a restored store.
		err = errors.Join(f.trust.mayGrow(), f.trust.keepSeen())
	}
	if err != nil {
		return err
	}
	for name, own := range ownBlocks(s.Node, blocks) {
		if err := f.hold.guardNew(ctx, name, own); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
		err := f.edit(ctx, name, func(p *local.Pool) error {
			for _, b := range own {
				p.State.Blocks = slices.DeleteFunc(p.State.Blocks, func(o local.Block) bool {
					return o.Block == b.Block
				})
				p.State.Blocks = append(p.State.Blocks, b)
			}
			f.fill(&p.State, name)
			p.State.Boot = f.o.BootID
			return nil
		})
		if err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return nil
}

// findRewind looks for blocks of the present epoch that the node has and the store does not show.
// Only a restored snapshot explains them: a node loses its blocks together with its epoch.
func (f *files) findRewind(
	ctx context.Context, n registry.Node, owned map[string][]local.Block,
) error {
	names, err := f.o.Local.Pools()
	if err != nil {
		return err
	}
	for _, name := range names {
		p, err := f.o.Local.Open(ctx, name, true)
		if err != nil {
			return err
		}
		for _, b := range p.State.Blocks {
			if b.Phase == local.Owned && b.Epoch == n.Epoch && !slices.ContainsFunc(owned[name],
				func(o local.Block) bool { return o.Block == b.Block && o.Nonce == b.Nonce }) {
				f.trust.doubt("block %s of pool %s, which this node owns, is missing", b.Block, name)
			}
		}
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

// confirmPool writes the confirmed blocks of a pool.
func (f *files) confirmPool(ctx context.Context, name string, owned []local.Block) error {
	return f.edit(ctx, name, func(p *local.Pool) error {
		use, err := inUse(ctx, p)
		if err != nil {
			return err
		}
		p.State.Blocks = f.merge(name, p.State.Blocks, owned, use)
		f.fill(&p.State, name)
		p.State.Boot = f.o.BootID
		return nil
	})
}

// merge returns the blocks that the node keeps: the owned ones, in the order of the files and then
// of the store, and the lost ones that still have addresses in use.
func (f *files) merge(
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
				f.o.Log.Error("lost a block with addresses in use", "pool", pool, "block", b.Block,
					"used", use[b.Block])
			}
			b.Phase = local.Lost
			keep = append(keep, b)
		default:
			f.o.Log.Info("dropped a block that this node no longer owns", "pool", pool,
				"block", b.Block, "phase", b.Phase)
		}
	}
	for _, o := range owned {
		same := func(b local.Block) bool { return b.Block == o.Block && b.Nonce == o.Nonce }
		if slices.ContainsFunc(keep, same) {
			continue
		}
		// If the node only has to wait, drifted finds the block later.
		if err := f.trust.mayGrow(); err != nil {
			f.o.Log.Warn("the store shows a block that this node does not know; not using it",
				"pool", pool, "block", o.Block, "cause", err)
			continue
		}
		keep = append(keep, o)
	}
	return keep
}

// surrender marks the blocks of all pools as lost, and drops those without addresses in use. It
// returns the attachments that use an address of a lost block, or a shared address.
func (f *files) surrender(ctx context.Context) (affected []string, err error) {
	pools, err := f.o.Local.Pools()
	if err != nil {
		return nil, err
	}
	for _, name := range pools {
		err := f.edit(ctx, name, func(p *local.Pool) error {
			used, err := inUse(ctx, p)
			if err != nil {
				return err
			}
			var lost []local.Block
			for _, b := range p.State.Blocks {
				if used[b.Block] > 0 {
					b.Phase = local.Lost
					lost = append(lost, b)
				}
			}
			p.State.Blocks, p.State.Tokens = lost, nil
			leases, err := p.Leases(ctx)
			for _, l := range leases {
				affected = append(affected, fmt.Sprintf("%s (%s %s)", l.Owner.Container,
					l.Owner.IfName, l.Addr))
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return affected, nil
}

// forbid stops allocations from all blocks: another process may use them. It goes on past errors,
// and logs them.
func (f *files) forbid(ctx context.Context) {
	pools, err := f.o.Local.Pools()
	if err != nil {
		f.o.Log.Error("cannot stop allocations from the blocks of this node", "error", err)
	}
	for _, name := range pools {
		if err := f.edit(ctx, name, func(p *local.Pool) error {
			p.State.Rival = true
			return nil
		}); err != nil {
			f.o.Log.Error("cannot stop allocations from the blocks of this node", "pool", name,
				"error", err)
		}
	}
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
