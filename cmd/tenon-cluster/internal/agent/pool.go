package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// edit changes the state of a pool under its lock and writes it if it has changed. No request to
// the store is made while the lock is held.
func (a *Agent) edit(ctx context.Context, name string, change func(*local.Pool) error) (err error) {
	p, err := a.o.Local.Open(ctx, name, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	before := p.State
	before.Blocks = slices.Clone(p.State.Blocks)
	before.Tokens = maps.Clone(p.State.Tokens)
	if err := change(p); err != nil {
		return err
	}
	if p.State.Pool.Name == "" || reflect.DeepEqual(before, p.State) {
		return nil // a pool without document has nothing but reservations
	}
	return p.Save()
}

// fill sets the parts of a pool's state that do not depend on its blocks. It leaves the pool's
// document as it is if the pool no longer exists.
func (a *Agent) fill(st *local.State, name string) {
	p, ok := a.view.pool(name)
	own := a.identity.node()
	st.Schema, st.Node, st.Store = cluster.Schema, a.o.Node.Name, own.Store
	st.Place, st.Rival = own.Place, false
	if ok {
		st.Pool = p.Pool
	}
	if s, err := a.session.joined(); err == nil {
		st.Epoch = s.Node.Epoch
		st.Draining = s.Node.State == cluster.NodeDraining
	}
	st.Hold = a.holdOf(st.Pool, st.Hold)
}

// adopt adds blocks to the states of their pools.
func (a *Agent) adopt(ctx context.Context, blocks []registry.Block) error {
	s, err := a.session.joined()
	if err == nil && len(blocks) > 0 {
		err = errors.Join(a.trust.mayGrow(), a.trust.keepSeen()) // the answer may come from a restored store
	}
	if err != nil {
		return err
	}
	for name, own := range ownBlocks(s.Node, blocks) {
		if err := a.guardNew(ctx, name, own); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
		err := a.edit(ctx, name, func(p *local.Pool) error {
			for _, b := range own {
				p.State.Blocks = slices.DeleteFunc(p.State.Blocks, func(o local.Block) bool {
					return o.Block == b.Block
				})
				p.State.Blocks = append(p.State.Blocks, b)
			}
			a.fill(&p.State, name)
			p.State.Boot = a.o.BootID
			return nil
		})
		if err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return nil
}

// guardNew limits the use of new blocks or shared addresses in the kernel before the plugin uses
// them. A kernel that cannot do so is not an error: the node then does not publish its hold.
func (a *Agent) guardNew(ctx context.Context, pool string, blocks []local.Block) error {
	p, ok := a.view.pool(pool)
	end := a.holdOf(p.Pool, nil)
	if !ok || end == nil {
		return nil
	}
	more := map[netip.Prefix]local.Deadline{}
	for _, b := range blocks {
		more[b.Block] = *end
	}
	a.problems.report("guard", a.guard(ctx, more))
	return ctx.Err()
}
