package why

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// transmit sends the packet through a link to the next hop.
func (w *walk) transmit(n *host.Namespace, link *host.Link, next netip.Addr) bool {
	if !w.works(n, link) {
		return false
	}
	if link.Kind == "bridge" {
		return w.bridge(n, link, nil, next)
	}
	other, peer := w.host.Peer(n, link)
	if link.Kind != "veth" || peer == nil {
		return w.depart(n, link, next)
	}
	if !w.neighbour(n, link, other, next) {
		return false
	}
	w.path = append(w.path, crossing{n, other, link, peer, w.reply, w.packet.Src})
	return w.received(other, peer, next)
}

// works checks the state of a link.
func (w *walk) works(n *host.Namespace, link *host.Link) bool {
	if !link.Up() {
		return w.stop(n, "link", cause("link.down", "%s is down", w.linkTitle(n, link)).
			fix("%s", w.prefix(n)+"ip link set "+link.Name+" up").
			see("ip link show %s", link.Name))
	}
	if other, peer := w.host.Peer(n, link); link.Kind == "veth" && peer != nil && !peer.Up() {
		return w.stop(other, "link", cause("link.down", "%s is down", w.linkTitle(other, peer)).
			fix("%s", w.prefix(other)+"ip link set "+peer.Name+" up").
			see("ip link show %s", peer.Name))
	}
	return true
}

// linkTitle names a link and what it is for.
func (w *walk) linkTitle(n *host.Namespace, l *host.Link) string {
	if other, peer := w.host.Peer(n, l); n == w.host.Own() && l.Kind == "veth" && peer != nil && other != n {
		return fmt.Sprintf("%s, the host-side veth of %s,", l.Name, w.known.Name(other))
	}
	return fmt.Sprintf("%s %s", l.Name, w.in(n))
}

// prefix returns the command that enters a namespace.
func (w *walk) prefix(n *host.Namespace) string {
	if n == w.host.Own() {
		return ""
	}
	if len(n.Paths) > 0 {
		return "nsenter --net=" + n.Paths[0] + " "
	}
	return fmt.Sprintf("(in %s) ", w.known.Name(n))
}

// depart ends the walk at a link to another host.
func (w *walk) depart(n *host.Namespace, link *host.Link, next netip.Addr) bool {
	if !w.resolved(n, link, next) {
		return false
	}
	return w.end(n, "uplink", Left, "leaves through %s to %s; this host does not know the rest of the way", link.Name, next)
}

// resolved checks the neighbour entry of a next hop on another host.
func (w *walk) resolved(n *host.Namespace, link *host.Link, next netip.Addr) bool {
	i := neighbour(n, link, next)
	if i != nil && (i.State == "failed" || i.State == "incomplete") {
		return w.stop(n, "neighbour", cause("neighbour.failed",
			"the next hop %s on %s does not answer%s", next, link.Name, w.byRule()).
			fix("correct the route, or look at the router").
			see("ip neigh show %s", next))
	}
	return true
}

// byRule names the policy rule that chose the last route, unless it is one of the usual ones.
func (w *walk) byRule() string {
	r := w.found.Rule
	if r == nil || r.Priority == 0 || r.Table == tableMain {
		return ""
	}
	return fmt.Sprintf("; rule %d sends the packet to table %d", r.Priority, r.Table)
}

const tableMain = 254

func neighbour(n *host.Namespace, link *host.Link, a netip.Addr) *host.Neighbour {
	i := slices.IndexFunc(n.Neighbours, func(x host.Neighbour) bool { return x.Link == link.Index && x.Addr == a })
	if i < 0 {
		return nil
	}
	return &n.Neighbours[i]
}

// neighbour checks that the owner of the next hop answers at the other end of a link, and that the
// neighbour entry has its MAC address.
func (w *walk) neighbour(n *host.Namespace, link *host.Link, other *host.Namespace, next netip.Addr) bool {
	owner, _ := w.owner(other, link, next)
	if owner == nil {
		return w.noOwner(n, link.Name, other, w.bridgeAt(n, link), next)
	}
	entry := neighbour(n, link, next)
	if entry == nil || entry.MAC == "" || entry.State == "failed" || entry.MAC == owner.MAC {
		return true
	}
	return w.stop(n, "neighbour", w.wrongMAC(n, link, entry, owner))
}

// wrongMAC explains a neighbour entry with another MAC address than the owner of the address.
func (w *walk) wrongMAC(n *host.Namespace, link *host.Link, e *host.Neighbour, owner *host.Link) Culprit {
	c := Culprit{ID: "neighbour.stale", Fix: "ip neigh flush dev " + link.Name,
		See: fmt.Sprintf("ip neigh show %s", e.Addr)}
	var holders []string
	for i := range w.host.Namespaces {
		x := &w.host.Namespaces[i]
		for _, l := range x.Links {
			if l.MAC == e.MAC && x.Holder(e.Addr) != nil {
				c.ID = "address.duplicate"
				holders = append(holders, w.known.Name(x))
			}
		}
	}
	if holders != nil {
		c.Text = fmt.Sprintf("%s is on several links; the neighbour entry %s points to %s", e.Addr, w.in(n),
			strings.Join(holders, ", "))
		c.Fix = "remove the address from one of them, and look for a second IPAM plugin"
		return c
	}
	c.Text = fmt.Sprintf("the neighbour entry %s for %s has the MAC address %s, %s has %s", w.in(n), e.Addr,
		e.MAC, owner.Name, owner.MAC)
	return c
}

// owner finds the link that has an address at the other end of a link, in its namespace or, through
// a bridge, in another one.
func (w *walk) owner(other *host.Namespace, link *host.Link, a netip.Addr) (*host.Link, *host.Namespace) {
	if l := other.Holder(a); l != nil {
		return l, other
	}
	for i := range other.Links {
		l := &other.Links[i]
		if l.Port == nil {
			continue
		}
		ns, peer := w.host.Peer(other, l)
		if peer == nil || ns == other {
			continue
		}
		if h := ns.Holder(a); h != nil && h.Index == peer.Index {
			return h, ns
		}
	}
	return nil, nil
}

// received processes a frame for the next hop that came through a link.
func (w *walk) received(n *host.Namespace, in *host.Link, next netip.Addr) bool {
	if master := n.Link(in.Master); master != nil && master.Kind == "bridge" {
		return w.bridge(n, master, in, next)
	}
	return w.arrive(n, in)
}

// bridge forwards a frame: from a port or, if in is nil, from the bridge itself.
func (w *walk) bridge(n *host.Namespace, b, in *host.Link, next netip.Addr) bool {
	if !b.Up() {
		return w.stop(n, "bridge", cause("link.down", "bridge %s is down", b.Name).
			fix("%s", "ip link set "+b.Name+" up"))
	}
	if in != nil && !w.port(n, b, in) {
		return false
	}
	if holder := n.Holder(next); holder != nil && (holder == b || holder.Lower == b.Index) {
		if in == nil {
			return w.arrive(n, b)
		}
		if !w.sameVLAN(n, b, in, nil) {
			return false
		}
		if holder == b && w.filtersBridged(n, b) {
			return w.translatedOnBridge(n, b, in)
		}
		w.ok(n, "bridge", "%s forwards to %s", in.Name, b.Name)
		return w.arrive(n, b)
	}
	return w.toPort(n, b, in, next)
}

// filtersBridged reports whether br_netfilter passes the frames of a bridge to the network layer.
func (w *walk) filtersBridged(n *host.Namespace, b *host.Link) bool {
	return n.Settings["net.bridge.bridge-nf-call-"+w.tables()] == "1" || b.Bridge.Call
}

// translatedOnBridge processes a frame to the bridge itself with br_netfilter: if the hook prerouting
// translates the destination to an address behind the same bridge, the bridge forwards the frame.
func (w *walk) translatedOnBridge(n *host.Namespace, b, in *host.Link) bool {
	p := w.packet
	before := p.Dst
	p.In, p.Out = packet.InterfaceOf(n, b), packet.Interface{}
	if !w.prerouting(n) {
		return false
	}
	f, ok := n.Lookup(host.Query{Src: p.Src, Dst: p.Dst, IIF: b.Name, Mark: p.Mark})
	if p.Dst == before || !ok || f.Link() != b.Index {
		w.bridged = true
		w.ok(n, "bridge", "%s forwards to %s", in.Name, b.Name)
		return w.arrive(n, b)
	}
	w.bridged = true
	return w.toPort(n, b, in, p.Dst)
}

// port checks the state of a port.
func (w *walk) port(n *host.Namespace, b, l *host.Link) bool {
	if l.Port.State == "forwarding" {
		return true
	}
	c := cause("bridge.state", "port %s of %s is in state %s", l.Name, b.Name, l.Port.State).
		see("bridge link show dev %s", l.Name)
	if b.Bridge.STP {
		c.ID = "bridge.stp"
		c.Text = fmt.Sprintf("STP keeps %s in state %s for 2 × forward_delay (%d s)", l.Name, l.Port.State,
			2*b.Bridge.ForwardDelay/100)
		c.Fix = fmt.Sprintf("ip link set %s type bridge stp_state 0", b.Name)
	}
	return w.stop(n, "bridge", c)
}

// sameVLAN checks that two ports are in one VLAN; out is nil for the bridge itself.
func (w *walk) sameVLAN(n *host.Namespace, b, in, out *host.Link) bool {
	if !b.Bridge.VLANFiltering {
		return true
	}
	list, name := b.Bridge.VLANs, b.Name
	if out != nil {
		list, name = out.Port.VLANs, out.Name
	}
	from := host.PVID(b.Bridge.VLANs)
	inName := b.Name
	if in != nil {
		from, inName = host.PVID(in.Port.VLANs), in.Name
	}
	if slices.ContainsFunc(list, func(v host.VLAN) bool { return v.ID == from }) {
		return true
	}
	return w.stop(n, "bridge", cause("bridge.vlan",
		"port %s has PVID %d; %s is not in VLAN %d (its PVID is %d)",
		inName, from, name, from, host.PVID(list)).
		fix("put both into one VLAN").
		see("bridge vlan show"))
}

// toPort forwards a frame to the port behind which the next hop is.
func (w *walk) toPort(n *host.Namespace, b, in *host.Link, next netip.Addr) bool {
	out, other, peer := w.portOf(n, b, next)
	if out == nil {
		return w.unknownOnBridge(n, b, in, next)
	}
	if in == nil { // the namespace itself sends
		if e := neighbour(n, b, next); e != nil && e.MAC != "" && e.State != "failed" {
			if holder := other.Holder(next); holder != nil && holder.MAC != e.MAC {
				return w.stop(n, "neighbour", w.wrongMAC(n, b, e, holder))
			}
		}
	}
	if f := w.misled(n, b, out, other.Holder(next)); f != nil {
		return w.stop(n, "bridge", *f)
	}
	if !w.works(n, out) || !w.port(n, b, out) || !w.sameVLAN(n, b, in, out) {
		return false
	}
	if in != nil {
		switch {
		case in == out && !out.Port.Hairpin:
			return w.stop(n, "bridge", cause("bridge.hairpin",
				"hairpin is off on %s, so the bridge does not send the frame back to the port that it came from",
				out.Name).
				fix("bridge link set dev %s hairpin on; set hairpinMode in the configuration", out.Name).
				see("bridge -d link show dev %s", out.Name))
		case in.Port.Isolated && out.Port.Isolated:
			return w.stop(n, "bridge", cause("bridge.isolated",
				"both ports, %s and %s, are isolated; the bridge never forwards between isolated ports",
				in.Name, out.Name).
				fix("bridge link set dev %s isolated off, or drop portIsolation", out.Name).
				see("bridge -d link show"))
		}
		if !w.bridgeRules(n, b, in, out) {
			return false
		}
		w.ok(n, "bridge", "%s forwards from %s to %s", b.Name, in.Name, out.Name)
	} else {
		w.ok(n, "bridge", "%s forwards to %s", b.Name, out.Name)
	}
	w.path = append(w.path, crossing{n, other, out, peer, w.reply, w.packet.Src})
	return w.received(other, peer, next)
}

// portOf finds the port behind which an address is.
func (w *walk) portOf(n *host.Namespace, b *host.Link, next netip.Addr) (*host.Link, *host.Namespace, *host.Link) {
	for i := range n.Links {
		l := &n.Links[i]
		if l.Master != b.Index || l.Port == nil {
			continue
		}
		other, peer := w.host.Peer(n, l)
		if peer == nil {
			continue
		}
		if h := other.Holder(next); h != nil && h.Index == peer.Index {
			return l, other, peer
		}
	}
	return nil, nil, nil
}

// misled returns the cause if the forwarding database sends the frames of a link to another port.
func (w *walk) misled(n *host.Namespace, b, out, holder *host.Link) *Culprit {
	for _, f := range n.Forwarding {
		at := n.Link(f.Link)
		if holder == nil || f.MAC != holder.MAC || f.Local || at == nil || at.Master != b.Index || at == out ||
			!f.Static && !f.Sticky {
			continue
		}
		kind := "static"
		if f.Sticky {
			kind = "sticky"
		}
		return new(cause("bridge.fdb",
			"a %s entry in the forwarding database sends frames for %s to %s instead of %s",
			kind, f.MAC, at.Name, out.Name).
			fix("bridge fdb del %s dev %s master", f.MAC, at.Name).
			see("bridge fdb show br %s", b.Name))
	}
	return nil
}

// unknownOnBridge ends the walk: the next hop is behind no port of a bridge, except perhaps one that
// leads to other hosts.
func (w *walk) unknownOnBridge(n *host.Namespace, b, in *host.Link, next netip.Addr) bool {
	for i := range n.Links {
		l := &n.Links[i]
		if l.Master != b.Index || l == in {
			continue
		}
		if _, peer := w.host.Peer(n, l); peer == nil && l.Kind != "veth" {
			return w.depart(n, l, next)
		}
	}
	return w.noOwner(n, b.Name, n, b, next)
}

// bridgeAt returns the bridge at the other end of a link, nil if there is none.
func (w *walk) bridgeAt(n *host.Namespace, link *host.Link) *host.Link {
	other, peer := w.host.Peer(n, link)
	if peer == nil {
		return nil
	}
	return other.Link(peer.Master)
}

// noOwner ends the walk: the next hop does not exist behind a link of n. The other end of the link is in
// namespace at, on bridge b or, if b is nil, on none.
func (w *walk) noOwner(n *host.Namespace, name string, at *host.Namespace, b *host.Link, next netip.Addr) bool {
	if c := w.gone(next); c != nil {
		return w.stop(n, "neighbour", *c)
	}
	if b != nil {
		if c := w.wrongBridge(n, at, b, next); c != nil {
			return w.stop(at, "bridge", *c)
		}
		if w.packet.Dst != next { // the gateway of a container
			return w.stop(at, "address", cause("address.gateway",
				"%s has lost %s, the gateway of %s", b.Name, next, w.packet.Src).
				fix("ip addr add %s/%d dev %s; exclude %[3]s from NetworkManager", next, w.bits(next), b.Name).
				see("ip addr show dev %s", b.Name))
		}
	}
	return w.stop(n, "neighbour", cause("neighbour.none",
		"no interface behind %s %s has %s%s%s",
		name, w.in(n), next, w.byRule(), w.overlap(n)).
		see("%sip neigh show %s", w.prefix(n), next))
}

// gone returns the cause if the container with an address has ended.
func (w *walk) gone(a netip.Addr) *Culprit {
	container, ok := w.known.Gone[a]
	if !ok {
		return nil
	}
	return new(cause("attachment.gone",
		"the network namespace of %s no longer exists; its attachment still has %s", container, a).
		fix("tenon gc, or tenon del NETWORK - --id %s", container))
}

// overlap names another link with a network that contains the destination.
func (w *walk) overlap(n *host.Namespace) string {
	r := w.found.Route
	if r == nil || n.Link(w.found.Link()) == nil {
		return ""
	}
	for _, other := range n.Routes {
		if l := n.Link(firstLink(other)); l != nil && other.Type == "unicast" && other.Dst.Bits() > 0 &&
			r.Dst.Bits() > 0 && other.Dst.Overlaps(r.Dst) && l.Index != w.found.Link() {
			return fmt.Sprintf("; route %s dev %s overlaps %s dev %s", r.Dst, n.Link(w.found.Link()).Name, other.Dst, l.Name)
		}
	}
	return ""
}

func firstLink(r host.Route) int {
	if len(r.Hops) == 0 {
		return 0
	}
	return r.Hops[0].Link
}

// wrongBridge returns the cause if the port of a container, or of the next hop, is in another bridge
// than the address that it needs.
func (w *walk) wrongBridge(n, at *host.Namespace, b *host.Link, next netip.Addr) *Culprit {
	if h := at.Holder(next); h != nil && h.Kind == "bridge" && h != b {
		for _, l := range at.Links {
			if other, _ := w.host.Peer(at, &l); l.Master == b.Index && (other == n || w.from(other)) {
				return new(cause("bridge.port",
					"%s is a port of %s; %s has the gateway %s",
					w.linkTitle(at, &l), b.Name, h.Name, next).
					fix("ip link set %s master %s", l.Name, h.Name).
					see("ip link show %s", l.Name))
			}
		}
	}
	for i := range w.host.Namespaces {
		other := &w.host.Namespaces[i]
		h := other.Holder(next)
		if other == at || h == nil {
			continue
		}
		if ns, port := w.host.Peer(other, h); port != nil && ns == at && port.Master != b.Index {
			where := "no bridge"
			if m := at.Link(port.Master); m != nil {
				where = m.Name
			}
			return new(cause("bridge.port",
				"%s is a port of %s, not of %s", w.linkTitle(at, port), where, b.Name).
				fix("ip link set %s master %s", port.Name, b.Name).
				see("ip link show %s", port.Name))
		}
	}
	return nil
}

// from reports whether the packet's source is in a namespace.
func (w *walk) from(n *host.Namespace) bool { return n != nil && n.Holder(w.packet.Src) != nil }

// bits returns the prefix length of the container's network, which a gateway has, too.
func (w *walk) bits(a netip.Addr) int {
	for _, n := range w.host.Namespaces {
		for _, x := range n.Addrs {
			if x.Prefix.Contains(a) && x.Prefix.Bits() < a.BitLen() {
				return x.Prefix.Bits()
			}
		}
	}
	return a.BitLen()
}
