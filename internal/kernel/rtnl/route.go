package rtnl

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// Tables and scopes of routes (rtnetlink(7)).
const (
	AllTables = 0   // in a question: every table
	TableMain = 254 // what Route.Table 0 stands for

	ScopeUniverse = 0   // through a gateway, or anywhere
	ScopeLink     = 253 // on the link itself
	ScopeHost     = 254 // on this machine

	// DefaultMetric6 is what an IPv6 route without a metric gets (include/uapi/linux/ipv6_route.h).
	DefaultMetric6 = 1024
)

// Reserved reports whether a table has a meaning of its own: unspecified, default, main and local.
func Reserved(table int) bool {
	return table == unix.RT_TABLE_UNSPEC || table >= unix.RT_TABLE_DEFAULT && table <= unix.RT_TABLE_LOCAL
}

// Route is a unicast route.
type Route struct {
	Dst      netip.Prefix // bits behind the prefix length are ignored
	GW       netip.Addr   // not valid, or unspecified: none
	Src      netip.Addr   // source address that senders who have chosen none get; not valid: the kernel's choice
	Table    int          // 0 is main
	Scope    int          // 0 is universe; has no effect in IPv6
	Priority int          // the metric; 0 is the kernel's default: 0 in IPv4, 1024 in IPv6
	MTU      int          // bytes, along this route; 0: that of the link
	AdvMSS   int          // bytes, largest TCP segment to announce; 0: from the MTU
	Link     int          // index of the link it leaves through
}

// Gateway returns the gateway, or an invalid address if r is a device route.
func (r Route) Gateway() netip.Addr {
	if !r.GW.IsValid() || r.GW.IsUnspecified() {
		return netip.Addr{}
	}
	return r.GW
}

// String describes what r says, but for its link: 10.0.0.0/8 via 10.1.2.1 metric 7 table 100.
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
	}{{"metric", r.Priority}, {"scope", r.Scope}, {"table", r.Table}, {"mtu", r.MTU}, {"advmss", r.AdvMSS}} {
		if n.value != 0 {
			fmt.Fprintf(&b, " %s %d", n.key, n.value)
		}
	}
	return b.String()
}

// AddRoute creates a route beside what is there: it neither replaces nor appends, nor does it mind routes to the same
// destination through another gateway (IPv6 joins them to one multipath route). It reports whether the route was added;
// it is not when an identical one is there.
func (c *Conn) AddRoute(r Route) (added bool, err error) {
	if !r.Dst.IsValid() {
		return false, fmt.Errorf("no destination: %w", unix.EINVAL)
	}
	h, err := c.library()
	if err != nil {
		return false, err
	}
	err = h.RouteAddEcmp(route(r))
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return err == nil, err
}

// DelRoute removes a route and reports whether it was there.
func (c *Conn) DelRoute(r Route) (existed bool, err error) {
	h, err := c.library()
	if err != nil {
		return false, err
	}
	err = h.RouteDel(route(r))
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

// Routes lists the unicast routes of both families in a table or in [AllTables]; of a multipath route one for each hop.
func (c *Conn) Routes(table int) ([]Route, error) {
	var routes []Route
	err := c.eachRoute(table, func(n netlink.Route) {
		if n.Type == unix.RTN_UNICAST {
			routes = append(routes, hops(n)...)
		}
	})
	return routes, err
}

// eachRoute calls do for the routes of every type and of both families in a table or in [AllTables].
func (c *Conn) eachRoute(table int, do func(netlink.Route)) error {
	h, err := c.library()
	if err != nil {
		return err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rs, err := h.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		if errors.Is(err, unix.ENOENT) { // no such table
			continue
		}
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		for _, r := range rs {
			do(r)
		}
	}
	return nil
}

// Lookup asks where the kernel would send a packet: to a link, or, if local, to this machine itself. ok is false if nowhere.
func (c *Conn) Lookup(dst netip.Addr) (link int, local, ok bool, err error) {
	about := &nl.RtMsg{RtMsg: unix.RtMsg{Family: familyOf(dst), Dst_len: uint8(dst.BitLen())}}
	err = c.ask(unix.RTM_GETROUTE, 0, about, []*nl.RtAttr{nl.NewRtAttr(unix.RTA_DST, dst.AsSlice())}, func(m []byte) error {
		if len(m) < unix.SizeofRtMsg {
			return unix.EBADMSG
		}
		ok, local = true, nl.DeserializeRtMsg(m).Type == unix.RTN_LOCAL
		for kind, v := range nlmsg.Attributes(m[unix.SizeofRtMsg:]) {
			if kind == unix.RTA_OIF {
				link = number(v)
			}
		}
		return nil
	})
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) {
		return 0, false, false, nil // no route, or one that says unreachable, prohibit or blackhole
	}
	if err != nil {
		return 0, false, false, fmt.Errorf("look up route to %s: %w", dst, err)
	}
	return link, local, ok, nil
}

func route(r Route) *netlink.Route {
	n := &netlink.Route{
		LinkIndex: r.Link,
		Dst:       ipNet(r.Dst.Masked()),
		Table:     r.Table,
		Scope:     netlink.Scope(r.Scope),
		Priority:  r.Priority,
		MTU:       r.MTU,
		AdvMSS:    r.AdvMSS,
	}
	if gw := r.Gateway(); gw.IsValid() {
		n.Gw = gw.AsSlice()
	}
	if r.Src.IsValid() {
		n.Src = r.Src.AsSlice()
	}
	return n
}

func hops(n netlink.Route) []Route {
	r := Route{
		Dst:      prefix(n.Dst),
		Table:    n.Table,
		Scope:    int(n.Scope),
		Priority: n.Priority,
		MTU:      n.MTU,
		AdvMSS:   n.AdvMSS,
		Link:     n.LinkIndex,
	}
	r.GW, _ = netip.AddrFromSlice(n.Gw)
	r.Src, _ = netip.AddrFromSlice(n.Src)
	if len(n.MultiPath) == 0 {
		return []Route{r}
	}
	rs := make([]Route, len(n.MultiPath))
	for i, hop := range n.MultiPath {
		rs[i] = r
		rs[i].Link = hop.LinkIndex
		rs[i].GW, _ = netip.AddrFromSlice(hop.Gw)
	}
	return rs
}
