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

// Errors of claims. registry.ErrFull is another.
var (
	errDraining  = errors.New("an operator drains this node")
	errSelector  = errors.New("the labels of this node do not match the pool's selector")
	errMaxBlocks = errors.New("this node has as many blocks as the pool allows")
	errRestored  = errors.New("the store was restored from a snapshot and not confirmed since")
)

const (
	// claimAttempts limits the attempts of a claim that lose a race to other nodes.
	claimAttempts = 64
	// candidates is the number of free blocks that an attempt considers.
	candidates = 4
	// claimTime limits a claim, whoever waits for it.
	claimTime = 20 * time.Second
)

// flight is a claim that is planned or in progress. Requests that arrive before it ends share its
// outcome.
type flight struct {
	have []string      // the nonces of the blocks that do not suffice
	done chan struct{} // closed when err is valid
	err  error
}

// grow waits until the pool has a block that the caller did not know, and claims one if necessary.
func (a *Agent) grow(ctx context.Context, pool string, have []string) error {
	select {
	case <-a.tried: // an agent that has just started may be about to confirm the blocks
	case <-ctx.Done():
		return ctx.Err()
	}
	f := a.plan(pool, have)
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// plan returns the claim of a pool that is planned or in progress, or plans one.
func (a *Agent) plan(pool string, have []string) *flight {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.flights[pool]
	if f == nil {
		f = &flight{have: have, done: make(chan struct{})}
		a.flights[pool] = f
		poke(a.planned)
	}
	return f
}

// claims makes the planned claims until ctx ends.
func (a *Agent) claims(ctx context.Context) error {
	for {
		select {
		case <-a.planned:
		case <-ctx.Done():
			return nil
		}
		for name, f := range a.flown() {
			err := a.claimFor(ctx, name, f.have)
			a.mu.Lock()
			delete(a.flights, name)
			a.mu.Unlock()
			f.err = err
			close(f.done)
		}
	}
}

// flown returns the claims that are planned.
func (a *Agent) flown() map[string]*flight {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.flights)
}

// claimFor claims a block for a pool whose blocks with the nonces in have do not suffice.
func (a *Agent) claimFor(ctx context.Context, pool string, have []string) error {
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	end, err := a.exclusive(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := a.resolve(ctx); err != nil {
		return err
	}
	if fresh, err := a.hasOther(ctx, pool, have); fresh || err != nil {
		return err
	}
	err = a.claim(ctx, pool)
	a.report("claim "+pool, err)
	return err
}

// hasOther reports whether the node can allocate from a block whose nonce is not in have.
func (a *Agent) hasOther(ctx context.Context, pool string, have []string) (bool, error) {
	p, err := a.o.Local.Open(ctx, pool, true)
	if err != nil {
		return false, err
	}
	defer p.Close()
	usable := func(b local.Block) bool {
		return (b.Phase == local.Owned || b.Phase == local.Borrowed) &&
			!slices.Contains(have, b.Nonce)
	}
	return p.State.Boot == a.o.BootID && slices.ContainsFunc(p.State.Blocks, usable), nil
}

// claim claims one block. Its intent precedes it. The caller has the turn.
func (a *Agent) claim(ctx context.Context, pool string) error {
	if _, err := a.mayClaim(ctx, pool); err != nil {
		return err
	}
	in := intent{Kind: intentClaim, Nonce: a.o.Nonce(), Pool: pool, Since: a.now().wall}
	if err := a.intend(in); err != nil {
		return err
	}
	blocks, err := a.race(ctx, in)
	if errors.Is(err, registry.ErrUnknown) || ctx.Err() != nil {
		return err // the intent stays until the outcome is known
	}
	if err == nil {
		err = a.adopt(ctx, blocks)
	}
	if err != nil && len(blocks) > 0 {
		return err
	}
	if err == nil {
		a.log.Info("claimed", "pool", pool, "block", blocks[0].Block.Block,
			"generation", blocks[0].Generation)
	}
	return errors.Join(err, a.settle(in))
}

// race tries to claim a free block until it is faster than the other nodes.
func (a *Agent) race(ctx context.Context, in intent) ([]registry.Block, error) {
	wait := minBackoff / 10
	for attempt := 0; ; attempt++ {
		p, err := a.mayClaim(ctx, in.Pool)
		if err != nil {
			return nil, err
		}
		blocks, err := a.try(ctx, p, in.Nonce)
		if !errors.Is(err, registry.ErrConflict) || attempt == claimAttempts {
			return blocks, a.lapse(err)
		}
		if !sleep(ctx, a.o.Jitter(wait)) {
			return nil, ctx.Err()
		}
		wait = min(2*wait, maxBackoff/10)
		if err := a.reread(ctx); err != nil {
			return nil, err
		}
	}
}

// try makes one attempt at the first free block.
func (a *Agent) try(ctx context.Context, p registry.Pool, nonce string) ([]registry.Block, error) {
	s, err := a.joined()
	if err != nil {
		return nil, err
	}
	free, err := a.store().Free(ctx, p, s.Node.Name, candidates)
	if err != nil {
		return nil, err
	}
	for {
		if len(free) == 0 {
			return nil, registry.ErrFull
		}
		n, blocks, err := a.store().Claim(ctx, s.Node, p, free[:1], nonce)
		switch {
		case err == nil:
			a.setNode(n)
			return blocks, nil
		case errors.Is(err, registry.ErrUnknown) && sleep(ctx, a.o.Jitter(minBackoff)):
			continue // the same nonce finds what the first call claimed
		}
		return nil, err
	}
}

// reread reads node and pools after a conflict, for the case that these have changed.
func (a *Agent) reread(ctx context.Context) error {
	if err := a.refresh(ctx); err != nil {
		return err
	}
	pools, err := a.store().Pools(ctx)
	if err == nil {
		a.setPools(pools)
	}
	return err
}

// mayClaim returns the pool if the node may claim a block of it.
func (a *Agent) mayClaim(ctx context.Context, name string) (registry.Pool, error) {
	s, err := a.joined()
	if err != nil {
		return registry.Pool{}, err
	}
	p, ok := a.pool(name)
	if !ok {
		pools, err := a.store().Pools(ctx)
		if err != nil {
			return p, err
		}
		a.setPools(pools)
		if p, ok = a.pool(name); !ok {
			return p, fmt.Errorf("pool %s: %w", name, registry.ErrNotFound)
		}
	}
	own := 0
	for _, b := range s.Node.Blocks {
		if b.Pool == name && b.Block.Bits() == p.BlockBits {
			own++
		}
	}
	a.mu.Lock()
	restored := a.restored
	a.mu.Unlock()
	switch {
	case restored:
		return p, errRestored
	case s.Node.State == cluster.NodeDraining:
		return p, errDraining
	case !a.uses(p):
		return p, errSelector
	case p.MaxBlocks > 0 && own >= p.MaxBlocks:
		return p, fmt.Errorf("%w (%d)", errMaxBlocks, p.MaxBlocks)
	}
	return p, nil
}
