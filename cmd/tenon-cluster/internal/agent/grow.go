package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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

// claims gets blocks for the pools of this node, before and when they are full, and gives empty
// ones back.
type claims struct {
	o        *Options
	identity *identity
	trust    *trust
	session  *session
	view     *view
	files    *files
	intents  *intents
	problems *problems
	turn     turn
	planned  chan struct{} // has an event while claims are planned

	// The holder of the turn uses the following fields.
	bursts map[string]burst      // last claims, by pool
	idle   map[blockID]time.Time // since when blocks have been unnecessary

	mu      sync.Mutex         // guards the following fields
	flights map[string]*flight // claims in progress, by pool
	checked map[string]bool    // pools to look at before the next renewal
}

// grow waits until the pool has a block that the caller did not know, and claims one if necessary.
func (c *claims) grow(ctx context.Context, pool string, have []string) error {
	if fresh, err := c.hasOther(ctx, pool, have); fresh || err != nil {
		return err
	}
	if err := c.trust.settled(ctx); err != nil {
		return err
	}
	f := c.plan(pool, have)
	c.mu.Lock()
	f.wait++
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// plan returns the claim of a pool that is planned or in progress, or plans one.
func (c *claims) plan(pool string, have []string) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[pool]
	if f == nil {
		f = &flight{have: have, done: make(chan struct{})}
		c.flights[pool] = f
		poke(c.planned)
	}
	return f
}

// run makes the planned claims until ctx ends.
func (c *claims) run(ctx context.Context) error {
	for {
		select {
		case <-c.planned:
		case <-ctx.Done():
			return nil
		}
		for name, f := range c.flown() {
			err := c.claimFor(ctx, name, f)
			c.mu.Lock()
			delete(c.flights, name)
			c.mu.Unlock()
			f.err = err
			close(f.done)
		}
	}
}

// flown returns the claims that are planned.
func (c *claims) flown() map[string]*flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.flights)
}

// claimFor makes a planned claim, unless the pool has got a block since.
func (c *claims) claimFor(ctx context.Context, pool string, f *flight) error {
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	end, err := c.turn.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := c.resolve(ctx); err != nil {
		return err
	}
	if fresh, err := c.hasOther(ctx, pool, f.have); fresh || err != nil {
		return err
	}
	c.mu.Lock()
	wait := f.wait
	c.mu.Unlock()
	err = c.claim(ctx, pool, wait)
	c.problems.report("claim "+pool, err)
	return err
}

// hasOther reports whether the node has a usable block that is missing from have, a list of nonces.
func (c *claims) hasOther(ctx context.Context, pool string, have []string) (bool, error) {
	p, err := c.o.Local.Open(ctx, pool, true)
	if err != nil {
		return false, err
	}
	defer p.Close()
	usable := func(b local.Block) bool {
		return b.Phase == local.Owned && !slices.Contains(have, b.Nonce)
	}
	return p.State.Boot == c.o.BootID && slices.ContainsFunc(p.State.Blocks, usable), nil
}

// claim claims as many blocks as the waiting requests need, at least one. Its intent precedes it.
// The caller has the turn.
func (c *claims) claim(ctx context.Context, pool string, wait uint64) error {
	if _, err := c.mayClaim(ctx, pool); err != nil {
		return err
	}
	in := intent{Kind: intentClaim, Nonce: c.o.Nonce(), Pool: pool, Since: c.o.now().wall}
	if err := c.intents.write(in); err != nil {
		return err
	}
	blocks, err := c.race(ctx, in, wait)
	if errors.Is(err, registry.ErrUnknown) || ctx.Err() != nil {
		return err // the intent stays until the outcome is known
	}
	if err == nil {
		err = c.files.adopt(ctx, blocks)
	}
	if err != nil && len(blocks) > 0 {
		return err
	}
	c.bursts[pool] = burst{time.Now(), len(blocks)}
	for _, b := range blocks {
		c.o.Log.Info("claimed", "pool", pool, "block", b.Block.Block, "generation", b.Generation)
	}
	return errors.Join(err, c.intents.remove(in))
}

// race tries to claim free blocks until it is faster than the other nodes.
func (c *claims) race(ctx context.Context, in intent, wait uint64) ([]registry.Block, error) {
	backoff := minBackoff / 10
	for attempt := 0; ; attempt++ {
		p, err := c.mayClaim(ctx, in.Pool)
		if err != nil {
			return nil, err
		}
		blocks, err := c.try(ctx, p, in.Nonce, c.need(p, wait))
		if !errors.Is(err, registry.ErrConflict) || errors.Is(err, registry.ErrUnknown) ||
			attempt == claimAttempts {
			return blocks, c.session.lapse(err)
		}
		if !sleep(ctx, c.o.Jitter(backoff)) {
			return nil, ctx.Err()
		}
		backoff = min(2*backoff, maxBackoff/10)
		if err := c.reread(ctx); err != nil {
			return nil, err
		}
	}
}

// need returns the number of blocks that waiting requests need, within the limits of the pool and
// of a claim.
func (c *claims) need(p registry.Pool, wait uint64) int {
	units := max(p.Units(p.Block(0)), 1)
	blocks := int(min((wait+units-1)/units, maxClaim))
	last := c.bursts[p.Name]
	if time.Since(last.at) < burstTime && c.view.plenty(p.Name, burstReserve) {
		blocks = min(max(blocks, 2*last.blocks), maxClaim)
	}
	if p.MaxBlocks > 0 {
		s, _ := c.session.joined()
		blocks = min(blocks, p.MaxBlocks-ownedOf(s.Node, p))
	}
	return max(blocks, 1)
}

// try makes one attempt at the first free blocks.
func (c *claims) try(
	ctx context.Context, p registry.Pool, nonce string, count int,
) ([]registry.Block, error) {
	s, err := c.session.joined()
	if err != nil {
		return nil, err
	}
	free, err := c.session.store().Blocks.Free(ctx, p, s.Node.Name, count)
	if err != nil {
		return nil, err
	}
	if len(free) == 0 {
		return nil, registry.ErrFull
	}
	var blocks []registry.Block
	err = persist(ctx, c.o.Jitter, func() error { // the same nonce finds what an earlier call claimed
		n, claimed, err := c.session.store().Blocks.Claim(ctx, s.Node, p, free, nonce)
		if err == nil {
			c.session.setNode(n)
			blocks = claimed
		}
		return err
	})
	return blocks, err
}

// persist repeats a transaction while its outcome is not known. If it then fails, the error wraps
// [registry.ErrUnknown]: only [registry.Blocks.Exclude] makes sure that no earlier request
// commits.
func persist(
	ctx context.Context, jitter func(time.Duration) time.Duration, transact func() error,
) error {
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
		if !sleep(ctx, jitter(minBackoff)) {
			return err
		}
	}
}

// reread reads node and pools after a conflict, for the case that these have changed.
func (c *claims) reread(ctx context.Context) error {
	if err := c.session.refresh(ctx); err != nil {
		return err
	}
	pools, err := c.session.store().Pools.List(ctx)
	if err == nil {
		c.view.setPools(pools)
	}
	return err
}

// mayClaim returns the pool if the node may claim a block of it.
func (c *claims) mayClaim(ctx context.Context, name string) (registry.Pool, error) {
	s, err := c.session.joined()
	if err != nil {
		return registry.Pool{}, err
	}
	p, ok := c.view.pool(name)
	if !ok {
		pools, err := c.session.store().Pools.List(ctx)
		if err != nil {
			return p, err
		}
		c.view.setPools(pools)
		if p, ok = c.view.pool(name); !ok {
			return p, fmt.Errorf("pool %s: %w", name, registry.ErrNotFound)
		}
	}
	if err := errors.Join(c.trust.mayGrow(), c.identity.checkPlace()); err != nil {
		return p, err
	}
	own := ownedOf(s.Node, p)
	switch {
	case s.Node.State == cluster.NodeDraining:
		return p, errDraining
	case !c.view.uses(p):
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
