package netlink

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// NodeProtocol marks the routes between nodes of a cluster (RTA_PROTOCOL). No other program is
// known to use this number (rtnetlink(7), /etc/iproute2/rt_protos). It differs from [Protocol], so
// that nothing removes these routes together with an attachment.
const NodeProtocol = 117

// RouteType is the effect of a route (rtnetlink(7)).
type RouteType uint8

// The types of routes between nodes.
const (
	RouteUnicast     RouteType = unix.RTN_UNICAST
	RouteBlackhole   RouteType = unix.RTN_BLACKHOLE   // drops packets
	RouteUnreachable RouteType = unix.RTN_UNREACHABLE // drops packets and informs the sender
)

func (t RouteType) String() string {
	switch t {
	case RouteUnicast:
		return "unicast"
	case RouteBlackhole:
		return "blackhole"
	case RouteUnreachable:
		return "unreachable"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// NodeRoute is a route of the table main with [NodeProtocol]. Two routes are equal if the kernel
// treats packets the same way.
type NodeRoute struct {
	Dst    netip.Prefix // without host bits
	Type   RouteType
	Via    netip.Addr // an IPv4 Dst may have an IPv6 gateway (Linux 5.2)
	Link   int        // index of the link, 0 unless the type is [RouteUnicast]
	OnLink bool       // the link reaches Via without a route to it; IPv4 gateways only
	Src    netip.Addr // default source address of packets; invalid: the kernel's choice
	Metric int        // not 0
	MTU    int        // bytes, also for forwarded packets; 0: the link's MTU

	// Other is set in a route that was read and that this type cannot describe, such as a
	// multipath route.
	Other bool
}

// String describes the route without its link as ip-route(8) does.
func (r NodeRoute) String() string {
	var b strings.Builder
	if r.Type != RouteUnicast {
		fmt.Fprintf(&b, "%s ", r.Type)
	}
	fmt.Fprint(&b, r.Dst)
	if r.Via.IsValid() {
		fmt.Fprintf(&b, " via %s", r.Via)
	}
	if r.OnLink {
		b.WriteString(" onlink")
	}
	if r.Src.IsValid() {
		fmt.Fprintf(&b, " src %s", r.Src)
	}
	fmt.Fprintf(&b, " metric %d", r.Metric)
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	return b.String()
}

// AddNodeRoute returns the change that adds a route. It fails with an error for which [ErrTaken] is
// true if any route has the same destination and metric.
func AddNodeRoute(r NodeRoute) Change {
	return r.change("add route ", unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

// ReplaceNodeRoute returns the change that replaces the route with the same destination and metric,
// without a moment in which none exists. That route must have [NodeProtocol].
func ReplaceNodeRoute(r NodeRoute) Change {
	return r.change("replace route ", unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
}

// DeleteNodeRoute returns the change that deletes the route with [NodeProtocol] that has the same
// destination and metric.
func DeleteNodeRoute(r NodeRoute) Change {
	key := NodeRoute{Dst: r.Dst, Metric: r.Metric}
	m := key.message()
	m.Scope = unix.RT_SCOPE_NOWHERE // any
	body := Body(m.RtMsg, m.encode()...)
	return change("delete route "+r.String(), unix.RTM_DELROUTE, 0, body)
}

func (r NodeRoute) change(text string, kind uint16, flags int) Change {
	m := r.message()
	return change(text+r.String(), kind, flags, Body(m.RtMsg, m.encode()...))
}

// lockMTU is the bit of the MTU in RTAX_LOCK. IPv6 heeds the MTU of a route for forwarded packets
// only with it; in IPv4 it would turn path MTU discovery off.
const lockMTU = 1 << unix.RTAX_MTU

func (r NodeRoute) message() routeMessage {
	m := Route{Dst: r.Dst, GW: r.Via, Src: r.Src, Priority: r.Metric, MTU: r.MTU, Link: r.Link}.
		message(NodeProtocol)
	m.Type = uint8(r.Type)
	if r.Link == 0 {
		m = m.without(unix.RTA_OIF)
	}
	if r.OnLink {
		m.Flags |= unix.RTNH_F_ONLINK
	}
	if r.MTU != 0 && r.Dst.Addr().Is6() {
		metrics := m.attributes[unix.RTA_METRICS]
		m = m.with(unix.RTA_METRICS, append(metrics, Uint32(unix.RTAX_LOCK, lockMTU)...))
	}
	return m
}

// NodeRoutes lists the routes with [NodeProtocol] of both families in the table main. The kernel
// selects them, so the cost does not depend on other routes (Linux 4.20 or newer).
func (c Routes) NodeRoutes() (all []NodeRoute, err error) {
	selection := []Attribute{Uint32(unix.RTA_TABLE, TableMain)}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		about := unix.RtMsg{Family: family, Protocol: NodeProtocol}
		found, err := list(c.conn, unix.RTM_GETROUTE, about, selection,
			func(list []NodeRoute, b []byte) ([]NodeRoute, error) {
				m, err := readRoute(b)
				if err == nil && m.ofNodes() && m.Family == family {
					list = append(list, m.nodeRoute())
				}
				return list, err
			})
		// ENOENT: the table does not exist. EOPNOTSUPP: the kernel has no IPv6.
		if err := unless(err, unix.ENOENT, unix.EOPNOTSUPP); err != nil {
			return nil, fmt.Errorf("list routes between nodes: %w", err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// ofNodes reports whether a route is in the table main and has [NodeProtocol].
func (m routeMessage) ofNodes() bool {
	return m.Protocol == NodeProtocol && m.table() == TableMain &&
		m.Flags&unix.RTM_F_CLONED == 0
}

func (m routeMessage) nodeRoute() NodeRoute {
	hop := m.without(unix.RTA_MULTIPATH).hops()[0]
	r := NodeRoute{
		Dst: hop.Dst, Type: RouteType(m.Type), Via: hop.GW, Link: hop.Link, Src: hop.Src,
		Metric: hop.Priority, MTU: hop.MTU, OnLink: m.Flags&unix.RTNH_F_ONLINK != 0,
		Other: m.has(unix.RTA_MULTIPATH, rtaNextHop, unix.RTA_ENCAP),
	}
	if r.Type != RouteUnicast {
		r.Link, r.OnLink = 0, false // the loopback interface, in IPv6
	}
	lock := Find(m.attributes[unix.RTA_METRICS], unix.RTAX_LOCK)
	if r.Dst.Addr().Is6() != (number(lock)&lockMTU != 0) && r.MTU != 0 {
		r.Other = true
	}
	return r
}

// LinkAddr is an address of a link.
type LinkAddr struct {
	Link int // its index
	Addr netip.Prefix
}

// All lists the addresses of all links, in both families.
func (c Addrs) All() ([]LinkAddr, error) {
	all, err := list(c.conn, unix.RTM_GETADDR, unix.IfAddrmsg{}, nil,
		func(list []LinkAddr, m []byte) ([]LinkAddr, error) {
			a, index, err := readAddr(m)
			return append(list, LinkAddr{index, a.Addr}), err
		})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return all, nil
}
