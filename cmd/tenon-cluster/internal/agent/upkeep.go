package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
		if err := a.sync(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
			continue
		}
		if err := a.look(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
		}
	}
	a.problems.report("guard", a.guard(ctx, nil))
	errs = append(errs, a.publish(ctx), a.returns(ctx), a.commonUpkeep(ctx), a.session.keepSeenSometimes(ctx),
		a.answer(ctx))
	return errors.Join(errs...)
}

// sync writes the changed parts of a pool: its document, the deadline of hold, the state of the
// node.
func (a *Agent) sync(ctx context.Context, name string) error {
	return a.edit(ctx, name, func(p *local.Pool) error {
		if a.drifted(name, p) {
			a.o.Log.Error("the files of a pool do not agree with the store; confirming the blocks",
				"pool", name, "cause", p.Err())
			a.session.lose() // the next renewal joins and confirms
			return nil
		}
		if _, ok := a.view.pool(name); !ok && len(p.State.Blocks) == 0 {
			return p.Remove() // an operator has deleted the pool
		}
		a.fill(&p.State, name)
		if len(p.State.Blocks) == 0 { // nothing to confirm
			p.State.Boot = a.o.BootID
		}
		return a.dropLost(ctx, p)
	})
}

// blockID identifies a claimed block. All blocks of one claim have the same nonce.
type blockID struct {
	block netip.Prefix
	nonce string
}

// drifted reports whether the blocks in the files differ from the node's document, for
// instance because a file was damaged or removed. A restored store is an exception that stays.
// While the node waits for others, it adopts no blocks, and looks only for missing ones: they show
// that the store was restored.
func (a *Agent) drifted(name string, p *local.Pool) bool {
	s, err := a.session.joined()
	if err != nil || a.trust.distrusts() {
		return false
	}
	unknown := map[blockID]bool{}
	for _, b := range s.Node.Blocks {
		if b.Pool == name {
			unknown[blockID{b.Block, b.Nonce}] = true
		}
	}
	for _, b := range p.State.Blocks {
		if b.Phase == local.Lost {
			continue
		}
		id := blockID{b.Block, b.Nonce}
		if !unknown[id] {
			return true
		}
		delete(unknown, id)
	}
	return len(unknown) > 0 && a.trust.settling() <= 0
}

// dropLost removes lost blocks without reserved addresses.
func (a *Agent) dropLost(ctx context.Context, p *local.Pool) error {
	lost := func(b local.Block) bool { return b.Phase == local.Lost }
	if !slices.ContainsFunc(p.State.Blocks, lost) {
		return nil
	}
	used, err := inUse(ctx, p)
	if err != nil {
		return err
	}
	p.State.Blocks = slices.DeleteFunc(p.State.Blocks, func(b local.Block) bool {
		return lost(b) && used[b.Block] == 0
	})
	return nil
}

// look reads the use of a pool. It plans a claim if the blocks are nearly full, and marks blocks as
// returning that have been unnecessary for long.
func (a *Agent) look(ctx context.Context, name string) error {
	use, err := a.usage(ctx, name)
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

// usage reads the use of a pool's blocks.
func (a *Agent) usage(ctx context.Context, name string) (use []local.Use, err error) {
	p, err := a.o.Local.Open(ctx, name, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	use, _, err = p.Usage(ctx)
	return use, err
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
