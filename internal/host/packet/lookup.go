package packet

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
)

// NamespaceLookup answers the questions of rules with the routes of a namespace.
type NamespaceLookup struct{ *host.Namespace }

// routeTypes are the numbers of types of routes (RTN_…).
var routeTypes = map[string]uint32{
	"unicast": unix.RTN_UNICAST, "local": unix.RTN_LOCAL, "broadcast": unix.RTN_BROADCAST,
	"anycast": unix.RTN_ANYCAST, "multicast": unix.RTN_MULTICAST, "blackhole": unix.RTN_BLACKHOLE,
	"unreachable": unix.RTN_UNREACHABLE, "prohibit": unix.RTN_PROHIBIT, "throw": unix.RTN_THROW,
}

// Type implements [Lookup].
func (n NamespaceLookup) Type(p *Packet, source bool) uint32 {
	a := p.Dst
	if source {
		a = p.Src
	}
	return routeTypes[n.AddressType(a)]
}

// Own implements [Lookup].
func (n NamespaceLookup) Own(index int, ipv4 bool) (netip.Addr, bool) {
	for _, a := range n.Of(index) {
		if a.Prefix.Addr().Is4() == ipv4 && a.Scope == "global" {
			return a.Prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// Out implements [Lookup].
func (n NamespaceLookup) Out(p *Packet, source bool) (out Interface, ok bool) {
	q := host.Query{Dst: p.Dst, Mark: p.Mark}
	if source {
		q.Dst, q.Src = p.Src, p.Dst
	}
	f, ok := n.Lookup(q)
	if !ok {
		return out, false
	}
	l := n.Link(f.Link())
	if l == nil {
		return out, false
	}
	return InterfaceOf(n.Namespace, l), true
}

// InterfaceOf describes a link for rules.
func InterfaceOf(n *host.Namespace, l *host.Link) Interface {
	i := Interface{Index: l.Index, Name: l.Name, Kind: l.Kind, Loopback: l.Name == "lo"}
	if m := n.Link(l.Master); m != nil && m.Bridge != nil {
		i.Bridge = m.Name
	}
	return i
}
