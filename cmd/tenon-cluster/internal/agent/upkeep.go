package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// upkeep does what must be done after each contact with the store. The caller has the turn.
func (a *Agent) upkeep(ctx context.Context) error {
	if err := a.resolve(ctx); err != nil {
		return err
	}
	names, err := a.view.poolNames()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := a.files.sync(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
			continue
		}
		if err := a.look(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
		}
	}
	a.problems.report("guard", a.hold.guard(ctx, nil))
	errs = append(errs, a.hold.publish(ctx), a.returns(ctx), a.commonUpkeep(ctx), a.session.keepSeenSometimes(ctx),
		a.answer(ctx))
	return errors.Join(errs...)
}

// look reads the use of a pool. It plans a claim if the blocks are nearly full, and marks blocks as
// returning that have been unnecessary for long.
func (a *Agent) look(ctx context.Context, name string) error {
	use, err := a.files.usage(ctx, name)
	if err != nil {
		return err
	}
	scarce := a.view.scarce(name)
	switch full := nearlyFull(use); {
	case full && !scarce:
		if _, err := a.mayClaim(ctx, name); err == nil {
			a.plan(name, nonces(use))
		}
	case !full && len(use) > 0:
		a.problems.report("claim "+name, nil) // the last claim may have failed, but the need has passed
	}
	for _, b := range a.unnecessary(use, scarce) {
		if err := a.retire(ctx, name, b); err != nil {
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
