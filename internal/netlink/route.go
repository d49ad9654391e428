package netlink

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Tables and scopes of routes (rtnetlink(7)).
const (
	AllTables = 0   // in a request: every table
	TableMain = 254 // the default of Route.Table

	ScopeUniverse = 0   // through a gateway, or any other
	ScopeLink     = 253 // on the link itself
	ScopeHost     = 254 // on this host

	// DefaultMetric6 is the metric of an IPv6 route without one (include/uapi/linux/ipv6_route.h).
	DefaultMetric6 = 1024
)

// Reserved reports whether a table has a meaning of its own: unspecified, default, main and local.
func Reserved(table int) bool {
	return table == unix.RT_TABLE_UNSPEC || table >= unix.RT_TABLE_DEFAULT &&
		table <= unix.RT_TABLE_LOCAL
}

// Route is a unicast route.
type Route struct {
	Dst      netip.Prefix // host bits are ignored
	GW       netip.Addr   // invalid or unspecified: none; an IPv4 Dst may have an IPv6 gateway
	Src      netip.Addr   // default source address of packets; invalid: the kernel's choice
	Table    int          // 0 is main
	Scope    int          // 0 is universe; has no effect in IPv6
	Priority int          // the metric; 0 is the kernel's default: 0 in IPv4, 1024 in IPv6
	MTU      int          // bytes, along this route; 0: the link's MTU
	AdvMSS   int          // bytes, largest TCP segment to announce; 0: derived from the MTU
	Link     int          // index of the link it leaves through
}

// Gateway returns the gateway, or an invalid address if r is a device route.
func (r Route) Gateway() netip.Addr {
	if !r.GW.IsValid() || r.GW.IsUnspecified() {
		return netip.Addr{}
	}
	return r.GW
}

// Possible reports whether the kernel accepts r: it has no IPv6 routes through an IPv4 gateway.
func (r Route) Possible() bool {
	gw := r.Gateway()
	return !gw.IsValid() || r.Dst.Addr().Is4() || !gw.Is4()
}

// String describes r without its link: 10.0.0.0/8 via 10.1.2.1 metric 7 table 100.
func (r Route) String() string {
	var b strings.Builder
	fmt.Fprint(&b, r.Dst.Masked())
	for _, a := range []struct {
		key   string
		value netip.Addr
	}{{"via", r.Gateway()}, {"src", r.Src}} {
		if a.value.IsValid() {
			fmt.Fprintf(&b, " %s %s", a.key, a.value)
		}
	}
	for _, n := range []struct {
		key   string
		value int
	}{
		{"metric", r.Priority}, {"scope", r.Scope}, {"table", r.Table}, {"mtu", r.MTU},
		{"advmss", r.AdvMSS},
	} {
		if n.value != 0 {
			fmt.Fprintf(&b, " %s %d", n.key, n.value)
		}
	}
	return b.String()
}

// Add creates a route. It neither replaces nor appends, and accepts existing routes to the
// same destination through another gateway (IPv6 joins them to one multipath route). It reports
// whether it added the route: it adds none if an identical one exists.
func (c Routes) Add(r Route) (added bool, err error) {
	if !r.Dst.IsValid() {
		return false, fmt.Errorf("no destination: %w", unix.EINVAL)
	}
	return c.conn.addRoute(r.message(unix.RTPROT_BOOT), 0)
}

// Append is Add for a route behind existing ones to the same destination, which stay in force. Add
// itself puts a route of IPv4 before them, and one of IPv6 behind them.
func (c Routes) Append(r Route) (added bool, err error) {
	if !r.Dst.IsValid() {
		return false, fmt.Errorf("no destination: %w", unix.EINVAL)
	}
	flags := 0
	if r.Dst.Addr().Is4() {
		flags = unix.NLM_F_APPEND
	}
	return c.conn.addRoute(r.message(unix.RTPROT_BOOT), flags)
}

// addRoute reports whether the route was added; flags are NLM_F_… in addition to NLM_F_CREATE.
func (c *Conn) addRoute(m routeMessage, flags int) (added bool, err error) {
	err = c.change(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|flags, m.RtMsg, m.encode()...)
	return err == nil, unless(err, unix.EEXIST)
}

// Delete removes a route of any creator and reports whether it existed.
func (c Routes) Delete(r Route) (existed bool, err error) {
	return c.conn.deleteRoute(r.message(unix.RTPROT_UNSPEC))
}

// deleteRoute reports whether the route existed.
func (c *Conn) deleteRoute(m routeMessage) (existed bool, err error) {
	return deleted(c.change(unix.RTM_DELROUTE, 0, m.RtMsg, m.encode()...))
}

// All lists the unicast routes of both families in a table or in [AllTables]; a multipath route
// counts as one route for each hop.
func (c Routes) All(table int) ([]Route, error) {
	all, err := c.conn.routes(table)
	return unicast(all), err
}

// Through lists the unicast routes of both families and all tables that leave through a link. From
// Linux 4.20 on, the kernel selects them, which is much faster on a host with many routes than All.
func (c Routes) Through(link int) ([]Route, error) {
	all, err := c.conn.routes(AllTables, Uint32(unix.RTA_OIF, uint32(link)))
	routes := unicast(all)
	return slices.DeleteFunc(routes, func(r Route) bool { return r.Link != link }), err
}

func unicast(all []routeMessage) (routes []Route) {
	for _, m := range all {
		if m.Type == unix.RTN_UNICAST {
			routes = append(routes, m.hops()...)
		}
	}
	return routes
}

// routes lists the routes of every type and of both families in a table or in [AllTables], and with the
// attributes of selected, if the kernel selects routes.
func (c *Conn) routes(table int, selected ...Attribute) (all []routeMessage, err error) {
	selection := append([]Attribute{Uint32(unix.RTA_TABLE, uint32(table))}, selected...)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		found, err := list(c, unix.RTM_GETROUTE, unix.RtMsg{Family: family}, selection,
			func(list []routeMessage, b []byte) ([]routeMessage, error) {
				m, err := readRoute(b)
				// A kernel that does not select also lists learned routes.
				wanted := m.Family == family && m.Flags&unix.RTM_F_CLONED == 0
				if err == nil && wanted && (table == AllTables || m.table() == table) {
					list = append(list, m)
				}
				return list, err
			})
		if err := unless(err, unix.ENOENT); err != nil { // except for a table that does not exist
			return nil, fmt.Errorf("list routes: %w", err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Hop is the next hop of a packet.
type Hop struct {
	Link    int  // the index of the link
	Local   bool // the destination is this namespace
	Gateway bool // through a gateway, not directly
}

// Lookup asks the kernel where it would send a packet; ok is false if it would not send it.
func (c Routes) Lookup(dst netip.Addr) (hop Hop, ok bool, err error) {
	about := unix.RtMsg{Family: familyOf(dst), Dst_len: uint8(dst.BitLen())}
	err = c.conn.ask(unix.RTM_GETROUTE, 0, about, []Attribute{Bytes(unix.RTA_DST, dst.AsSlice())},
		func(m []byte) error {
			var route unix.RtMsg
			values, err := ReadBody(m, &route)
			list := attributes(values)
			hop = Hop{
				Link: number(list[unix.RTA_OIF]), Local: route.Type == unix.RTN_LOCAL,
				Gateway: list[unix.RTA_GATEWAY] != nil || list[unix.RTA_VIA] != nil,
			}
			ok = err == nil
			return err
		})
	// These errors mean no route, or a route of type unreachable, prohibit or blackhole.
	err = unless(err, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL)
	if err != nil {
		return Hop{}, false, fmt.Errorf("look up route to %s: %w", dst, err)
	}
	return hop, ok, nil
}
