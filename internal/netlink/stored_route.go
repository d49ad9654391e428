package netlink

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"

	"golang.org/x/sys/unix"
)

// StoredRoute is a unicast route through one link with all its attributes, including those without
// a field in [Route]: its creator, the hops of a multipath route, all metrics. It can be restored
// unchanged, or into another table.
type StoredRoute struct {
	Route // of a multipath route, the first hop

	full routeMessage
	// The gateways include the gateways of a next hop object; full has only its number.
	gateways []netip.Addr
}

// OwnRoute returns a route that does not exist yet, with [Protocol].
func OwnRoute(r Route) StoredRoute {
	full := r.message(Protocol)
	r.Table = full.table()
	return StoredRoute{Route: r, full: full, gateways: gateways(r)}
}

// In returns the route for another table, without a lifetime: the next announcement of the router
// renews only the route in the original table.
func (r StoredRoute) In(table int) StoredRoute {
	r.Table, r.full = table, r.full.in(table).without(unix.RTA_EXPIRES)
	return r
}

// On returns the route through another link instead of its own. A next hop object cannot be on
// another link, so its only gateway takes its place; the error names an object with several hops.
func (r StoredRoute) On(link int) (StoredRoute, error) {
	if r.ByObject() {
		if len(r.gateways) > 1 {
			return r, fmt.Errorf("route %s has a next hop object with %d hops", r, len(r.gateways))
		}
		r.full = r.full.without(rtaNextHop)
		for _, gw := range r.gateways {
			r.full = r.full.to(gw)
		}
	}
	r.Link = link
	if !r.full.has(unix.RTA_MULTIPATH) {
		r.full = r.full.with(unix.RTA_OIF, native(link))
	}
	r.full = r.full.eachHop(func(h *MultipathHop) bool {
		h.Ifindex = int32(link)
		return true
	})
	return r, nil
}

// WithPriority returns the route with another metric.
func (r StoredRoute) WithPriority(priority int) StoredRoute {
	r.Priority, r.full = priority, r.full.with(unix.RTA_PRIORITY, native(priority))
	if priority == 0 {
		r.full = r.full.without(unix.RTA_PRIORITY)
	}
	return r
}

// Own reports whether [OwnRoute] created the route.
func (r StoredRoute) Own() bool { return r.full.Protocol == Protocol }

// Derived reports whether the kernel derived the route from an address or from a router
// advertisement, and would do so again.
func (r StoredRoute) Derived() bool {
	return slices.Contains([]uint8{unix.RTPROT_KERNEL, unix.RTPROT_RA, unix.RTPROT_REDIRECT},
		r.full.Protocol)
}

// ByObject reports whether the hops of the route are a next hop object (ip-nexthop(8)), which other
// routes may share.
func (r StoredRoute) ByObject() bool { return r.full.has(rtaNextHop) }

// Gateways returns the gateways of all hops.
func (r StoredRoute) Gateways() []netip.Addr { return r.gateways }

func gateways(hops ...Route) (list []netip.Addr) {
	for _, hop := range hops {
		if gw := hop.Gateway(); gw.IsValid() {
			list = append(list, gw)
		}
	}
	return list
}

// Same reports whether r and other are equal, ignoring table and creator. One hop of an IPv6
// multipath route equals a separate route, because routes through other links determine which of
// the two the kernel lists.
func (r StoredRoute) Same(other StoredRoute) bool {
	a, b := r.In(AllTables).full.single(), other.In(AllTables).full.single()
	a.Protocol, b.Protocol = 0, 0
	return a.RtMsg == b.RtMsg && maps.EqualFunc(a.attributes, b.attributes, bytes.Equal)
}

// single returns a multipath route with only one hop as an ordinary route.
func (m routeMessage) single() routeMessage {
	hops := MultipathHops(m.attributes[unix.RTA_MULTIPATH])
	if len(hops) != 1 {
		return m
	}
	m = m.without(unix.RTA_MULTIPATH).with(unix.RTA_OIF, native(int(hops[0].Ifindex)))
	m.Flags |= uint32(hops[0].Flags)
	for kind, v := range Attributes(hops[0].Attributes) {
		m = m.with(kind, v)
	}
	return m
}

// Stored lists the routes in all tables that leave only through l. Each hop of an IPv6 multipath
// route through l is listed as one route, but the hops of a next hop object stay together. Routes
// without a gateway come first, because the kernel refuses a route through a gateway that it cannot
// reach. Otherwise routes are in order of preference.
func (c Routes) Stored(l Link) ([]StoredRoute, error) {
	all, err := c.conn.routes(AllTables)
	if err != nil {
		return nil, err
	}
	var routes []StoredRoute
	for _, m := range all {
		if m.Type != unix.RTN_UNICAST {
			continue
		}
		if m.Family == unix.AF_INET6 && !m.has(rtaNextHop) {
			m = m.through(l.Index)
		}
		hops := m.hops()
		elsewhere := func(hop Route) bool { return hop.Link != l.Index }
		if len(hops) == 0 || slices.ContainsFunc(hops, elsewhere) {
			continue
		}
		routes = append(routes,
			StoredRoute{Route: hops[0], full: m.request(), gateways: gateways(hops...)})
	}
	sort.SliceStable(routes, func(i, j int) bool {
		return !routes[i].depends() && routes[j].depends()
	})
	return routes, nil
}

// rtaNextHop is RTA_NH_ID of linux/rtnetlink.h, the next hop object of the route.
const rtaNextHop = 30

// depends reports whether a route needs another route to reach its gateway.
func (r StoredRoute) depends() bool {
	return r.full.has(unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_MULTIPATH, rtaNextHop)
}

// Tables returns the tables that contain routes, of any type.
func (c Routes) Tables() (map[int]bool, error) {
	all, err := c.conn.routes(AllTables)
	tables := map[int]bool{}
	for _, m := range all {
		tables[m.table()] = true
	}
	return tables, err
}

// through returns a route without the hops of a multipath route that leave through other links.
func (m routeMessage) through(link int) routeMessage {
	return m.eachHop(func(h *MultipathHop) bool { return int(h.Ifindex) == link })
}

// eachHop returns a route without the hops for which keep returns false, and with the changes that
// keep makes to the others.
func (m routeMessage) eachHop(keep func(*MultipathHop) bool) routeMessage {
	multipath, there := m.attributes[unix.RTA_MULTIPATH]
	if !there {
		return m
	}
	kept := []byte{}
	for _, h := range MultipathHops(multipath) {
		if keep(&h) {
			kept = h.appendTo(kept)
		}
	}
	return m.with(unix.RTA_MULTIPATH, kept)
}

// request returns the request that creates a route that was read. It omits states, which the kernel
// refuses in requests.
func (m routeMessage) request() routeMessage {
	const settings = unix.RTNH_F_ONLINK // the other flags are states
	m.Flags &= settings
	m = m.eachHop(func(h *MultipathHop) bool {
		h.Flags &= settings
		return true
	})
	if left := secondsLeft(m.attributes[unix.RTA_CACHEINFO]); left > 0 {
		m = m.with(unix.RTA_EXPIRES, native(left))
	}
	m = m.without(unix.RTA_CACHEINFO)
	if bytes.Equal(m.attributes[unix.RTA_PREF], []byte{0}) { // medium, the default
		m = m.without(unix.RTA_PREF)
	}
	if m.has(rtaNextHop) { // the other attributes describe the object
		m.Flags = 0
		m = m.without(unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_MULTIPATH,
			unix.RTA_ENCAP, unix.RTA_ENCAP_TYPE)
	}
	return m
}

// secondsLeft decodes struct rta_cacheinfo (linux/rtnetlink.h) of an IPv6 route; 0 means forever. A
// route that has expired but still exists has one second left, as does a route with less than one.
func secondsLeft(cacheInfo []byte) int {
	const at, ticksPerSecond = 8, 100 // USER_HZ
	if len(cacheInfo) < at+4 {
		return 0
	}
	ticks := int(int32(number(cacheInfo[at : at+4])))
	if ticks == 0 {
		return 0
	}
	return max(ticks/ticksPerSecond, 1)
}

// Restore adds a stored route after existing ones and reports whether it did: it adds none if an
// identical one exists.
func (c Routes) Restore(r StoredRoute) (added bool, err error) {
	return c.conn.addRoute(r.full, unix.NLM_F_APPEND)
}

// Remove removes a stored route and reports whether it existed.
func (c Routes) Remove(r StoredRoute) (existed bool, err error) {
	return c.conn.deleteRoute(r.full)
}
