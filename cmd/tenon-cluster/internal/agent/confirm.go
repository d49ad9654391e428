package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// confirm compares the blocks of this node in the store with those in its files, with one
// linearizable read, and then allows allocations in this boot. The store decides: blocks that it
// gives this node are adopted, and blocks that it does not are dropped, or lost if addresses of
// them are in use.
//
// After a restored snapshot, or with another store, both must agree: the store may show a block
// that this node gave back since, and that another node has claimed.
func (a *Agent) confirm(ctx context.Context) error {
	if err := a.resolve(ctx); err != nil {
		return err
	}
	n, blocks, err := a.session.store().Blocks.Owned(ctx, a.o.Node.Name)
	if err != nil {
		return a.session.lapse(err)
	}
	a.session.setNode(n)
	pools, err := a.session.store().Pools.List(ctx)
	if err != nil {
		return err
	}
	known, err := a.o.Local.Pools()
	if err != nil {
		return err
	}
	a.view.setPools(pools)
	owned := ownBlocks(n, blocks)
	if err := a.files.findRewind(ctx, n, owned); err != nil {
		return err
	}
	if err := errors.Join(a.trust.distrust(), a.trust.keepSeen()); err != nil {
		return err
	}
	for _, name := range known {
		owned[name] = append(owned[name], []local.Block{}...)
	}
	for _, p := range pools {
		if a.view.uses(p) {
			owned[p.Name] = append(owned[p.Name], []local.Block{}...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if err := a.files.confirmPool(ctx, name, owned[name]); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return a.identity.remember(func(l *local.Node) { l.Epoch = n.Epoch })
}
