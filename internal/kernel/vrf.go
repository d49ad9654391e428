package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// JoinVRF makes l a member of a VRF, with its routes of the main table in that of the VRF. The kernel sets the link down and
// up for that, and forgets its routes and most of its IPv6 addresses. Both are put back as they were, and compared: the error
// says what is missing. Addresses that duplicates are being looked for are waited for before, and need not be looked for
// again. Undone by leaving the VRF, with everything as it was before. The space should be locked.
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

// LeaveVRF is the inverse of [Routes.JoinVRF]: the routes of l in the table of the VRF are in the main table afterwards.
func (s Routes) LeaveVRF(ctx context.Context, l, vrf Link) error {
	return s.space.changeVRF(ctx, l, 0, "leave vrf "+vrf.Name, func(table int) int {
		if table == vrf.VRFTable {
			return TableMain
		}
		return table
	})
}

// changeVRF gives l another master, 0 for none. Its routes move to the table that table returns for theirs.
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

// belongings are what the kernel forgets of a link that is set down.
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

// setMaster changes the master of a link and puts back what belongs to it.
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

// withoutDAD calls do, during which no duplicates of addresses are looked for, as that has been done: unless it still goes on
// for one of them. Without IPv6 there is nothing to look for.
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

// putAddrs puts back the addresses that are gone. When it returns they can be used, as routes that have one as their source
// demand: unless they could not before, because the link has no carrier. The last to be added becomes the first.
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

// putRoutes makes the routes of a link those that are wanted. The kernel has made those to the networks of its addresses, also
// where somebody had removed them: they go last, as it takes no gateway that it cannot reach.
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
		if r.Dst == LinkLocal { // comes and goes with the carrier
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
		return fmt.Errorf("%s is not there although the kernel has accepted it, and so are %d more", routeOp(l, lost[0].Route), len(lost)-1)
	}
	return nil
}

// without returns the routes that are none of the others.
func without(routes, others []StoredRoute) []StoredRoute {
	return slices.DeleteFunc(slices.Clone(routes), func(r StoredRoute) bool {
		return slices.ContainsFunc(others, func(o StoredRoute) bool { return r.Table == o.Table && r.Same(o) })
	})
}
