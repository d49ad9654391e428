package kernel

import "github.com/tenon-cni/tenon/internal/netlink"

// StoredRoute is a unicast route through one link with all that the kernel says of it. It can be put back as it was, or
// into another table.
type StoredRoute = netlink.StoredRoute

// OwnRoute returns a route through l that does not exist yet, with [Protocol].
func OwnRoute(l Link, r Route) StoredRoute {
	r.Link = l.Index
	return netlink.OwnRoute(r)
}

// Stored lists the routes in all tables that leave through l and through nothing else, in an order in which they can
// be put; they have to be taken in the reverse one. Of a multipath route of IPv6, which is so many routes with the same
// metric, the hops through l are one; put back they come behind the others.
func (s Routes) Stored(l Link) ([]StoredRoute, error) { return s.space.rt.Routes.Stored(l) }

// Restore adds a stored route behind others to the same destination. An identical one that is there counts as added, and
// stays when the transaction is rolled back.
func (s Routes) Restore(l Link, r StoredRoute) error {
	return s.space.tx.setChange(routeOp(l, r.Route),
		func() (bool, error) { return s.space.rt.Routes.Restore(r) },
		func() error { return errorOf(s.space.rt.Routes.Remove(r)) })
}

// Remove removes a stored route; one that is gone is as good as removed. Undone by putting it back as it was.
func (s Routes) Remove(l Link, r StoredRoute) error {
	return s.space.tx.setChange("delete "+routeOp(l, r.Route),
		func() (bool, error) { return s.space.rt.Routes.Remove(r) },
		func() error { return errorOf(s.space.rt.Routes.Restore(r)) })
}
