package why

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// request follows the packet and then the reply.
func (w *walk) request(n *host.Namespace) {
	q := w.question
	const ephemeral, length = 40000, 60
	p := &packet.Packet{Src: q.From, Dst: q.To, Protocol: q.Protocol, SrcPort: ephemeral, DstPort: q.Port,
		TTL: 64, Length: length, TCPFlags: 2 /* SYN */}
	if q.Protocol == unix.IPPROTO_ICMP {
		p.SrcPort, p.DstPort = 0, 8<<8 // echo request
	}
	w.packet = p
	w.report.Title = fmt.Sprintf("%s -> %s", w.known.Name(n), destination(q.To, q.Port, q.Protocol))
	if !w.send(n) {
		return
	}
	w.large()
	if w.report.Verdict == "" {
		w.report.Verdict = Delivered
	}
}

// send sends the packet from a namespace. It returns true if the packet, or for a request the reply,
// is delivered.
func (w *walk) send(n *host.Namespace) bool {
	p := w.packet
	found, ok := w.route(n, host.Query{Src: p.Src, Dst: p.Dst, Mark: p.Mark})
	if !ok {
		return false
	}
	if !p.Src.IsValid() {
		if c := w.duplicate(n, found.Link()); c != nil {
			return w.stop(n, "address", *c)
		}
		if p.Src, ok = w.chooseSource(n, found); !ok {
			return w.stop(n, "route", cause("address.none",
				"no interface %s has an address of the family of %s", w.in(n), p.Dst))
		}
	}
	if !w.reply {
		w.report.Title = fmt.Sprintf("%s %s -> %s", w.known.Name(n), p.Src,
			destination(p.Dst, w.question.Port, p.Protocol))
	}
	if found.Route.Type == "local" {
		p.In = packet.Interface{}
		return w.local(n, found, true)
	}
	link := n.Link(found.Link())
	w.track(n)
	p.In, p.Out = packet.Interface{}, packet.InterfaceOf(n, link)
	before := p.Dst
	if !w.hook(n, unix.NF_INET_LOCAL_OUT, "output") {
		return false
	}
	if p.Dst != before { // translated
		if found, ok = w.route(n, host.Query{Src: p.Src, Dst: p.Dst, Mark: p.Mark}); !ok {
			return false
		}
		if found.Route.Type == "local" {
			return w.local(n, found, true)
		}
	}
	return w.leave(n, found)
}

// chooseSource returns the source address that the kernel would choose for a route: its own, or the
// first address of the link with the best scope.
func (w *walk) chooseSource(n *host.Namespace, f host.Found) (netip.Addr, bool) {
	if f.Route.PrefSrc.IsValid() {
		return f.Route.PrefSrc, true
	}
	is4 := w.packet.Dst.Is4()
	var other netip.Addr
	for _, a := range n.Of(f.Link()) {
		addr := a.Prefix.Addr()
		switch {
		case addr.Is4() != is4 || a.Scope == "host" || a.Failed():
		case a.Scope == "link" != w.packet.Dst.IsLinkLocalUnicast():
			other = addr
		case f.Hop.Via.IsValid() || a.Prefix.Contains(w.packet.Dst) || !other.IsValid():
			return addr, true
		}
	}
	if !other.IsValid() {
		for _, a := range n.Addrs {
			if a.Prefix.Addr().Is4() == is4 && a.Scope == "global" {
				return a.Prefix.Addr(), true
			}
		}
	}
	return other, other.IsValid()
}

// duplicate returns the cause if duplicate address detection has disabled an address of a link.
func (w *walk) duplicate(n *host.Namespace, link int) *Culprit {
	for _, a := range n.Of(link) {
		if !a.Failed() || w.packet.Dst.Is4() {
			continue
		}
		c := new(cause("address.dad",
			"%s on %s %s is in state dadfailed", a.Prefix.Addr(), n.Link(link).Name, w.in(n)).
			fix("remove the other one, then add the address again").
			see("ip -6 addr show dadfailed"))
		for i := range w.host.Namespaces {
			if other := &w.host.Namespaces[i]; other != n && other.Holder(a.Prefix.Addr()) != nil {
				c.Text += fmt.Sprintf(": %s has it", w.known.Name(other))
			}
		}
		return c
	}
	return nil
}

// route looks the route of the packet up.
func (w *walk) route(n *host.Namespace, q host.Query) (f host.Found, ok bool) {
	command := fmt.Sprintf("ip route get %s", q.Dst)
	if q.IIF != "" {
		command += fmt.Sprintf(" from %s iif %s", q.Src, q.IIF)
	}
	f, ok = n.Lookup(q)
	if !ok {
		return f, w.stop(n, "route", w.noRoute(n, q, command))
	}
	switch f.Route.Type {
	case "blackhole", "unreachable", "prohibit":
		if f.Rule.Action != "lookup" {
			return f, w.stop(n, "route", cause("route.refused",
				"rule %d %s refuses packets to %s (%s)",
				f.Rule.Priority, w.in(n), q.Dst, f.Route.Type).
				fix("ip rule del priority %d", f.Rule.Priority).
				see("ip rule"))
		}
		return f, w.stop(n, "route", cause("route.refused",
			"%s route %s %s", f.Route.Type, f.Route.Dst, w.in(n)).
			fix("ip route del %s %s", f.Route.Type, f.Route.Dst).
			see("%s", command))
	}
	l := n.Link(f.Link())
	if l == nil {
		return f, w.end(n, "route", Unknown, "the route %s has no link", f.Route.Dst)
	}
	if f.Route.Type == "local" {
		return f, w.ok(n, "route", "%s is an address of %s (%s)", q.Dst, w.known.Name(n), command)
	}
	via := ""
	if f.Hop.Via.IsValid() {
		via = fmt.Sprintf(" via %s", f.Hop.Via)
	}
	w.found = f
	w.ok(n, "route", "%s%s dev %s, by route %s (%s)", q.Dst, via, l.Name, f.Route.Dst, command)
	return f, true
}

// noRoute explains why there is no route.
func (w *walk) noRoute(n *host.Namespace, q host.Query, command string) Culprit {
	c := cause("route.none", "%s has no route to %s", w.subject(n), q.Dst).
		see("%s", command)
	family, setting := "ipv4", ""
	if q.Dst.Is6() {
		family = "ipv6"
		for _, l := range n.Links {
			name := "net.ipv6.conf." + l.Name + ".disable_ipv6"
			if l.Name != "lo" && n.Settings[name] == "1" {
				setting = name
			}
		}
	}
	if setting != "" {
		c.ID = "sysctl.disable_ipv6"
		c.Text += fmt.Sprintf(": %s is 1 %s", setting, w.in(n))
		c.Fix = "set it to 0, then detach and attach the container"
		return c
	}
	if q.Dst.Is6() && n.Settings["net.ipv6.conf.all.forwarding"] == "1" {
		for _, l := range n.Links {
			if n.Settings["net.ipv6.conf."+l.Name+".accept_ra"] == "1" && l.Kind != "bridge" && l.Name != "lo" &&
				n == w.host.Own() && w.outside(n, &l) {
				c.ID = "sysctl.accept_ra"
				c.Text += fmt.Sprintf(": forwarding is on and accept_ra is 1, so %s ignores router advertisements", l.Name)
				c.Fix = fmt.Sprintf("sysctl -w net.ipv6.conf.%s.accept_ra=2", l.Name)
				return c
			}
		}
	}
	hasDefault := slices.ContainsFunc(n.Routes, func(r host.Route) bool {
		return r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == (family == "ipv4") && r.Type == "unicast"
	})
	for _, a := range n.Addrs {
		if a.Prefix.Addr().Is4() == q.Dst.Is4() && a.Prefix.IsSingleIP() && a.Scope == "global" && !a.Peer.IsValid() &&
			n != w.host.Own() && !hasDefault {
			c.ID = "address.prefix"
			c.Text += fmt.Sprintf(": %s has %s, so no gateway is on-link", n.Link(a.Link).Name, a.Prefix)
			c.Fix = "detach the container and attach it again"
			return c
		}
	}
	if !hasDefault {
		c.Text += "; it has no default route"
		c.Fix = "add the default route"
	}
	return c
}

// subject names a namespace as the subject of a sentence.
func (w *walk) subject(n *host.Namespace) string {
	if n == w.host.Own() {
		return "the host"
	}
	return w.known.Name(n)
}

// outside reports whether a link leads away from the containers with masquerading: none of them is
// behind it.
func (w *walk) outside(n *host.Namespace, l *host.Link) bool {
	for _, a := range w.known.Masqueraded {
		f, ok := n.Lookup(host.Query{Dst: a})
		if ok && f.Link() == l.Index {
			return false
		}
	}
	return true
}

// track finds or creates the entry of the packet in the connection table of a namespace, and undoes
// the translation of the source for a reply.
func (w *walk) track(n *host.Namespace) {
	p := w.packet
	for _, e := range w.entries[n.ID] {
		if w.reply && tupleOf(p) == e.went.reversed() {
			p.Conn = e.conn
			p.Conn.State, p.Conn.Reply = packet.Established, true
			p.Dst, p.DstPort = e.came.src, e.came.srcPort
			w.entry = e
			return
		}
		if !w.reply && tupleOf(p) == e.came {
			p.Conn, w.entry = e.conn, e
			return
		}
	}
	e := &entry{came: tupleOf(p), went: tupleOf(p), conn: packet.Connection{State: packet.New,
		OrigSrc: p.Src, OrigDst: p.Dst, OrigSrcPort: p.SrcPort, OrigDstPort: p.DstPort}}
	if w.reply && p.Protocol == unix.IPPROTO_TCP { // no connection begins with SYN and ACK
		e.conn.State = packet.Invalid
	}
	w.entries[n.ID] = append(w.entries[n.ID], e)
	p.Conn, w.entry = e.conn, e
}

// posted notes what the packet looks like when it leaves a namespace, and undoes the translation of
// the destination for a reply.
func (w *walk) posted() {
	e, p := w.entry, w.packet
	if p.Conn.Reply {
		p.Src, p.SrcPort = e.came.dst, e.came.dstPort
	} else {
		e.went, e.conn = tupleOf(p), p.Conn
	}
}

// maxHops limits the routers on a way.
const maxHops = 16

// arrive processes a packet of the network layer that came through a link of a namespace.
func (w *walk) arrive(n *host.Namespace, in *host.Link) bool {
	if w.hops++; w.hops > maxHops {
		return w.stop(n, "route", cause("route.loop",
			"the packet runs in a loop %s%s", w.in(n), w.overlap(n)).
			see("ip route"))
	}
	p := w.packet
	p.In, p.Out = packet.InterfaceOf(n, in), packet.Interface{}
	if p.Dst.Is6() && n.Settings["net.ipv6.conf."+in.Name+".disable_ipv6"] == "1" {
		return w.stop(n, "sysctl", cause("sysctl.disable_ipv6",
			"net.ipv6.conf.%s.disable_ipv6 is 1 %s", in.Name, w.in(n)).
			fix("set it to 0"))
	}
	if w.bridged {
		w.bridged = false
	} else if !w.prerouting(n) {
		return false
	}
	if !w.reversePath(n, in) {
		return false
	}
	found, ok := w.route(n, host.Query{Src: p.Src, Dst: p.Dst, IIF: in.Name, Mark: p.Mark})
	if !ok {
		return false
	}
	if found.Route.Type == "local" {
		return w.local(n, found, false)
	}
	if !w.forwards(n, in) {
		return false
	}
	p.Out, p.TTL = packet.InterfaceOf(n, n.Link(found.Link())), p.TTL-1
	if !w.hook(n, unix.NF_INET_FORWARD, "filter") {
		return false
	}
	return w.leave(n, found)
}

// prerouting finds the connection of the packet and calls the hook prerouting.
func (w *walk) prerouting(n *host.Namespace) bool {
	p := w.packet
	before := p.Dst
	w.track(n)
	if !w.hook(n, unix.NF_INET_PRE_ROUTING, "prerouting") {
		return false
	}
	if p.Dst != before {
		w.ok(n, "nat", "destination %s becomes %s", before, destination(p.Dst, p.DstPort, p.Protocol))
	}
	return true
}

// forwards checks the settings that allow forwarding.
func (w *walk) forwards(n *host.Namespace, in *host.Link) bool {
	name := "net.ipv4.ip_forward"
	if w.packet.Dst.Is6() {
		name = "net.ipv6.conf.all.forwarding"
	}
	link := "net." + w.family() + ".conf." + in.Name + ".forwarding"
	for _, setting := range []string{name, link} {
		if n.Settings[setting] == "0" {
			return w.stop(n, "sysctl", cause("sysctl.forwarding", "%s is 0 %s", setting, w.in(n)).
				fix("%s", "sysctl -w "+setting+"=1, and the same in /etc/sysctl.d").
				see("sysctl %s", setting))
		}
	}
	return true
}

// reversePath evaluates rp_filter (ip-sysctl.rst): the greater of "all" and the link counts.
func (w *walk) reversePath(n *host.Namespace, in *host.Link) bool {
	if !w.packet.Src.Is4() {
		return true
	}
	mode := max(n.Settings["net.ipv4.conf.all.rp_filter"], n.Settings["net.ipv4.conf."+in.Name+".rp_filter"])
	if mode != "1" && mode != "2" {
		return true
	}
	p := w.packet
	f, ok := n.Lookup(host.Query{Src: p.Dst, Dst: p.Src, Mark: p.Mark})
	if ok && (mode == "2" || f.Link() == in.Index) {
		return true
	}
	way := "there is none"
	if ok && n.Link(f.Link()) != nil {
		way = "it leaves by " + n.Link(f.Link()).Name
	}
	return w.stop(n, "rp_filter", cause("sysctl.rp_filter",
		"strict rp_filter on %s drops the packet from %s: its route back is another one (%s)",
		in.Name, p.Src, way).
		fix("sysctl -w net.ipv4.conf.%s.rp_filter=2, or make the routes symmetric", in.Name).
		see("sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.%s.rp_filter", in.Name))
}

// leave sends the packet through the link of its route, after the postrouting hook.
func (w *walk) leave(n *host.Namespace, f host.Found) bool {
	p := w.packet
	link := n.Link(f.Link())
	p.Out = packet.InterfaceOf(n, link)
	before := p.Src
	if !w.hook(n, unix.NF_INET_POST_ROUTING, "postrouting") {
		return false
	}
	w.posted()
	if p.Src != before {
		w.ok(n, "nat", "source %s becomes %s", before, p.Src)
	}
	if !w.reply && n == w.host.Own() && w.outside(n, link) && slices.Contains(w.known.Masqueraded, p.Src) {
		return w.stop(n, "nat", cause("nat.masquerade",
			"the masquerade rule for %s is missing: packets leave %s with an address that only this host knows",
			p.Src, link.Name).
			fix("tenon repair"))
	}
	next := f.Hop.Via
	if !next.IsValid() {
		next = p.Dst
	}
	return w.transmit(n, link, next)
}

// local delivers the packet to a socket of a namespace, and then follows the reply.
func (w *walk) local(n *host.Namespace, f host.Found, own bool) bool {
	p := w.packet
	if !own && !w.hook(n, unix.NF_INET_LOCAL_IN, "input") {
		return false
	}
	if w.reply {
		return w.accepted(n)
	}
	w.posted()
	if !w.listens(n) {
		return false
	}
	if own {
		return true
	}
	w.reply = true
	w.hops = 0
	w.packet = &packet.Packet{Src: p.Dst, Dst: p.Src, SrcPort: p.DstPort, DstPort: p.SrcPort, TTL: 64,
		Protocol: p.Protocol, Length: p.Length, TCPFlags: 0x12 /* SYN, ACK */}
	if p.Protocol == unix.IPPROTO_ICMP {
		w.packet.DstPort = 0 // echo reply
	}
	return w.send(n)
}

// accepted checks that the reply belongs to the question.
func (w *walk) accepted(n *host.Namespace) bool {
	p := w.packet
	if n.ID != w.question.Source {
		return w.stop(n, "reply", cause("reply.elsewhere",
			"the reply to %s arrives %s, which has that address, too", p.Dst, w.in(n)))
	}
	if p.Src != w.question.To {
		return w.stop(n, "reply", w.untranslated(n))
	}
	return w.ok(n, "arrives", "from %s", p.Src)
}

// untranslated explains a reply with another source than the destination of the request.
func (w *walk) untranslated(n *host.Namespace) Culprit {
	p := w.packet
	c := cause("reply.untranslated",
		"the reply of %s is never translated back to %s", p.Src, w.question.To)
	if v := w.host.Own().Settings["net.bridge.bridge-nf-call-"+w.tables()]; v == "0" {
		c.ID = "sysctl.bridge-nf"
		c.Text = fmt.Sprintf("the reply of %s stays on the bridge and is never translated back to %s: bridge-nf-call-%s is 0",
			p.Src, w.question.To, w.tables())
		c.Fix = fmt.Sprintf("sysctl -w net.bridge.bridge-nf-call-%s=1", w.tables())
	}
	return c
}

// tables returns "iptables" or "ip6tables".
func (w *walk) tables() string {
	if w.packet.Dst.Is6() {
		return "ip6tables"
	}
	return "iptables"
}

// listens checks that a socket accepts the packet.
func (w *walk) listens(n *host.Namespace) bool {
	p := w.packet
	protocol := map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[p.Protocol]
	if protocol == "" {
		return w.ok(n, "service", "the kernel answers")
	}
	var loopback bool
	for _, l := range n.Listeners {
		if l.Protocol != protocol || l.Addr.Port() != p.DstPort {
			continue
		}
		a := l.Addr.Addr().Unmap()
		if a == p.Dst || a.IsUnspecified() && (a.Is4() == p.Dst.Is4() || a.Is6()) {
			return w.ok(n, "service", "a socket listens on %s", l.Addr)
		}
		loopback = loopback || a.IsLoopback()
	}
	c := cause("service.none", "no socket %s listens on port %d/%s", w.in(n), p.DstPort, protocol).
		see("%s", "ss -ln"+protocol[:1])
	if loopback {
		c.ID = "service.loopback"
		c.Text = fmt.Sprintf("the service on port %d/%s %s listens only on the loopback address", p.DstPort, protocol, w.in(n))
		c.Fix = "let it listen on all addresses"
	}
	return w.stop(n, "service", c)
}
