package rtnl

import (
	"errors"
	"net/netip"
	"slices"
	"sort"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// StoredRoute is a unicast route through one link with all that the kernel says of it, also what [Route] has no field for:
// who made it, the hops of a multipath route, all metrics. It can be put back as it was, or into another table.
type StoredRoute struct {
	Route // of a multipath route the first hop

	full netlink.Route
}

// OwnRoute returns a route that does not exist yet, with [Protocol].
func OwnRoute(r Route) StoredRoute {
	n := *route(r)
	n.Protocol, n.Type = Protocol, unix.RTN_UNICAST
	if n.Table == 0 {
		n.Table = TableMain
	}
	r.Table = n.Table
	return StoredRoute{Route: r, full: n}
}

// In returns the route as it is to be in another table. It has no end of life there: that of a route that a router has
// announced is put off by its next announcement, but only where that was put first.
func (r StoredRoute) In(table int) StoredRoute {
	r.Table, r.full.Table, r.full.Expires = table, table, 0
	return r
}

// WithPriority returns the route as it is with another metric.
func (r StoredRoute) WithPriority(priority int) StoredRoute {
	r.Priority, r.full.Priority = priority, priority
	return r
}

// Own reports whether the route is one that [OwnRoute] has made.
func (r StoredRoute) Own() bool { return r.full.Protocol == Protocol }

// Gateways are those of all hops.
func (r StoredRoute) Gateways() []netip.Addr {
	var list []netip.Addr
	for _, hop := range hops(r.full) {
		if gw := hop.Gateway(); gw.IsValid() {
			list = append(list, gw)
		}
	}
	return list
}

// Same reports whether r and other say the same, wherever they are and whoever made them.
func (r StoredRoute) Same(other StoredRoute) bool {
	a, b := r.In(AllTables).full, other.In(AllTables).full
	a.Protocol, b.Protocol = 0, 0
	return r.MTU == other.MTU && r.AdvMSS == other.AdvMSS && a.Equal(b)
}

// StoredRoutes lists the routes in all tables that leave through l and through nothing else. Of a multipath route of IPv6,
// which is so many routes with the same metric, the hops through l are one. Those without a gateway come
// first: the kernel takes no route through a gateway that it cannot reach. Otherwise it is the order of preference.
func (c *Conn) StoredRoutes(l Link) ([]StoredRoute, error) {
	var routes []StoredRoute
	err := c.eachRoute(AllTables, func(n netlink.Route) {
		if n.Type != unix.RTN_UNICAST {
			return
		}
		if n.Family == netlink.FAMILY_V6 && n.MultiPath != nil {
			n.MultiPath = slices.DeleteFunc(n.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex != l.Index })
			if len(n.MultiPath) == 0 {
				return
			}
		}
		all := hops(n)
		if slices.ContainsFunc(all, func(hop Route) bool { return hop.Link != l.Index }) {
			return
		}
		routes = append(routes, StoredRoute{Route: all[0], full: request(n)})
	})
	sort.SliceStable(routes, func(i, j int) bool { return !routes[i].depends() && routes[j].depends() })
	return routes, err
}

// depends reports whether a route needs another one, to its gateway.
func (r StoredRoute) depends() bool {
	n := r.full
	return n.Gw != nil || n.Via != nil || n.MultiPath != nil || n.NHID != 0
}

// RouteTables returns the tables that have routes, of any type.
func (c *Conn) RouteTables() (map[int]bool, error) {
	tables := map[int]bool{}
	err := c.eachRoute(AllTables, func(n netlink.Route) { tables[n.Table] = true })
	return tables, err
}

// request returns a route that was read as it has to be asked for.
func request(n netlink.Route) netlink.Route {
	n.Flags &= unix.RTNH_F_ONLINK // the others are states, which the kernel refuses to be told
	for i, hop := range n.MultiPath {
		h := *hop
		h.Flags &= unix.RTNH_F_ONLINK
		n.MultiPath[i] = &h
	}
	return n
}

// PutRoute adds a stored route behind what is there and reports whether it was added; it is not when an identical one is
// there.
func (c *Conn) PutRoute(r StoredRoute) (added bool, err error) {
	h, err := c.library()
	if err != nil {
		return false, err
	}
	err = h.RouteAppend(r.message())
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return err == nil, err
}

// TakeRoute removes a stored route and reports whether it was there.
func (c *Conn) TakeRoute(r StoredRoute) (existed bool, err error) {
	h, err := c.library()
	if err != nil {
		return false, err
	}
	err = h.RouteDel(r.message())
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

// message is the route for a request. One that names a next hop object must not say what the object does.
func (r StoredRoute) message() *netlink.Route {
	n := r.full
	if n.NHID != 0 {
		n.LinkIndex, n.Gw, n.Via, n.MultiPath, n.Encap, n.Flags = 0, nil, nil, nil, nil, 0
	}
	return &n
}
