package agent

import (
	"context"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// observe looks at a pool after its reservations have changed, until ctx ends: a claim ahead need
// not wait for the next renewal.
func (c *claims) observe(ctx context.Context) error {
	if c.o.Changes == nil {
		return nil
	}
	changed := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- c.o.Changes(ctx, func(pool string) {
			c.mu.Lock()
			c.checked[pool] = true
			c.mu.Unlock()
			poke(changed)
		})
	}()
	for {
		select {
		case <-changed:
			c.lookAll(ctx)
		case err := <-done:
			if ctx.Err() == nil {
				c.problems.report("observe", err)
			}
			return nil
		}
	}
}

// lookTime is the shortest time between two looks at the pools.
const lookTime = 20 * time.Millisecond

// lookAll looks at the pools that have changed.
func (c *claims) lookAll(ctx context.Context) {
	if !sleep(ctx, lookTime) {
		return
	}
	c.mu.Lock()
	var names []string
	for name := range c.checked {
		names = append(names, name)
	}
	clear(c.checked)
	c.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		if use, err := c.files.usage(ctx, name); err == nil && nearlyFull(use) && !c.view.scarce(name) {
			if _, err := c.mayClaim(ctx, name); err == nil {
				c.plan(name, nonces(use))
			}
		}
	}
}

// look reads the use of a pool. It plans a claim if the blocks are nearly full, and marks blocks as
// returning that have been unnecessary for long.
func (c *claims) look(ctx context.Context, name string) error {
	use, err := c.files.usage(ctx, name)
	if err != nil {
		return err
	}
	scarce := c.view.scarce(name)
	switch full := nearlyFull(use); {
	case full && !scarce:
		if _, err := c.mayClaim(ctx, name); err == nil {
			c.plan(name, nonces(use))
		}
	case !full && len(use) > 0:
		// The last claim may have failed, but the need has passed.
		c.problems.report("claim "+name, nil)
	}
	for _, b := range c.unnecessary(use, scarce) {
		if err := c.retire(ctx, name, b); err != nil {
			return err
		}
	}
	return nil
}

// nonces returns the nonces of blocks.
func nonces(use []local.Use) (all []string) {
	for _, u := range use {
		all = append(all, u.Nonce)
	}
	return all
}

// fullPercent is the use at which the agent claims ahead.
const fullPercent = 75

// nearlyFull reports whether so many addresses are in use that another block will be needed soon.
func nearlyFull(use []local.Use) bool {
	capacity, used := total(use)
	return capacity > 0 && used*100 >= capacity*fullPercent
}

// total sums the blocks from which addresses are allocated.
func total(use []local.Use) (capacity, used uint64) {
	for _, u := range use {
		if u.Phase == local.Owned {
			capacity += u.Capacity
			used += u.Used
		}
	}
	return capacity, used
}
