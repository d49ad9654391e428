package agent

import (
	"context"
	"slices"
	"time"
)

// observe looks at a pool after its reservations have changed, until ctx ends: a claim ahead need
// not wait for the next renewal.
func (a *Agent) observe(ctx context.Context) error {
	if a.o.Changes == nil {
		return nil
	}
	changed := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- a.o.Changes(ctx, func(pool string) {
			a.mu.Lock()
			a.checked[pool] = true
			a.mu.Unlock()
			poke(changed)
		})
	}()
	for {
		select {
		case <-changed:
			a.lookAll(ctx)
		case err := <-done:
			if ctx.Err() == nil {
				a.problems.report("observe", err)
			}
			return nil
		}
	}
}

// lookTime is the shortest time between two looks at the pools.
const lookTime = 20 * time.Millisecond

// lookAll looks at the pools that have changed.
func (a *Agent) lookAll(ctx context.Context) {
	if !sleep(ctx, lookTime) {
		return
	}
	a.mu.Lock()
	var names []string
	for name := range a.checked {
		names = append(names, name)
	}
	clear(a.checked)
	a.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		if use, err := a.files.usage(ctx, name); err == nil && nearlyFull(use) && !a.view.scarce(name) {
			if _, err := a.mayClaim(ctx, name); err == nil {
				a.plan(name, nonces(use))
			}
		}
	}
}
