package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// freePercent is the part of the other blocks that must be free before a block is given back.
const freePercent = 25

// unnecessary returns the blocks that have been empty long enough, while the others kept enough
// free addresses. In a scarce pool, and on a draining node, a node keeps no empty block.
func (c *claims) unnecessary(use []local.Use, scarce bool) (old []local.Block) {
	limit := idleTime
	if scarce {
		limit = scarceIdleTime
	}
	s, err := c.session.joined()
	draining := err == nil && s.Node.State == cluster.NodeDraining
	if draining {
		limit = 0
	}
	capacity, used := total(use)
	now := time.Now()
	for _, u := range slices.Backward(use) {
		if u.Phase != local.Owned {
			continue
		}
		rest := capacity - u.Capacity
		left := rest - min(used, rest) // excluded addresses may be in use
		enough := rest > 0 && left*100 >= rest*freePercent
		id := blockID{u.Block.Block, u.Nonce}
		if u.Used > 0 || !enough && !scarce && !draining {
			delete(c.idle, id)
			continue
		}
		if _, ok := c.idle[id]; !ok {
			c.idle[id] = now
		}
		if now.Sub(c.idle[id]) >= limit {
			old = append(old, u.Block)
			capacity = rest
		}
	}
	return old
}

// retire marks a block as returning, durably, unless an address of it is in use by now.
func (c *claims) retire(ctx context.Context, pool string, b local.Block) error {
	return c.files.edit(ctx, pool, func(p *local.Pool) error {
		used, err := inUse(ctx, p)
		if err != nil || used[b.Block] > 0 {
			return err
		}
		for i, o := range p.State.Blocks {
			if o.Nonce == b.Nonce && o.Block == b.Block && o.Phase == local.Owned {
				p.State.Blocks[i].Phase = local.Returning
			}
		}
		return nil
	})
}

// returning is a block on its way back to the store.
type returning struct {
	pool  string
	block local.Block
}

// returns gives the blocks back that are marked as returning, and then drops them from the files.
// The caller has the turn.
func (c *claims) returns(ctx context.Context) error {
	if c.trust.mayGrow() != nil {
		return nil // the block may be another node's
	}
	marked, err := c.marked(ctx)
	if err != nil || len(marked) == 0 {
		return err
	}
	n, owned, err := c.session.store().Blocks.Owned(ctx, c.o.Node.Name)
	if err != nil {
		return c.session.lapse(err)
	}
	c.session.setNode(n)
	var errs []error
	for _, m := range marked {
		if err := c.giveBack(ctx, m, owned); err != nil {
			errs = append(errs, fmt.Errorf("return block %s of pool %s: %w", m.block.Block, m.pool, err))
		}
	}
	return errors.Join(errs...)
}

// giveBack gives one block back, if the store still shows it.
func (c *claims) giveBack(ctx context.Context, m returning, owned []registry.Block) error {
	i := slices.IndexFunc(owned, func(o registry.Block) bool {
		return o.Pool == m.pool && o.Block.Block == m.block.Block && o.Block.Nonce == m.block.Nonce
	})
	if i >= 0 {
		s, err := c.session.joined()
		if err != nil {
			return err
		}
		n, err := c.session.store().Blocks.Return(ctx, s.Node, owned[i], "returned")
		if err != nil {
			return c.session.lapse(err)
		}
		c.session.setNode(n)
		c.o.Log.Info("returned", "pool", m.pool, "block", m.block.Block)
	}
	delete(c.idle, blockID{m.block.Block, m.block.Nonce})
	return c.files.edit(ctx, m.pool, func(p *local.Pool) error {
		p.State.Blocks = slices.DeleteFunc(p.State.Blocks, func(b local.Block) bool {
			return b.Nonce == m.block.Nonce && b.Block == m.block.Block && b.Phase == local.Returning
		})
		return nil
	})
}

// marked returns the blocks that are marked as returning.
func (c *claims) marked(ctx context.Context) (all []returning, err error) {
	pools, err := c.o.Local.Pools()
	if err != nil {
		return nil, err
	}
	for _, name := range pools {
		p, err := c.o.Local.Open(ctx, name, true)
		if err != nil {
			return nil, err
		}
		for _, b := range p.State.Blocks {
			if b.Phase == local.Returning {
				all = append(all, returning{name, b})
			}
		}
		if err := p.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
