package netlink

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// routeMessage is a route as the kernel encodes it, with all attributes, including those unknown to
// this package. It is immutable.
type routeMessage struct {
	unix.RtMsg
	attributes map[uint16][]byte // RTA_…
}

func readRoute(m []byte) (r routeMessage, err error) {
	values, err := ReadBody(slices.Clone(m), &r.RtMsg)
	r.attributes = attributes(values)
	return r, err
}

// encode returns the attributes of a route; its RtMsg is sent before them. The kernel requires the
// nested flag on some kinds of tunnels, and omits it in its answers.
func (m routeMessage) encode() (list []Attribute) {
	for _, kind := range slices.Sorted(maps.Keys(m.attributes)) {
		v := m.attributes[kind]
		if kind == unix.RTA_ENCAP {
			kind |= unix.NLA_F_NESTED
		}
		list = append(list, Bytes(kind, v))
	}
	return list
}

// with returns the route with one attribute added or changed.
func (m routeMessage) with(kind uint16, value []byte) routeMessage {
	m.attributes = maps.Clone(m.attributes)
	m.attributes[kind] = value
	return m
}

// without returns the route without the given attributes.
func (m routeMessage) without(kinds ...uint16) routeMessage {
	m.attributes = maps.Clone(m.attributes)
	for _, kind := range kinds {
		delete(m.attributes, kind)
	}
	return m
}

// has reports whether the route has one of these attributes.
func (m routeMessage) has(kinds ...uint16) bool {
	return slices.ContainsFunc(kinds, func(kind uint16) bool { return m.attributes[kind] != nil })
}

func (m routeMessage) table() int { return number(m.attributes[unix.RTA_TABLE]) }

// in returns the route in another table. RtMsg has room only for tables up to 255.
func (m routeMessage) in(table int) routeMessage {
	m.Table = unix.RT_TABLE_UNSPEC
	return m.with(unix.RTA_TABLE, native(table))
}

// to returns the route through a gateway.
func (m routeMessage) to(gw netip.Addr) routeMessage {
	if familyOf(gw) == m.Family {
		return m.with(unix.RTA_GATEWAY, gw.AsSlice())
	}
	return m.with(unix.RTA_VIA, via(gw))
}

// message returns the request for a route with a protocol.
func (r Route) message(protocol uint8) routeMessage {
	m := routeMessage{
		RtMsg: unix.RtMsg{
			Family: familyOf(r.Dst.Addr()), Dst_len: uint8(r.Dst.Bits()),
			Protocol: protocol, Scope: uint8(r.Scope), Type: unix.RTN_UNICAST,
		},
		attributes: map[uint16][]byte{unix.RTA_OIF: native(r.Link)},
	}
	if r.Dst.Bits() > 0 {
		m.attributes[unix.RTA_DST] = r.Dst.Masked().Addr().AsSlice()
	}
	if gw := r.Gateway(); gw.IsValid() {
		m = m.to(gw)
	}
	if r.Src.IsValid() {
		m.attributes[unix.RTA_PREFSRC] = r.Src.AsSlice()
	}
	if r.Priority != 0 {
		m.attributes[unix.RTA_PRIORITY] = native(r.Priority)
	}
	if r.MTU != 0 {
		m.attributes[unix.RTA_METRICS] = Uint32(unix.RTAX_MTU, uint32(r.MTU))
	}
	if r.AdvMSS != 0 {
		mss := Uint32(unix.RTAX_ADVMSS, uint32(r.AdvMSS))
		m.attributes[unix.RTA_METRICS] = append(m.attributes[unix.RTA_METRICS], mss...)
	}
	return m.in(cmp.Or(r.Table, TableMain))
}

// hops returns one route for each hop of a multipath route; any other route is its only hop.
func (m routeMessage) hops() []Route {
	dst, ok := netip.AddrFromSlice(m.attributes[unix.RTA_DST])
	if !ok { // a default route
		dst = netip.IPv6Unspecified()
		if m.Family == unix.AF_INET {
			dst = netip.IPv4Unspecified()
		}
	}
	r := Route{
		Dst:      netip.PrefixFrom(dst, int(m.Dst_len)),
		GW:       gatewayIn(m.attributes),
		Table:    m.table(),
		Scope:    int(m.Scope),
		Priority: number(m.attributes[unix.RTA_PRIORITY]),
		Link:     number(m.attributes[unix.RTA_OIF]),
	}
	r.Src, _ = netip.AddrFromSlice(m.attributes[unix.RTA_PREFSRC])
	metrics := attributes(m.attributes[unix.RTA_METRICS])
	r.MTU, r.AdvMSS = number(metrics[unix.RTAX_MTU]), number(metrics[unix.RTAX_ADVMSS])
	multipath := m.attributes[unix.RTA_MULTIPATH]
	if multipath == nil {
		return []Route{r}
	}
	var hops []Route
	for _, h := range MultipathHops(multipath) {
		r.Link, r.GW = int(h.Ifindex), Gateway(h.Attributes)
		hops = append(hops, r)
	}
	return hops
}

// via is the value of RTA_VIA, a gateway of another family than the destination's: struct rtvia of
// linux/rtnetlink.h.
func via(gw netip.Addr) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, uint16(familyOf(gw))), gw.AsSlice()...)
}

// gatewayIn is [Gateway] of decoded attributes.
func gatewayIn(attributes map[uint16][]byte) netip.Addr {
	return gateway(attributes[unix.RTA_GATEWAY], attributes[unix.RTA_VIA])
}

// Gateway returns the gateway among the attributes of a route or a hop, of either family; it is
// invalid if there is none.
func Gateway(attributes []byte) netip.Addr {
	return gateway(Find(attributes, unix.RTA_GATEWAY), Find(attributes, unix.RTA_VIA))
}

func gateway(own, via []byte) netip.Addr {
	if len(via) > 2 {
		own = via[2:]
	}
	gw, _ := netip.AddrFromSlice(own)
	return gw
}

// MultipathHop is one hop of a multipath route.
type MultipathHop struct {
	unix.RtNexthop
	Attributes []byte // RTA_…
}

// MultipathHops decodes the value of RTA_MULTIPATH.
func MultipathHops(b []byte) (hops []MultipathHop) {
	for {
		var h MultipathHop
		_, err := ReadBody(b, &h.RtNexthop)
		if err != nil || h.Len < unix.SizeofRtNexthop || int(h.Len) > len(b) {
			return hops
		}
		h.Attributes = b[unix.SizeofRtNexthop:h.Len]
		hops = append(hops, h)
		b = b[min(Align(int(h.Len)), len(b)):]
	}
}

// appendTo is the inverse of MultipathHops.
func (h MultipathHop) appendTo(b []byte) []byte {
	h.Len = uint16(unix.SizeofRtNexthop + len(h.Attributes))
	b = append(b, Body(h.RtNexthop)...)
	b = append(b, h.Attributes...)
	return append(b, make([]byte, Align(len(b))-len(b))...)
}

// native encodes a number in native byte order, as in most attributes.
func native(n int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
