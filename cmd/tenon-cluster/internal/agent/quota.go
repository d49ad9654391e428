package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// The node's files never show more tokens than the store: the agent draws in the store first, and
// lowers the number in the files first when it gives tokens back.

// drawBatch is the number of tokens that the agent draws at once.
const drawBatch = 8

// draw draws tokens of a namespace's quota, unless some are left.
func (c *commons) draw(ctx context.Context, pool, namespace string) error {
	if err := c.trust.settled(ctx); err != nil {
		return err
	}
	end, err := c.turn.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	used, err := c.namespaces(ctx, pool)
	if err != nil {
		return err
	}
	if used.spare(namespace) > 0 { // another request has drawn tokens
		return nil
	}
	return c.drawLocked(ctx, pool, namespace)
}

// drawLocked draws tokens and writes them into the files. The caller has the turn.
func (c *commons) drawLocked(ctx context.Context, pool, namespace string) error {
	p, err := c.mayAcquire(ctx, pool)
	if err != nil {
		return err
	}
	tokens, err := c.drawStored(ctx, p, namespace)
	if err != nil {
		return err
	}
	return c.setTokens(ctx, pool, map[string]uint64{namespace: tokens.Count})
}

func (c *commons) drawStored(
	ctx context.Context, p registry.Pool, namespace string,
) (tokens cluster.Tokens, err error) {
	s, err := c.session.joined()
	if err != nil {
		return tokens, err
	}
	err = persist(ctx, c.o.Jitter, func() error {
		tokens, err = c.session.store().Quotas.Draw(ctx, s.Node, p, namespace, c.batch(p, namespace))
		return err
	})
	if errors.Is(err, registry.ErrUnknown) {
		c.reconciled = time.Time{} // the store may show more tokens than the files
	}
	return tokens, c.session.lapse(err)
}

// batch returns the number of tokens to draw at once: fewer if the nodes could otherwise keep a
// large part of the quota unused.
func (c *commons) batch(p registry.Pool, namespace string) uint64 {
	last, _ := c.view.latest()
	nodes := uint64(len(last.Nodes))
	const part = 4 // unused tokens are at most about a quarter of the quota
	return min(max(p.LimitOf(namespace)/(part*max(nodes, 1)), 1), drawBatch)
}

// setTokens changes the tokens of namespaces in the files; 0 removes an entry.
func (c *commons) setTokens(ctx context.Context, pool string, tokens map[string]uint64) error {
	return c.files.edit(ctx, pool, func(p *local.Pool) error {
		if p.State.Tokens == nil {
			p.State.Tokens = map[string]uint64{}
		}
		maps.Copy(p.State.Tokens, tokens)
		maps.DeleteFunc(p.State.Tokens, func(_ string, n uint64) bool { return n == 0 })
		if len(p.State.Tokens) == 0 {
			p.State.Tokens = nil
		}
		return nil
	})
}

// use is the use of a pool by namespaces on this node.
type use struct {
	used   map[string]uint64
	tokens map[string]uint64
}

// spare returns the tokens of a namespace that no address uses.
func (u use) spare(namespace string) uint64 {
	return u.tokens[namespace] - min(u.used[namespace], u.tokens[namespace])
}

func (c *commons) namespaces(ctx context.Context, pool string) (u use, err error) {
	p, err := c.o.Local.Open(ctx, pool, true)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	u.used, err = p.Used(ctx)
	u.tokens = p.State.Tokens
	return u, err
}

// yield gives tokens back that were not used since the last renewal, but for one batch while the
// namespace has addresses on this node. The caller has the turn.
func (c *commons) yield(ctx context.Context) error {
	names, err := c.o.Local.Pools()
	if err != nil {
		return err
	}
	before := c.drawn
	c.drawn = map[string]uint64{} // without the namespaces that have no tokens any more
	for _, pool := range names {
		if err := c.yieldPool(ctx, pool, before); err != nil {
			return fmt.Errorf("pool %s: %w", pool, err)
		}
	}
	return nil
}

func (c *commons) yieldPool(ctx context.Context, pool string, unused map[string]uint64) error {
	u, err := c.namespaces(ctx, pool)
	if err != nil {
		return err
	}
	p, known := c.view.pool(pool)
	for _, namespace := range slices.Sorted(maps.Keys(u.tokens)) {
		key := pool + "/" + namespace
		spare := u.spare(namespace)
		c.drawn[key] = spare
		keep := c.batch(p, namespace)
		if u.used[namespace] == 0 || !known || p.LimitOf(namespace) == 0 {
			keep = 0
		}
		if idle := min(spare, unused[key]); idle > keep {
			if err := c.yieldTo(ctx, pool, namespace, idle-keep); err != nil {
				return err
			}
		}
	}
	return nil
}

// yieldTo gives spare tokens back, first in the files.
func (c *commons) yieldTo(ctx context.Context, pool, namespace string, count uint64) error {
	left := uint64(0)
	err := c.files.edit(ctx, pool, func(p *local.Pool) error {
		used, err := p.Used(ctx)
		if err != nil {
			return err
		}
		spare := use{used, p.State.Tokens}.spare(namespace)
		if left = p.State.Tokens[namespace] - min(count, spare); left > 0 {
			p.State.Tokens[namespace] = left
		} else {
			delete(p.State.Tokens, namespace)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s, err := c.session.joined()
	if err != nil {
		return err
	}
	return c.session.lapse(c.session.store().Quotas.Yield(ctx, s.Node, pool, namespace, left))
}

// refreshTokens writes the tokens into the files that the store shows, after a join. Tokens that
// were drawn or given back by an interrupted request are then the same in both.
func (c *commons) refreshTokens(ctx context.Context) error {
	names, err := c.o.Local.Pools()
	if err != nil {
		return err
	}
	limited := func(pool string) bool {
		p, known := c.view.pool(pool)
		return !known || len(p.Quota) > 0
	}
	if !slices.ContainsFunc(names, limited) {
		return nil
	}
	drawn, err := c.session.store().Quotas.Drawn(ctx, c.o.Node.Name)
	if err != nil {
		return err
	}
	for _, pool := range names {
		u, err := c.namespaces(ctx, pool)
		if err != nil {
			return err
		}
		tokens := map[string]uint64{}
		for namespace := range u.tokens {
			tokens[namespace] = 0
		}
		maps.Copy(tokens, drawn[pool])
		if len(tokens) == 0 {
			continue
		}
		if err := c.setTokens(ctx, pool, tokens); err != nil {
			return err
		}
	}
	return nil
}
