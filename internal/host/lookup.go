package host

import (
	"net/netip"
	"slices"
)

// Query is a packet for which [Namespace.Lookup] finds the route.
type Query struct {
	Src, Dst netip.Addr // Src may be invalid: the kernel chooses it
	IIF, OIF string     // names; IIF is "" for packets of this host
	Mark     uint32
}

// Found is a route that applies to a packet.
type Found struct {
	Rule  *Rule
	Route *Route
	Hop   Hop // of several hops the first that is usable
}

// Link returns the index of the outgoing link, 0 if the route has none.
func (f Found) Link() int { return f.Hop.Link }

// Lookup finds the route of a packet by the policy rules and tables as they were read; ok is false
// if there is none. A route can be of a type that refuses the packet. Rules with conditions that a
// query lacks do not apply.
func (n *Namespace) Lookup(q Query) (f Found, ok bool) {
	for i := range n.Rules {
		r := &n.Rules[i]
		if !r.applies(q) {
			continue
		}
		switch r.Action {
		case "lookup":
			route, hop := n.inTable(r, q)
			if route == nil || route.Type == "throw" {
				continue
			}
			return Found{r, route, hop}, true
		case "blackhole", "unreachable", "prohibit":
			return Found{Rule: r, Route: &Route{Type: r.Action}}, true
		}
	}
	return f, false
}

// applies reports whether the conditions of a rule hold.
func (r *Rule) applies(q Query) bool {
	if r.Family == "ipv4" != q.Dst.Is4() || r.Other {
		return false
	}
	within := func(p netip.Prefix, a netip.Addr) bool {
		return !p.IsValid() || p.Bits() == 0 || a.IsValid() && p.Contains(a)
	}
	mask := r.Mask
	if mask == 0 && r.Mark != 0 {
		mask = ^uint32(0)
	}
	holds := within(r.Src, q.Src) && within(r.Dst, q.Dst) && (r.OIF == "" || r.OIF == q.OIF) &&
		(r.IIF == "" || r.IIF == q.IIF || r.IIF == "lo" && q.IIF == "") && q.Mark&mask == r.Mark
	return holds != r.Invert
}

// inTable returns the best route of a table: the longest prefix, then the lowest metric, of routes
// with a usable hop.
func (n *Namespace) inTable(r *Rule, q Query) (best *Route, hop Hop) {
	for i := range n.Routes {
		route := &n.Routes[i]
		if route.Table != r.Table || !route.Dst.Contains(q.Dst) || route.Dst.Bits() <= r.Suppress ||
			route.Src.IsValid() && (!q.Src.IsValid() || !route.Src.Contains(q.Src)) {
			continue
		}
		h, usable := n.usable(route, q.OIF)
		if !usable || best != nil && !better(route, best) {
			continue
		}
		best, hop = route, h
	}
	return best, hop
}

func better(a, b *Route) bool {
	if a.Dst.Bits() != b.Dst.Bits() {
		return a.Dst.Bits() > b.Dst.Bits()
	}
	return a.Metric < b.Metric
}

// usable returns the first hop of a route that is not dead, through an interface if it is given.
func (n *Namespace) usable(r *Route, oif string) (h Hop, ok bool) {
	if len(r.Hops) == 0 {
		return h, true // a route that refuses packets
	}
	i := slices.IndexFunc(r.Hops, func(h Hop) bool {
		l := n.Link(h.Link)
		return !slices.Contains(h.Flags, "dead") && (oif == "" || l != nil && l.Name == oif)
	})
	if i < 0 {
		return h, false
	}
	return r.Hops[i], true
}

// AddressType returns the type of the route to an address: "local" for an address of this
// namespace, "unicast", "broadcast", …
func (n *Namespace) AddressType(a netip.Addr) string {
	if a.IsMulticast() {
		return "multicast"
	}
	if n.broadcast(a) {
		return "broadcast"
	}
	if f, ok := n.Lookup(Query{Dst: a}); ok {
		return f.Route.Type
	}
	return "unreachable"
}

// broadcast reports whether an address is a broadcast address: the limited one, or the last of an
// IPv4 network of a link.
func (n *Namespace) broadcast(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	if a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	return slices.ContainsFunc(n.Addrs, func(x Addr) bool {
		const longest = 30 // RFC 3021: none in shorter networks
		return x.Prefix.Addr().Is4() && x.Prefix.Bits() <= longest && last(x.Prefix) == a
	})
}

// last returns the last address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
