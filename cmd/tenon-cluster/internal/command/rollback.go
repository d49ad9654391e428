package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

func newNonce() string { return rand.Text() }

func putRequest(l moved) local.Request { return local.Request{Owner: l.owner()} }

// back is a reservation to copy into the files of host-local.
type back struct {
	moved
	dir string
}

// runRollback copies the reservations of this node back into the files of host-local. It first
// drains the node, so that no address is allocated meanwhile.
func (m *migration) runRollback(ctx context.Context, s *session, pools []hostlocal.Pool) error {
	node, err := s.registry.Node(ctx, s.settings.Node)
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
		if _, err := s.registry.Update(ctx, node, drain); err != nil {
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
			dir, reserved, ok := place(pools, l.Owner.Network, l.Addr)
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("%s is outside the ranges of host-local for network %s",
					l.Lease, l.Owner.Network))
			case !reserved:
				list = append(list, back{moved{l.Addr, l.Owner.Network, l.Owner.Container, l.Owner.IfName}, dir})
			}
		}
	}
	if len(errs) > 0 {
		return nil, hint(errors.Join(errs...), "detach these containers first; nothing was changed",
			"the configuration with host-local must be in --net-dir, under the name of the network")
	}
	return list, nil
}

// place returns the data directory of the network whose ranges contain an address.
func place(pools []hostlocal.Pool, network string, a netip.Addr) (dir string, reserved, ok bool) {
	for _, p := range pools {
		if p.Network != network {
			continue
		}
		if _, found := p.Find(a); found {
			return p.Dir, true, true
		}
		if slices.ContainsFunc(p.Ranges, func(r hostlocal.Range) bool { return r.Contains(a) }) {
			return p.Dir, false, true
		}
	}
	return "", false, false
}

// reserveBack reserves an address in the files of host-local.
func reserveBack(ctx context.Context, b back) error {
	boot, err := statefile.BootID()
	if err != nil {
		return err
	}
	files, err := filestore.Open(ctx, filestore.Options{Dir: b.dir, Network: b.Network, Create: true,
		BootID: boot})
	if err != nil {
		return err
	}
	owner := ipam.Owner{Container: b.Container, IfName: b.IfName}
	return errors.Join(files.Reserve(ctx, 0, b.Addr, owner), files.Close())
}
