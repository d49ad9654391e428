package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// JoinVRF makes l a member of a VRF and moves its routes from the main table to the table of the
// VRF. In the process the kernel sets the link down and up, and deletes its routes and most of its
// IPv6 addresses. JoinVRF restores them and compares the result; the error names missing routes. It
// first waits for duplicate address detection, and does not repeat it. Rollback leaves the VRF and
// restores the former state. The caller should lock the space.
func (s Routes) JoinVRF(ctx context.Context, l, vrf Link) error {
	if err := s.space.Addrs.WaitDAD(ctx, l); err != nil {
		return err
	}
	return s.space.changeVRF(ctx, l, vrf.Index, "join vrf "+vrf.Name, func(table int) int {
		if table == TableMain {
			return vrf.VRFTable
		}
		return table
	})
}

// LeaveVRF is the inverse of [Routes.JoinVRF]: it moves the routes of l from the table of the VRF
// to the main table.
func (s Routes) LeaveVRF(ctx context.Context, l, vrf Link) error {
	return s.space.changeVRF(ctx, l, 0, "leave vrf "+vrf.Name, func(table int) int {
		if table == vrf.VRFTable {
			return TableMain
		}
		return table
	})
}

// changeVRF changes the master of l, 0 for none. table maps the former table of a route to the new
// one.
func (s *Space) changeVRF(ctx context.Context, l Link, master int, op string, table func(int) int) error {
	before, err := s.belongings(l)
	if err != nil {
		return err
	}
	after := before
	after.routes = nil
	for _, r := range before.routes {
		if r.ByObject() {
			return fmt.Errorf("%s uses a next hop object, which the kernel deletes when the link changes its VRF: %w", routeOp(l, r.Route), unix.EOPNOTSUPP)
		}
		if to := table(r.Table); to != r.Table {
			r = r.In(to)
		}
		after.routes = append(after.routes, r)
	}
	undo := func() error {
		ctx, cancel := s.tx.undoContext()
		defer cancel()
		return present(s.setMaster(ctx, l, l.Master, before))
	}
	return s.tx.Do(op+" dev "+l.Name, func() error {
		if err := s.setMaster(ctx, l, master, after); err != nil {
			return errors.Join(err, undo())
		}
		return nil
	}, undo)
}

// belongings are the addresses and routes that a link loses when it is set down.
type belongings struct {
	addrs  []netlink.StoredAddr
	routes []StoredRoute
}

func (s *Space) belongings(l Link) (b belongings, err error) {
	if b.addrs, err = s.rt.Addrs.Stored(l); err != nil {
		return b, err
	}
	b.routes, err = s.rt.Routes.Stored(l)
	return b, err
}

// setMaster changes the master of a link and restores its addresses and routes.
func (s *Space) setMaster(ctx context.Context, l Link, master int, want belongings) error {
	return s.withoutDAD(l, want.addrs, func() error {
		if err := s.rt.Links.SetMaster(l, master); err != nil {
			return err
		}
		if err := s.putAddrs(ctx, l, want.addrs); err != nil {
			return err
		}
		return s.putRoutes(l, want.routes)
	})
}

// withoutDAD calls do with duplicate address detection turned off, because it has already been done
// for addrs. If detection is in progress for one of them, or the kernel has no IPv6, nothing is
// turned off.
func (s *Space) withoutDAD(l Link, addrs []netlink.StoredAddr, do func() error) error {
	if slices.ContainsFunc(addrs, func(a netlink.StoredAddr) bool { return a.Tentative }) {
		return do()
	}
	dad := NoDAD(l.Name)
	var restore func() error
	err := s.NS.Visit(func() (err error) {
		restore, err = dad.set()
		return err
	})
	if Exhausted(err) {
		return err
	}
	err = do()
	if restore == nil {
		return err
	}
	return errors.Join(err, s.NS.Visit(restore))
}

// putAddrs restores missing addresses and waits until they can be used, which routes with such a
// source need. It does not wait if the addresses could not be used before because the link has no
// carrier. The last address to be added becomes the first.
func (s *Space) putAddrs(ctx context.Context, l Link, addrs []netlink.StoredAddr) error {
	for _, a := range slices.Backward(addrs) {
		if err := s.rt.Addrs.Restore(a); err != nil {
			return fmt.Errorf("%s: %w", addrOp(l, a.Addr), err)
		}
	}
	if slices.ContainsFunc(addrs, func(a netlink.StoredAddr) bool { return a.Tentative && !a.Optimistic }) {
		return nil
	}
	return s.Addrs.WaitDAD(ctx, l)
}

// putRoutes restores the routes of a link. The kernel has added the routes to the networks of its
// addresses, including routes that had been removed. putRoutes removes these last, because the
// kernel accepts only reachable gateways.
func (s *Space) putRoutes(l Link, want []StoredRoute) error {
	have, err := s.rt.Routes.Stored(l)
	if err != nil {
		return err
	}
	for _, r := range without(want, have) {
		if _, err := s.rt.Routes.Restore(r); err != nil {
			return fmt.Errorf("%s: %w", routeOp(l, r.Route), err)
		}
	}
	for _, r := range slices.Backward(without(have, want)) {
		if r.Dst == LinkLocal { // depends on the carrier
			continue
		}
		if _, err := s.rt.Routes.Remove(r); err != nil {
			return fmt.Errorf("delete %s: %w", routeOp(l, r.Route), err)
		}
	}
	if have, err = s.rt.Routes.Stored(l); err != nil {
		return err
	}
	if lost := without(want, have); len(lost) > 0 {
		return fmt.Errorf("the kernel accepted %s but does not list it, nor %d more", routeOp(l, lost[0].Route), len(lost)-1)
	}
	return nil
}

// without returns the routes that others does not contain.
func without(routes, others []StoredRoute) []StoredRoute {
	return slices.DeleteFunc(slices.Clone(routes), func(r StoredRoute) bool {
		return slices.ContainsFunc(others, func(o StoredRoute) bool { return r.Table == o.Table && r.Same(o) })
	})
}
