package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// back is a reservation to copy into the files of host-local.
type back struct {
	moved
	pool  *hostlocal.Pool
	stale *ipam.Lease // an outdated reservation of the address
}

// runRollback copies the reservations of this node back into the files of host-local. It first
// drains the node, so that no address is allocated meanwhile.
func (m *migration) runRollback(ctx context.Context, s *session, pools []hostlocal.Pool) error {
	node, err := s.registry.Nodes.Read(ctx, s.settings.Node)
	if err != nil {
		return err
	}
	if _, err := m.plannedBack(ctx, s, pools); err != nil {
		return err
	}
	if err := m.confirmed(fmt.Sprintf("Drain node %s and copy its reservations to host-local?",
		node.Name)); err != nil {
		return err
	}
	if node.State == cluster.NodeActive {
		drain := func(n *cluster.Node) { n.State = cluster.NodeDraining }
		if _, err := s.registry.Nodes.Update(ctx, node, drain); err != nil {
			return err
		}
	}
	if err := markDraining(ctx, s.local()); err != nil {
		return err
	}
	list, err := m.plannedBack(ctx, s, pools)
	if err != nil {
		return err
	}
	for _, b := range list {
		if err := reserveBack(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", b.Addr, err)
		}
	}
	return m.print(map[string]any{"node": node.Name, "copied": len(list)}, func() error {
		m.printf("copied %s; node %s is draining\n", plural(len(list), "reservation"), node.Name)
		m.hint("switch the network configuration to host-local; the blocks stay claimed, so that no " +
			"other node uses the addresses")
		return nil
	})
}

// markDraining makes the plugin refuse allocations at once, before the agent notices.
func markDraining(ctx context.Context, store *local.Store) error {
	return eachPool(ctx, store, func(_ string, p *local.Pool) error {
		if p.State.Pool.Name == "" {
			return nil
		}
		p.State.Draining = true
		return p.Save()
	})
}

// plannedBack returns the reservations that host-local lacks. It fails if one lies outside the
// ranges of host-local for its network.
func (m *migration) plannedBack(
	ctx context.Context, s *session, pools []hostlocal.Pool,
) ([]back, error) {
	f, err := readFiles(ctx, s.local())
	if err != nil {
		return nil, err
	}
	var list []back
	var errs []error
	for _, p := range f.pools {
		for _, l := range p.leases {
			b := back{moved: newMoved(l.Owner.Network, l.Lease)}
			b.pool, b.stale = place(pools, b.moved)
			switch {
			case b.pool == nil:
				errs = append(errs, fmt.Errorf("%s is outside the ranges of host-local for network %s",
					l.Lease, b.Network))
			case b.stale == nil || (lease{*b.stale}).earlier() ||
				newMoved(b.Network, *b.stale) != b.moved:
				list = append(list, b)
			}
		}
	}
	if len(errs) > 0 {
		return nil, hint(errors.Join(errs...), "detach these containers first; nothing was changed",
			"the configuration with host-local must be in --net-dir, under the name of the network")
	}
	return list, nil
}

// place returns the pool of host-local with a reservation of the address, or with a range that
// contains it, or nil.
func place(pools []hostlocal.Pool, l moved) (*hostlocal.Pool, *ipam.Lease) {
	for i := range pools {
		p := &pools[i]
		if p.Network != l.Network {
			continue
		}
		if lease, found := p.Find(l.Addr); found {
			return p, &lease
		}
		if slices.ContainsFunc(p.Ranges, func(r hostlocal.Range) bool { return r.Contains(l.Addr) }) {
			return p, nil
		}
	}
	return nil, nil
}

// reserveBack reserves an address in the files of host-local, in place of a stale reservation.
func reserveBack(ctx context.Context, b back) error {
	boot, err := statefile.BootID()
	if err != nil {
		return err
	}
	files, err := filestore.Open(ctx, filestore.Options{Dir: b.pool.Dir, Network: b.Network,
		Create: true, BootID: boot})
	if err != nil {
		return err
	}
	if b.stale != nil {
		err = files.Free(ctx, *b.stale)
	}
	if err == nil {
		err = files.Reserve(ctx, 0, b.Addr, ipam.Owner{Container: b.Container, IfName: b.IfName})
	}
	return errors.Join(err, files.Close())
}
