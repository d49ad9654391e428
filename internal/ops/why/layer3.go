package why

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// request follows the packet and then the reply.
func (w *walk) request(n *host.Namespace) {
	q := w.question
	const ephemeral, length = 40000, 60
	p := &packet.Packet{Src: q.From, Dst: q.To, Protocol: q.Protocol, SrcPort: ephemeral,
		DstPort: q.Port, TTL: 64, Length: length, TCPFlags: 2 /* SYN */, Choices: w.choices}
	if q.Protocol == unix.IPPROTO_ICMP {
		p.SrcPort, p.DstPort = 0, 8<<8 // echo request
	}
	w.packet = p
	w.report.Title = fmt.Sprintf("%s -> %s", w.known.Name(n), destination(q.To, q.Port, q.Protocol))
	w.assume("the packet begins a new connection")
	arrived := w.send(n)
	if arrived {
		w.large()
		w.report.Verdict = cmp.Or(w.report.Verdict, Delivered)
	}
	w.weigh(arrived || w.left)
	v := &w.report.Verdict
	if *v == Left {
		w.assume("other hosts forward the packet, accept it, and send the reply back")
	}
	if len(w.report.Doubts) > 0 && (*v == Delivered || *v == Left || *v == Limited) {
		*v = Unknown
	}
}

// send sends the packet from a namespace. It returns true if the packet, or for a request the
// reply, is delivered.
func (w *walk) send(n *host.Namespace) bool {
	p := w.packet
	if lo := n.LinkByName("lo"); p.Dst.IsLoopback() && lo != nil && !lo.Up() {
		return w.stop(n, "link", cause("link.down", "lo %s is down", w.in(n)).
			advise("%sip link set lo up", w.prefix(n)).
			see("ip link show lo"))
	}
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
	link := n.Link(found.Link())
	if lo := n.LinkByName("lo"); found.Route.Type == "local" && lo != nil {
		link = lo
	}
	if !w.track(n) {
		return false
	}
	p.In, p.Out = packet.Interface{}, packet.InterfaceOf(n, link)
	before := p.Dst
	if !w.hook(n, unix.NF_INET_LOCAL_OUT, "output") {
		return false
	}
	if p.Dst != before { // translated
		if found, ok = w.route(n, host.Query{Src: p.Src, Dst: p.Dst, Mark: p.Mark}); !ok {
			return false
		}
	}
	if found.Route.Type == "local" {
		return w.loopback(n)
	}
	if !w.localSource(n, n.Link(found.Link())) {
		return false
	}
	return w.leave(n, found)
}

// localSource checks that a packet from 127.0.0.0/8 may leave by a link (__mkroute_output).
func (w *walk) localSource(n *host.Namespace, out *host.Link) bool {
	src := w.packet.Src
	if !src.Is4() || !src.IsLoopback() || !keepsLocalnet(n, out) {
		return true
	}
	name := localnet(out)
	return w.repair(n, "sysctl", cause("sysctl.route_localnet",
		"%s is 0 %s, so packets from %s do not leave by %s", name, w.in(n), src, out.Name).
		at(name+" "+w.in(n)).
		fix("%ssysctl -w %s=1", w.prefix(n), name).
		see("sysctl %s", name))
}

// martian checks that a packet to 127.0.0.0/8 may come in by a link (ip_route_input_slow).
func (w *walk) martian(n *host.Namespace, in *host.Link) bool {
	dst := w.packet.Dst
	if !dst.Is4() || !dst.IsLoopback() || !keepsLocalnet(n, in) {
		return true
	}
	name := localnet(in)
	return w.repair(n, "sysctl", cause("sysctl.route_localnet",
		"%s is 0 %s, so packets to %s do not come in by %s", name, w.in(n), dst, in.Name).
		at(name+" "+w.in(n)).
		advise("let the service listen on an address of %s; %s=1 opens all services of 127.0.0.0/8 to "+
			"the neighbours of %[1]s", in.Name, name).
		see("sysctl %s", name))
}

// keepsLocalnet reports whether a link takes no packets from or to 127.0.0.0/8.
func keepsLocalnet(n *host.Namespace, l *host.Link) bool {
	return l.Name != "lo" && n.Settings[localnet(l)] == "0" &&
		n.Settings["net.ipv4.conf.all.route_localnet"] != "1"
}

func localnet(l *host.Link) string { return "net.ipv4.conf." + l.Name + ".route_localnet" }

// loopback passes a packet of a namespace to itself. The connection keeps its translations.
func (w *walk) loopback(n *host.Namespace) bool {
	p := w.packet
	lo := n.LinkByName("lo")
	if lo == nil || !lo.Up() && !w.down(n, lo) {
		return false
	}
	p.Out = packet.InterfaceOf(n, lo)
	if !w.hook(n, unix.NF_INET_POST_ROUTING, "postrouting") {
		return false
	}
	w.posted()
	p.In, p.Out = p.Out, packet.Interface{}
	p.Conn.Status |= packet.Confirmed
	return w.hook(n, unix.NF_INET_PRE_ROUTING, "prerouting") && w.local(n)
}

// chooseSource returns the source address that the kernel would choose for a route: its own, or the
// first address of the link with the best scope.
func (w *walk) chooseSource(n *host.Namespace, f host.Found) (netip.Addr, bool) {
	if f.Route.PrefSrc.IsValid() {
		return f.Route.PrefSrc, true
	}
	if f.Route.Type == "local" { // RFC 6724, rule 1
		return w.packet.Dst, true
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
			advise("remove the other one, then add the address again").
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
				advise("%sip rule del priority %d", w.prefix(n), f.Rule.Priority).
				see("ip rule"))
		}
		c := cause("route.refused", "%s route %s %s", f.Route.Type, f.Route.Dst, w.in(n)).
			see("%s", command)
		if f.Route.Protocol == kernel.NodeProtocol {
			c.Owner = "tenon-cluster"
			c = c.advise("no node has this address, or its node is gone: tenon-cluster status. " +
				"The agent keeps the route, so that packets to free addresses do not loop")
		} else {
			c = c.advise("%sip route del %s %s table %d", w.prefix(n), f.Route.Type, f.Route.Dst,
				f.Route.Table)
		}
		return f, w.stop(n, "route", c)
	}
	l := n.Link(f.Link())
	if l == nil {
		return f, w.end(n, "route", Unknown, "the route %s has no link", f.Route.Dst)
	}
	if f.Route.Type == "local" {
		return f, w.shown(n, "route", command, "%s is an address of %s", q.Dst, w.known.Name(n))
	}
	via := ""
	if f.Hop.Via.IsValid() {
		via = fmt.Sprintf(" via %s", f.Hop.Via)
	}
	w.found = f
	return f, w.shown(n, "route", command, "%s%s dev %s, by route %s", q.Dst, via, l.Name, f.Route.Dst)
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
		c.Advice = "set it to 0, then detach and attach the container"
		return c
	}
	if q.Dst.Is6() && n.Settings["net.ipv6.conf.all.forwarding"] == "1" {
		for _, l := range n.Links {
			if n.Settings["net.ipv6.conf."+l.Name+".accept_ra"] == "1" && l.Kind != "bridge" &&
				l.Name != "lo" && n == w.host.Own() && w.outside(&l) {
				c.ID = "sysctl.accept_ra"
				c.Text += fmt.Sprintf(": forwarding is on and accept_ra is 1, "+
					"so %s ignores router advertisements", l.Name)
				c.Advice = fmt.Sprintf("sysctl -w net.ipv6.conf.%s.accept_ra=2", l.Name)
				return c
			}
		}
	}
	hasDefault := slices.ContainsFunc(n.Routes, func(r host.Route) bool {
		return r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == (family == "ipv4") && r.Type == "unicast"
	})
	for _, a := range n.Addrs {
		if a.Prefix.Addr().Is4() == q.Dst.Is4() && a.Prefix.IsSingleIP() && a.Scope == "global" &&
			!a.Peer.IsValid() && n != w.host.Own() && !hasDefault {
			c.ID = "address.prefix"
			c.Text += fmt.Sprintf(": %s has %s, so no gateway is on-link", n.Link(a.Link).Name, a.Prefix)
			c.Advice = "detach the container and attach it again"
			return c
		}
	}
	if !hasDefault {
		c.Text += "; it has no default route"
		c.Advice = "add the default route"
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

// outside reports whether a link of the host leads away from the containers with masquerading: none
// of them is behind it.
func (w *walk) outside(l *host.Link) bool {
	p := w.known.prepared
	if p.inward == nil {
		p.inward = map[int]bool{}
		for _, a := range w.known.Masqueraded {
			if f, ok := w.host.Own().Lookup(host.Query{Dst: a}); ok {
				p.inward[f.Link()] = true
			}
		}
	}
	return !p.inward[l.Index]
}

// track finds or creates the entry of the packet in the connection table of a namespace, and undoes
// the translation of the source for a reply. It returns false if the walk ends.
func (w *walk) track(n *host.Namespace) bool {
	p := w.packet
	for _, e := range w.entries[n.ID] {
		if w.reply && tupleOf(p) == e.went.reversed() {
			p.Conn = e.conn
			p.Conn.State, p.Conn.Reply = packet.Established, true
			p.Restored = netip.AddrPortFrom(e.came.src, e.came.srcPort)
			w.entry = e
			return true
		}
		if !w.reply && tupleOf(p) == e.came {
			p.Conn, w.entry = e.conn, e
			return true
		}
	}
	e := &entry{came: tupleOf(p), went: tupleOf(p), conn: packet.Connection{State: packet.New,
		OrigSrc: p.Src, OrigDst: p.Dst, OrigSrcPort: p.SrcPort, OrigDstPort: p.DstPort}}
	if w.reply && p.Protocol == unix.IPPROTO_TCP { // no connection begins with SYN and ACK
		e.conn.State = packet.Invalid
	}
	w.entries[n.ID] = append(w.entries[n.ID], e)
	p.Conn, w.entry = e.conn, e
	return w.room(n)
}

// room checks that the connection table has room for one more entry. The kernel then drops packets
// of new connections, unless it finds an entry without an answer that it can evict
// (nf_conntrack_core.c).
func (w *walk) room(n *host.Namespace) bool {
	const countName, limitName = "net.netfilter.nf_conntrack_count", "net.netfilter.nf_conntrack_max"
	count, err := strconv.Atoi(n.Settings[countName])
	limit, limitErr := strconv.Atoi(n.Settings[limitName])
	switch {
	case err != nil || limitErr != nil || count == 0 || limit == 0:
		return true // no connection is tracked, or any number
	case count < limit:
		return w.shown(n, "conntrack", "sysctl "+countName+" "+limitName,
			"%d of %d entries", count, limit)
	}
	return w.repair(n, "conntrack", cause("conntrack.full",
		"conntrack is full %s: %d of %d entries, so the kernel drops new connections",
		w.in(n), count, limit).
		at(limitName+" "+w.in(n)).
		fix("%ssysctl -w %s=%d", w.prefix(n), limitName, 2*max(limit, count)).
		advise("set it in /etc/sysctl.d, too, and find the source of the entries with conntrack -L").
		see("sysctl %s %s", countName, limitName))
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
			advise("%ssysctl -w net.ipv6.conf.%s.disable_ipv6=0, then attach the container again",
				w.prefix(n), in.Name))
	}
	if w.bridged {
		w.bridged = false
	} else if !w.prerouting(n) {
		return false
	}
	if !w.martian(n, in) {
		return false
	}
	found, ok := w.route(n, host.Query{Src: p.Src, Dst: p.Dst, IIF: in.Name, Mark: p.Mark})
	if !ok {
		return false
	}
	if found.Route.Type == "local" {
		return w.reversePath(n, in, "") && w.transformed(n, "in") && w.local(n)
	}
	out := n.Link(found.Link())
	if !w.forwards(n, in) || !w.reversePath(n, in, out.Name) ||
		!w.transformed(n, "fwd") {
		return false
	}
	p.Out, p.TTL = packet.InterfaceOf(n, out), p.TTL-1
	if !w.hook(n, unix.NF_INET_FORWARD, "filter") {
		return false
	}
	return w.leave(n, found)
}

// prerouting finds the connection of the packet and calls the hook prerouting.
func (w *walk) prerouting(n *host.Namespace) bool {
	p := w.packet
	before := p.Dst
	if !w.track(n) {
		return false
	}
	if !w.hook(n, unix.NF_INET_PRE_ROUTING, "prerouting") {
		return false
	}
	if p.Dst != before {
		w.ok(n, "nat", "destination %s becomes %s", before,
			destination(p.Dst, p.DstPort, p.Protocol))
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
		if n.Settings[setting] != "0" {
			continue
		}
		c := cause("sysctl.forwarding", "%s is 0 %s", setting, w.in(n)).
			at(name+" "+w.in(n)).
			fix("%ssysctl -w %s=1", w.prefix(n), setting).
			advise("set it in /etc/sysctl.d, too").
			see("sysctl %s", setting)
		if !w.repair(n, "sysctl", c) {
			return false
		}
	}
	return true
}

// reversePath evaluates rp_filter (ip-sysctl.rst): the greater of "all" and the link counts. The
// kernel looks up the route of a packet that comes from where this one goes: the link out, or ""
// for this host (__fib_validate_source).
func (w *walk) reversePath(n *host.Namespace, in *host.Link, out string) bool {
	if !w.packet.Src.Is4() {
		return true
	}
	mode := max(n.Settings["net.ipv4.conf.all.rp_filter"],
		n.Settings["net.ipv4.conf."+in.Name+".rp_filter"])
	if mode != "1" && mode != "2" {
		return true
	}
	p := w.packet
	f, ok := n.Lookup(host.Query{Src: p.Dst, Dst: p.Src, IIF: out, Mark: p.Mark})
	if ok && (mode == "2" || f.Link() == in.Index) {
		return true
	}
	way := "there is none"
	if ok && n.Link(f.Link()) != nil {
		way = "it leaves by " + n.Link(f.Link()).Name
	}
	return w.repair(n, "rp_filter", cause("sysctl.rp_filter",
		"strict rp_filter on %s drops the packet from %s: its route back is another one (%s)",
		in.Name, p.Src, way).
		at(in.Name+" "+w.in(n)).
		fix("%ssysctl -w net.ipv4.conf.%s.rp_filter=2", w.prefix(n), in.Name).
		advise("set it in /etc/sysctl.d, too, or make the routes symmetric").
		see("sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.%s.rp_filter", in.Name))
}

// leave sends the packet through the link of its route, after the postrouting hook.
func (w *walk) leave(n *host.Namespace, f host.Found) bool {
	p := w.packet
	link := n.Link(f.Link())
	p.Out = packet.InterfaceOf(n, link)
	before := p.Src
	if !w.transformed(n, "out") {
		return false
	}
	if !w.hook(n, unix.NF_INET_POST_ROUTING, "postrouting") {
		return false
	}
	w.posted()
	if p.Src != before {
		w.ok(n, "nat", "source %s becomes %s", before, p.Src)
	}
	if !w.reply && n == w.host.Own() && slices.Contains(w.known.Masqueraded, p.Src) &&
		w.outside(link) && !w.masquerades(n) {
		own, ok := packet.NamespaceLookup{Namespace: n}.Own(link.Index, p.Src.Is4())
		c := cause("nat.masquerade",
			"the masquerade rule for %s is missing: packets leave %s with an address "+
				"that only this host knows",
			p.Src, link.Name).
			at(p.Src.String()).
			fix("tenon repair").
			see("nft list ruleset")
		c.Owner = "tenon"
		if !w.repair(n, "nat", c) || !ok {
			return false
		}
		p.Src = own
		w.posted()
	}
	next := f.Hop.Via
	if !next.IsValid() {
		next = p.Dst
	}
	return w.transmit(n, link, next)
}

// masquerades reports whether rules replace the source of other packets from the address of this one:
// its destination is then excluded from that, as by excludeCIDRs, or in the pool of a cluster.
func (w *walk) masquerades(n *host.Namespace) bool {
	other := *w.packet
	// Addresses for documentation, which no network has (RFC 5737, RFC 3849).
	other.Dst = netip.MustParseAddr("198.51.100.1")
	if other.Src.Is6() {
		other.Dst = netip.MustParseAddr("2001:db8:ffff::1")
	}
	other.Conn = packet.Connection{State: packet.New, OrigSrc: other.Src, OrigDst: other.Dst,
		OrigSrcPort: other.SrcPort, OrigDstPort: other.DstPort}
	w.ruleset(n).Hook(unix.NF_INET_POST_ROUTING, &other)
	return other.Src != w.packet.Src
}

// local delivers the packet to a socket of a namespace, and then follows the reply.
func (w *walk) local(n *host.Namespace) bool {
	p := w.packet
	if !w.hook(n, unix.NF_INET_LOCAL_IN, "input") {
		return false
	}
	if p.Conn.Reply || !w.reply {
		w.posted()
	}
	if w.reply {
		return w.accepted(n)
	}
	if !w.listens(n) {
		return false
	}
	w.reply = true
	w.hops = 0
	w.packet = &packet.Packet{Src: p.Dst, Dst: p.Src, SrcPort: p.DstPort, DstPort: p.SrcPort, TTL: 64, Choices: w.choices,
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
		c.Text = fmt.Sprintf("the reply of %s stays on the bridge and is never translated "+
			"back to %s: bridge-nf-call-%s is 0",
			p.Src, w.question.To, w.tables())
		c.Advice = fmt.Sprintf("sysctl -w net.bridge.bridge-nf-call-%s=1", w.tables())
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
	if n.Listeners == nil && w.known.ReadListeners != nil {
		if err := w.known.ReadListeners(n); err != nil {
			w.doubt("the sockets %s cannot be read: %v", w.in(n), err)
			return true
		}
	}
	if n.Listeners == nil {
		w.doubt("the sockets %s are not known", w.in(n))
		return true
	}
	var loopback bool
	for _, l := range n.Listeners {
		if l.Protocol != protocol || l.Addr.Port() != p.DstPort {
			continue
		}
		a := l.Addr.Addr().Unmap()
		if a == p.Dst || a.IsUnspecified() && (a.Is4() == p.Dst.Is4() || a.Is6()) {
			if l.Full() {
				w.doubt("the queue of the socket on %s %s: %d connections wait for its program (ss -lnt)",
					l.Addr, w.in(n), l.Waiting)
			}
			return w.shown(n, "service", "ss -ln"+protocol[:1], "a socket listens on %s", l.Addr)
		}
		loopback = loopback || a.IsLoopback()
	}
	c := cause("service.none", "no socket %s listens on port %d/%s", w.in(n), p.DstPort, protocol).
		see("%s", "ss -ln"+protocol[:1])
	if loopback {
		c.ID = "service.loopback"
		c.Text = fmt.Sprintf("the service on port %d/%s %s listens only on the loopback address",
			p.DstPort, protocol, w.in(n))
		c.Advice = "let it listen on all addresses"
	}
	return w.repair(n, "service", c.at(fmt.Sprintf("port %d/%s %s", p.DstPort, protocol, w.in(n))))
}
