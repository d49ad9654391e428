package why

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// transmit sends the packet through a link to the next hop.
func (w *walk) transmit(n *host.Namespace, link *host.Link, next netip.Addr) bool {
	if !w.works(n, link) {
		return false
	}
	w.programs(n, link, "egress")
	switch {
	case w.switched(n, link):
		return false
	case link.Kind == "bridge":
		return w.bridge(n, link, nil, next)
	case isChild(link):
		return w.toParent(n, link, next)
	}
	if c := w.shared(n, link, next); c != nil {
		return w.stop(n, c.link.Kind,
			parentIsolated(c.link.Kind, w.linkTitle(c.space, c.link), link.Name, w.in(n)))
	}
	other, peer := w.host.Peer(n, link)
	if link.Kind != "veth" || peer == nil {
		return w.depart(n, link, next)
	}
	if slices.Contains(link.Flags, "noarp") {
		w.doubt("%s has NOARP: it sends frames without asking for the neighbour", w.linkTitle(n, link))
	}
	if !w.neighbour(n, link, child{other, peer}, next) {
		return false
	}
	w.path = append(w.path, crossing{n, other, link, peer, w.reply, w.packet.Src})
	return w.received(other, peer, next)
}

// works checks the state of a link.
func (w *walk) works(n *host.Namespace, link *host.Link) bool {
	if !link.Up() && !w.down(n, link) {
		return false
	}
	other, peer := w.host.Peer(n, link)
	return link.Kind != "veth" || peer == nil || peer.Up() || w.down(other, peer)
}

// down explains a link that is down.
func (w *walk) down(n *host.Namespace, l *host.Link) bool {
	return w.repair(n, "link", cause("link.down", "%s is down", w.linkTitle(n, l)).
		at(l.Name+" "+w.in(n)).
		fix("%sip link set %s up", w.prefix(n), l.Name).
		see("ip link show %s", l.Name))
}

// linkTitle names a link and what it is for.
func (w *walk) linkTitle(n *host.Namespace, l *host.Link) string {
	other, peer := w.host.Peer(n, l)
	if n == w.host.Own() && l.Kind == "veth" && peer != nil && other != n {
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
	if len(n.PIDs) > 0 {
		return fmt.Sprintf("nsenter -t %d -n ", n.PIDs[0])
	}
	return fmt.Sprintf(unreachable+"%s) ", w.known.Name(n))
}

// unreachable begins the prefix of a command for a namespace that no path leads to.
const unreachable = "(in "

// depart ends the walk at a link to another host.
func (w *walk) depart(n *host.Namespace, link *host.Link, next netip.Addr) bool {
	if !w.resolved(n, link, next) {
		return false
	}
	return w.end(n, "uplink", Left,
		"leaves through %s to %s; this host does not know the rest of the way", link.Name, next)
}

// resolved checks the neighbour entry of a next hop on another host.
func (w *walk) resolved(n *host.Namespace, link *host.Link, next netip.Addr) bool {
	i := neighbour(n, link, next)
	if i != nil && (i.State == "failed" || i.State == "incomplete") {
		return w.stop(n, "neighbour", cause("neighbour.failed",
			"the next hop %s on %s does not answer%s", next, link.Name, w.byRule()).
			advise("correct the route, or look at the router").
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
	i := slices.IndexFunc(n.Neighbours, func(x host.Neighbour) bool {
		return x.Link == link.Index && x.Addr == a
	})
	if i < 0 {
		return nil
	}
	return &n.Neighbours[i]
}

// neighbour checks that the owner of the next hop answers at the other end of a link, and that the
// neighbour entry has its MAC address.
func (w *walk) neighbour(
	n *host.Namespace, link *host.Link, peer child, next netip.Addr,
) bool {
	owner := w.owner(peer, next)
	if owner == nil {
		return w.noOwner(n, link.Name, peer.space, peer.space.Link(peer.link.Master), next)
	}
	bridge := peer.space.Link(peer.link.Master)
	w.solicits(n, link, peer.space, bridge, owner, next)
	entry := neighbour(n, link, next)
	if entry == nil || entry.MAC == "" || entry.State == "failed" || entry.MAC == owner.MAC {
		return true
	}
	if bridge != nil && bridge.Bridge != nil && w.filtersBridged(peer.space, bridge) {
		// br_nf_pre_routing_finish gives a frame that it translates the address of the bridge.
		w.blame(n, "neighbour", w.wrongMAC(n, link, entry, owner))
		w.doubt("br_netfilter corrects the address of frames that it translates")
		return true
	}
	return w.misdirected(n, link, entry, owner)
}

// solicits looks for rules that drop the neighbour solicitation for an address or its answer, which
// pass the hooks as other packets of IPv6 do. The kernel may still know the neighbour.
func (w *walk) solicits(
	n *host.Namespace, link *host.Link, at *host.Namespace, bridge, owner *host.Link, next netip.Addr,
) {
	if !next.Is6() {
		return
	}
	target := at
	if owner != nil {
		for i := range w.host.Namespaces {
			if x := &w.host.Namespaces[i]; x.Holds(owner.Index, next) && x.Link(owner.Index) == owner {
				target = x
			}
		}
	}
	group := next.As16()
	solicited := [16]byte{0xff, 2, 11: 1, 12: 0xff, 13: group[13], 14: group[14], 15: group[15]}
	src := w.packet.Src
	if own, ok := (packet.NamespaceLookup{Namespace: n}).Own(link.Index, false); ok {
		src = own
	}
	asking, asked := packet.InterfaceOf(n, link), packet.Interface{}
	if owner != nil {
		asked = packet.InterfaceOf(target, owner)
	}
	for _, x := range []struct {
		from, to *host.Namespace
		out, in  packet.Interface
		src, dst netip.Addr
		kind     uint16
	}{
		{n, target, asking, asked, src, netip.AddrFrom16(solicited), 135 << 8},
		{target, n, asked, asking, next, src, 136 << 8},
	} {
		p := packet.Packet{Src: x.src, Dst: x.dst, Protocol: unix.IPPROTO_ICMPV6, DstPort: x.kind,
			TTL: 255, Length: 72, Out: x.out, Conn: packet.Connection{State: packet.Untracked}}
		results := []packet.Result{w.ruleset(x.from).Hook(unix.NF_INET_LOCAL_OUT, &p)}
		if bridge != nil && bridge.Bridge != nil && w.filtersBridged(at, bridge) && x.from != at && x.to != at {
			through := packet.InterfaceOf(at, bridge)
			p.In, p.Out = through, through
			results = append(results, w.ruleset(at).Hook(unix.NF_INET_FORWARD, &p))
		}
		p.In, p.Out = x.in, packet.Interface{}
		results = append(results, w.ruleset(x.to).Hook(unix.NF_INET_LOCAL_IN, &p))
		for _, r := range results {
			if r.Verdict != packet.Accept && r.By != nil {
				w.doubt("%s drops neighbour solicitations or advertisements, as long as the kernel does "+
					"not know %s", r.By, next)
			}
		}
	}
}

// misdirected reports a neighbour entry with a wrong MAC address. Behind a stale one, the way goes
// on.
func (w *walk) misdirected(
	n *host.Namespace, link *host.Link, e *host.Neighbour, owner *host.Link,
) bool {
	c := w.wrongMAC(n, link, e, owner)
	if c.ID == "address.duplicate" {
		w.blame(n, "neighbour", c)
		return w.end(n, "neighbour", Unknown, "the other holder of %s gets the packet", e.Addr)
	}
	return w.repair(n, "neighbour", c)
}

// wrongMAC explains a neighbour entry with another MAC address than the owner of the address.
func (w *walk) wrongMAC(
	n *host.Namespace, link *host.Link, e *host.Neighbour, owner *host.Link,
) Culprit {
	c := Culprit{ID: "neighbour.stale", Object: fmt.Sprintf("%s on %s %s", e.Addr, link.Name, w.in(n)),
		Fix: fmt.Sprintf("%sip neigh del %s dev %s", w.prefix(n), e.Addr, link.Name),
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
		c.Text = fmt.Sprintf("%s is on several links; the neighbour entry %s points to %s",
			e.Addr, w.in(n), strings.Join(holders, ", "))
		c.Fix, c.Advice = "", "remove the address from one of them, and look for a second IPAM plugin"
		return c
	}
	c.Text = fmt.Sprintf("the neighbour entry %s for %s has the MAC address %s, %s has %s",
		w.in(n), e.Addr, e.MAC, owner.Name, owner.MAC)
	count := 0
	for i := range w.host.Namespaces {
		if l := w.host.Namespaces[i].Holder(e.Addr); l != nil {
			count++
		}
	}
	if count > 1 {
		c.Fix, c.Advice = "", "several links have the address: remove it from all but one, and then "+c.Fix
	}
	return c
}

// owner finds the link that has an address at the other end of a link: in its namespace or, through
// a bridge or as a child, in another one.
func (w *walk) owner(peer child, a netip.Addr) *host.Link {
	if l := w.answering(peer, a); l != nil {
		return l
	}
	if c := w.shared(peer.space, peer.link, a); c != nil {
		return c.link
	}
	for i := range peer.space.Links {
		l := &peer.space.Links[i]
		if l.Port == nil {
			continue
		}
		ns, p := w.host.Peer(peer.space, l)
		if p == nil || ns == peer.space {
			continue
		}
		if ns.Holds(p.Index, a) {
			return p
		}
	}
	return nil
}

// answering returns the link that answers neighbour requests for an address of the namespace at the
// other end of a link: the one that gets the requests. In IPv4, it answers for addresses of other
// links, too, unless arp_ignore forbids that (ip-sysctl.rst).
func (w *walk) answering(peer child, a netip.Addr) *host.Link {
	holder := peer.space.Holder(a)
	if holder == nil {
		return nil
	}
	link := peer.link
	if b := peer.space.Link(link.Master); b != nil && b.Kind == "bridge" {
		link = b
	}
	mode := max(peer.space.Settings["net.ipv4.conf.all.arp_ignore"],
		peer.space.Settings["net.ipv4.conf."+link.Name+".arp_ignore"])
	switch {
	case peer.space.Holds(link.Index, a):
		return link
	case link.Kind == "bridge" && holder.Kind == "bridge": // the port of a container is in the wrong one
		return nil
	case a.Is4() && (mode == "0" || mode == ""):
		return link
	case holder.Lower == link.Index:
		return holder
	}
	return nil
}

// received processes a frame for the next hop that came through a link.
func (w *walk) received(n *host.Namespace, in *host.Link, next netip.Addr) bool {
	w.programs(n, in, "ingress")
	if w.switched(n, in) {
		return false
	}
	if master := n.Link(in.Master); master != nil && master.Kind == "bridge" {
		return w.bridge(n, master, in, next)
	}
	if c := w.shared(n, in, next); c != nil {
		w.ok(n, c.link.Kind, "%s passes the frame to %s %s", in.Name, c.link.Name, w.in(c.space))
		return w.arrive(c.space, c.link)
	}
	return w.arrive(n, in)
}

// bridge forwards a frame: from a port or, if in is nil, from the bridge itself.
func (w *walk) bridge(n *host.Namespace, b, in *host.Link, next netip.Addr) bool {
	if !b.Up() && !w.down(n, b) {
		return false
	}
	if in != nil && !w.port(n, b, in) {
		return false
	}
	holder := n.Holder(next)
	if n.Holds(b.Index, next) {
		holder = b
	}
	if holder != nil && (holder == b || holder.Lower == b.Index) {
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

// translatedOnBridge processes a frame to the bridge itself with br_netfilter: if the hook
// prerouting translates the destination to an address behind the same bridge, the bridge forwards
// the frame.
func (w *walk) translatedOnBridge(n *host.Namespace, b, in *host.Link) bool {
	p := w.packet
	before := p.Dst
	w.ok(n, "bridge", "%s forwards to %s", in.Name, b.Name)
	p.In, p.Out = packet.InterfaceOf(n, b), packet.Interface{}
	if !w.prerouting(n) {
		return false
	}
	f, ok := n.Lookup(host.Query{Src: p.Src, Dst: p.Dst, IIF: b.Name, Mark: p.Mark})
	if p.Dst == before || !ok || f.Route.Type == "local" || f.Link() != b.Index {
		w.bridged = true
		return w.arrive(n, b)
	}
	if n.Settings["net.ipv4.conf."+b.Name+".forwarding"] == "0" {
		w.doubt("br_netfilter translates frames of %s although forwarding is off", b.Name)
	}
	w.bridged = true
	return w.toPort(n, b, in, p.Dst)
}

// port checks the state of a port.
func (w *walk) port(n *host.Namespace, b, l *host.Link) bool {
	if l.Port.State == "forwarding" || !l.Up() || !b.Up() { // disabled, as long as one of them is down
		return true
	}
	c := cause("bridge.state", "port %s of %s is in state %s", l.Name, b.Name, l.Port.State).
		see("bridge link show dev %s", l.Name)
	if b.Bridge.STP {
		c.ID = "bridge.stp"
		c.Text = fmt.Sprintf("STP keeps %s in state %s for 2 × forward_delay (%d s)",
			l.Name, l.Port.State, 2*b.Bridge.ForwardDelay/100)
		c.Advice = fmt.Sprintf("wait, or if the bridge has no loops: %sip link set %s type bridge stp_state 0",
			w.prefix(n), b.Name)
	}
	return w.repair(n, "bridge", c.at(l.Name+" "+w.in(n)))
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
	return w.repair(n, "bridge", cause("bridge.vlan",
		"port %s has PVID %d; %s is not in VLAN %d (its PVID is %d)",
		inName, from, name, from, host.PVID(list)).
		at(pair(inName, name)).
		advise("put both into one VLAN").
		see("bridge vlan show"))
}

// toPort forwards a frame to the port behind which the next hop is.
func (w *walk) toPort(n *host.Namespace, b, in *host.Link, next netip.Addr) bool {
	out, other, peer := w.portOf(n, b, next)
	if out == nil {
		return w.unknownOnBridge(n, b, in, next)
	}
	if in == nil || w.bridged { // the namespace itself sends, or br_netfilter for it
		w.solicits(n, b, other, nil, peer, next)
		if e := neighbour(n, b, next); e != nil && e.MAC != "" && e.State != "failed" &&
			peer.MAC != e.MAC && !w.misdirected(n, b, e, peer) {
			return false
		}
	}
	w.programs(n, out, "egress")
	if f := w.misled(n, b, out, peer); f != nil && !w.repair(n, "bridge", *f) {
		return false
	}
	if !w.works(n, out) || !w.port(n, b, out) || !w.sameVLAN(n, b, in, out) {
		return false
	}
	if in != nil {
		if c := w.joined(n, in, out); c != nil && !w.repair(n, "bridge", *c) {
			return false
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

// joined returns the cause if a bridge does not forward between two of its ports.
func (w *walk) joined(n *host.Namespace, in, out *host.Link) *Culprit {
	switch {
	case in == out && !out.Port.Hairpin:
		return new(cause("bridge.hairpin",
			"hairpin is off on %s, so the bridge never sends a frame back to the port it came from",
			out.Name).
			at(out.Name).
			fix("%sbridge link set dev %s hairpin on", w.prefix(n), out.Name).
			advise("set hairpinMode in the configuration, too").
			see("bridge -d link show dev %s", out.Name))
	case in.Port.Isolated && out.Port.Isolated:
		return new(cause("bridge.isolated",
			"both ports, %s and %s, are isolated; the bridge never forwards between isolated ports",
			in.Name, out.Name).
			at(pair(in.Name, out.Name)).
			advise("remove portIsolation from the configuration, and attach both again; isolation is " +
				"what it asks for").
			see("bridge -d link show"))
	}
	return nil
}

// pair names two objects, in either direction alike.
func pair(a, b string) string { return min(a, b) + ", " + max(a, b) }

// portOf finds the port behind which an address is.
func (w *walk) portOf(
	n *host.Namespace, b *host.Link, next netip.Addr,
) (*host.Link, *host.Namespace, *host.Link) {
	for i := range n.Links {
		l := &n.Links[i]
		if l.Master != b.Index || l.Port == nil {
			continue
		}
		other, peer := w.host.Peer(n, l)
		if peer == nil {
			continue
		}
		if other.Holds(peer.Index, next) {
			return l, other, peer
		}
	}
	return nil, nil, nil
}

// misled returns the cause if the forwarding database sends the frames of a link to another port.
func (w *walk) misled(n *host.Namespace, b, out, holder *host.Link) *Culprit {
	for _, f := range n.Forwarding {
		if f.MAC != holder.MAC || f.Local || !f.Static && !f.Sticky {
			continue
		}
		at := n.Link(f.Link)
		if at == nil || at.Master != b.Index || at == out {
			continue
		}
		kind := "static"
		if f.Sticky {
			kind = "sticky"
		}
		return new(cause("bridge.fdb",
			"a %s entry in the forwarding database sends frames for %s to %s instead of %s",
			kind, f.MAC, at.Name, out.Name).
			at(f.MAC).
			fix("%sbridge fdb del %s dev %s master", w.prefix(n), f.MAC, at.Name).
			see("bridge fdb show br %s", b.Name))
	}
	return nil
}

// unknownOnBridge ends the walk: the next hop is behind no port of a bridge, except perhaps one
// that leads to other hosts.
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

// noOwner ends the walk: the next hop does not exist behind a link of n. The other end of the link
// is in namespace at, on bridge b or, if b is nil, on none.
func (w *walk) noOwner(
	n *host.Namespace, name string, at *host.Namespace, b *host.Link, next netip.Addr,
) bool {
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
				advise("%sip addr add %s/%d dev %s; exclude %[4]s from NetworkManager", w.prefix(at), next,
					w.bits(next), b.Name).
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
		advise("tenon gc, or tenon del NETWORK - --id %s", container))
}

// overlap names another link with a network that contains the destination.
func (w *walk) overlap(n *host.Namespace) string {
	r, through := w.found.Route, n.Link(w.found.Link())
	if r == nil || through == nil || r.Dst.Bits() == 0 {
		return ""
	}
	for _, other := range n.Routes {
		if other.Type != "unicast" || other.Dst.Bits() == 0 || !other.Dst.Overlaps(r.Dst) {
			continue
		}
		if l := n.Link(firstLink(other)); l != nil && l != through {
			return fmt.Sprintf("; route %s dev %s overlaps %s dev %s",
				r.Dst, through.Name, other.Dst, l.Name)
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

// wrongBridge returns the cause if the port of a container, or of the next hop, is in another
// bridge than the address that it needs.
func (w *walk) wrongBridge(n, at *host.Namespace, b *host.Link, next netip.Addr) *Culprit {
	if h := at.Holder(next); h != nil && h.Kind == "bridge" && !at.Holds(b.Index, next) {
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
				if slices.ContainsFunc(at.Of(m.Index), func(a host.Addr) bool { return a.Prefix.Contains(next) }) {
					continue // its own network, which overlaps this one
				}
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
