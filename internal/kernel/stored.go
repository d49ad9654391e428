package kernel

import "github.com/tenon-cni/tenon/internal/netlink"

// StoredRoute is a unicast route through one link with all its attributes. It can be restored
// unchanged, or in another table.
type StoredRoute = netlink.StoredRoute

// OwnRoute returns a new route through l, with [Protocol].
func OwnRoute(l Link, r Route) StoredRoute {
	r.Link = l.Index
	return netlink.OwnRoute(r)
}

// Stored lists the routes in all tables that use no other link than l, in an order in which they
// can be added; they must be removed in reverse order. IPv6 represents a multipath route by several
// routes with the same metric; of such a route, Stored lists the hops through l as one. Restored
// hops follow the others.
func (s Routes) Stored(l Link) ([]StoredRoute, error) { return s.space.rt.Routes.Stored(l) }

// Restore adds a stored route after other routes to the same destination. If an identical one
// exists, Restore succeeds, and Rollback keeps the route.
func (s Routes) Restore(l Link, r StoredRoute) error {
	return s.space.tx.setChange(routeOp(l, r.Route),
		func() (bool, error) { return s.space.rt.Routes.Restore(r) },
		func() error { return errorOf(s.space.rt.Routes.Remove(r)) })
}

// Remove removes a stored route. It succeeds if the route does not exist. Rollback restores it
// unchanged.
func (s Routes) Remove(l Link, r StoredRoute) error {
	return s.space.tx.setChange("delete "+routeOp(l, r.Route),
		func() (bool, error) { return s.space.rt.Routes.Remove(r) },
		func() error { return errorOf(s.space.rt.Routes.Restore(r)) })
}
