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
)

const (
	// claimAttempts limits the attempts of a claim that lose a race to other nodes.
	claimAttempts = 64
	// maxClaim limits the blocks of a claim.
	maxClaim = 16
	// burstTime is the time within which another claim of a pool takes twice as many blocks.
	burstTime = time.Second
	// burstReserve is the number of free blocks for each node that a burst requires.
	burstReserve = 4 * maxClaim
	// claimTime limits a claim, whatever the deadlines of the requests.
	claimTime = 12 * time.Second
)

// flight is a claim that is planned or in progress. Requests that arrive before it ends share its
// outcome.
type flight struct {
	have []string      // the nonces of the blocks that do not suffice
	wait uint64        // requests that wait for it
	done chan struct{} // closed when err is valid
	err  error
}

// burst is the last claim of a pool.
type burst struct {
	at     time.Time
	blocks int
}

// grow waits until the pool has a block that the caller did not know, and claims one if necessary.
func (a *Agent) grow(ctx context.Context, pool string, have []string) error {
	if err := a.attempted(ctx); err != nil { // it may be about to confirm the blocks
		return err
	}
	if fresh, err := a.hasOther(ctx, pool, have); fresh || err != nil {
		return err
	}
	if err := a.trust.settled(ctx); err != nil {
		return err
	}
	f := a.plan(pool, have)
	a.mu.Lock()
	f.wait++
	a.mu.Unlock()
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
			err := a.claimFor(ctx, name, f)
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

// claimFor makes a planned claim, unless the pool has got a block since.
func (a *Agent) claimFor(ctx context.Context, pool string, f *flight) error {
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
	if fresh, err := a.hasOther(ctx, pool, f.have); fresh || err != nil {
		return err
	}
	a.mu.Lock()
	wait := f.wait
	a.mu.Unlock()
	err = a.claim(ctx, pool, wait)
	a.problems.report("claim "+pool, err)
	return err
}

// hasOther reports whether the node has a usable block that is missing from have, a list of nonces.
func (a *Agent) hasOther(ctx context.Context, pool string, have []string) (bool, error) {
	p, err := a.o.Local.Open(ctx, pool, true)
	if err != nil {
		return false, err
	}
	defer p.Close()
	usable := func(b local.Block) bool {
		return b.Phase == local.Owned && !slices.Contains(have, b.Nonce)
	}
	return p.State.Boot == a.o.BootID && slices.ContainsFunc(p.State.Blocks, usable), nil
}

// claim claims as many blocks as the waiting requests need, at least one. Its intent precedes it.
// The caller has the turn.
func (a *Agent) claim(ctx context.Context, pool string, wait uint64) error {
	if _, err := a.mayClaim(ctx, pool); err != nil {
		return err
	}
	in := intent{Kind: intentClaim, Nonce: a.o.Nonce(), Pool: pool, Since: a.o.now().wall}
	if err := a.intend(in); err != nil {
		return err
	}
	blocks, err := a.race(ctx, in, wait)
	if errors.Is(err, registry.ErrUnknown) || ctx.Err() != nil {
		return err // the intent stays until the outcome is known
	}
	if err == nil {
		err = a.files.adopt(ctx, blocks)
	}
	if err != nil && len(blocks) > 0 {
		return err
	}
	a.mu.Lock()
	a.bursts[pool] = burst{time.Now(), len(blocks)}
	a.mu.Unlock()
	for _, b := range blocks {
		a.o.Log.Info("claimed", "pool", pool, "block", b.Block.Block, "generation", b.Generation)
	}
	return errors.Join(err, a.settle(in))
}

// race tries to claim free blocks until it is faster than the other nodes.
func (a *Agent) race(ctx context.Context, in intent, wait uint64) ([]registry.Block, error) {
	backoff := minBackoff / 10
	for attempt := 0; ; attempt++ {
		p, err := a.mayClaim(ctx, in.Pool)
		if err != nil {
			return nil, err
		}
		blocks, err := a.try(ctx, p, in.Nonce, a.need(p, wait))
		if !errors.Is(err, registry.ErrConflict) || errors.Is(err, registry.ErrUnknown) ||
			attempt == claimAttempts {
			return blocks, a.session.lapse(err)
		}
		if !sleep(ctx, a.o.Jitter(backoff)) {
			return nil, ctx.Err()
		}
		backoff = min(2*backoff, maxBackoff/10)
		if err := a.reread(ctx); err != nil {
			return nil, err
		}
	}
}

// need returns the number of blocks that waiting requests need, within the limits of the pool and
// of a claim.
func (a *Agent) need(p registry.Pool, wait uint64) int {
	units := max(p.Units(p.Block(0)), 1)
	blocks := int(min((wait+units-1)/units, maxClaim))
	a.mu.Lock()
	last := a.bursts[p.Name]
	a.mu.Unlock()
	if time.Since(last.at) < burstTime && a.view.plenty(p.Name, burstReserve) {
		blocks = min(max(blocks, 2*last.blocks), maxClaim)
	}
	if p.MaxBlocks > 0 {
		s, _ := a.session.joined()
		blocks = min(blocks, p.MaxBlocks-ownedOf(s.Node, p))
	}
	return max(blocks, 1)
}

// try makes one attempt at the first free blocks.
func (a *Agent) try(
	ctx context.Context, p registry.Pool, nonce string, count int,
) ([]registry.Block, error) {
	s, err := a.session.joined()
	if err != nil {
		return nil, err
	}
	free, err := a.session.store().Blocks.Free(ctx, p, s.Node.Name, count)
	if err != nil {
		return nil, err
	}
	if len(free) == 0 {
		return nil, registry.ErrFull
	}
	var blocks []registry.Block
	err = a.persist(ctx, func() error { // the same nonce finds what an earlier call claimed
		n, claimed, err := a.session.store().Blocks.Claim(ctx, s.Node, p, free, nonce)
		if err == nil {
			a.session.setNode(n)
			blocks = claimed
		}
		return err
	})
	return blocks, err
}

// persist repeats a transaction while its outcome is not known. If it then fails, the error wraps
// [registry.ErrUnknown]: only [registry.Blocks.Exclude] makes sure that no earlier request
// commits.
func (a *Agent) persist(ctx context.Context, transact func() error) error {
	unknown := false
	for {
		err := transact()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, registry.ErrUnknown):
			unknown = true
		case unknown:
			return fmt.Errorf("%w: %w", registry.ErrUnknown, err)
		default:
			return err
		}
		if !sleep(ctx, a.o.Jitter(minBackoff)) {
			return err
		}
	}
}

// reread reads node and pools after a conflict, for the case that these have changed.
func (a *Agent) reread(ctx context.Context) error {
	if err := a.session.refresh(ctx); err != nil {
		return err
	}
	pools, err := a.session.store().Pools.List(ctx)
	if err == nil {
		a.view.setPools(pools)
	}
	return err
}

// mayClaim returns the pool if the node may claim a block of it.
func (a *Agent) mayClaim(ctx context.Context, name string) (registry.Pool, error) {
	s, err := a.session.joined()
	if err != nil {
		return registry.Pool{}, err
	}
	p, ok := a.view.pool(name)
	if !ok {
		pools, err := a.session.store().Pools.List(ctx)
		if err != nil {
			return p, err
		}
		a.view.setPools(pools)
		if p, ok = a.view.pool(name); !ok {
			return p, fmt.Errorf("pool %s: %w", name, registry.ErrNotFound)
		}
	}
	if err := errors.Join(a.trust.mayGrow(), a.identity.checkPlace()); err != nil {
		return p, err
	}
	own := ownedOf(s.Node, p)
	switch {
	case s.Node.State == cluster.NodeDraining:
		return p, errDraining
	case !a.view.uses(p):
		return p, errSelector
	case p.MaxBlocks > 0 && own >= p.MaxBlocks:
		return p, fmt.Errorf("%w (%d)", errMaxBlocks, p.MaxBlocks)
	}
	return p, nil
}

// ownedOf returns the number of blocks of a pool that a node owns.
func ownedOf(n registry.Node, p registry.Pool) (own int) {
	for _, b := range n.Blocks {
		if b.Pool == p.Name && b.Block.Bits() == p.BlockBits {
			own++
		}
	}
	return own
}
