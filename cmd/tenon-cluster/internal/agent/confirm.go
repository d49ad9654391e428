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
func (m *membership) confirm(ctx context.Context) error {
	if err := m.claims.resolve(ctx); err != nil {
		return err
	}
	n, blocks, err := m.session.store().Blocks.Owned(ctx, m.o.Node.Name)
	if err != nil {
		return m.session.lapse(err)
	}
	m.session.setNode(n)
	pools, err := m.session.store().Pools.List(ctx)
	if err != nil {
		return err
	}
	known, err := m.o.Local.Pools()
	if err != nil {
		return err
	}
	m.view.setPools(pools)
	owned := ownBlocks(n, blocks)
	if err := m.files.findRewind(ctx, n, owned); err != nil {
		return err
	}
	if err := errors.Join(m.trust.distrust(), m.trust.keepSeen()); err != nil {
		return err
	}
	for _, name := range known {
		owned[name] = append(owned[name], []local.Block{}...)
	}
	for _, p := range pools {
		if m.view.uses(p) {
			owned[p.Name] = append(owned[p.Name], []local.Block{}...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if err := m.files.confirmPool(ctx, name, owned[name]); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return m.identity.remember(func(l *local.Node) { l.Epoch = n.Epoch })
}
