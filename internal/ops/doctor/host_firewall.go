package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// ephemeral is the source port of evaluated packets.
const ephemeral = 40000

// firewall evaluates the rule set of the host for the usual flows of containers.
type firewall struct {
	*State
	rules  *packet.Rules
	drops  []drop
	doubts map[string]string // the part that could not be evaluated, by rule
}

// drop is a rule or a policy that stops flows.
type drop struct {
	place    packet.Place
	verdict  packet.Verdict
	hook     uint32
	flows    []string // broken ones
	networks []string
	members  []string
	attached []string       // the IDs of members, see [Finding.Objects]
	links    []string       // the same of their links on the host
	accepted []packet.Place // rules of other chains that accept the packet
	link     string
	subnets  []netip.Prefix
	bridged  bool // br_netfilter passes frames between ports to the rules
	replies  bool // only replies are dropped
}

func (s *State) firewall() *firewall {
	own := s.Host.Own()
	return &firewall{State: s, doubts: map[string]string{},
		rules: packet.NewRules(own.Ruleset, packet.NamespaceLookup{Namespace: own})}
}

// hops are the hooks that a packet passes, with its interfaces there.
type hops []struct {
	hook    uint32
	in, out packet.Interface
}

// way names a flow for the output.
type way struct {
	gateway *gateway
	member  *member
	flow    string
	bridged bool
}

// pass evaluates hooks and notes a drop. It reports whether the packet passes them all.
func (f *firewall) pass(w way, p *packet.Packet, hooks hops) bool {
	for _, h := range hooks {
		p.In, p.Out = h.in, h.out
		r := f.rules.Hook(h.hook, p)
		for _, d := range r.Doubts {
			f.doubts[placeTitle(d.Place)] = d.Part
		}
		switch r.Verdict {
		case packet.Accept:
			continue
		case packet.Unknown:
			return false
		}
		if o := f.owner(*r.By); o == ownerTenon || o == ownerCNI || o == "network policy" {
			return false // as the configuration asks
		}
		f.note(w, h.hook, p.Conn.Reply, r)
		return false
	}
	return true
}

func (f *firewall) note(w way, hook uint32, reply bool, r packet.Result) {
	i := slices.IndexFunc(f.drops, func(d drop) bool { return d.place == *r.By && d.hook == hook })
	if i < 0 {
		i = len(f.drops)
		f.drops = append(f.drops, drop{place: *r.By, verdict: r.Verdict, hook: hook,
			accepted: r.Passed, link: linkName(w.member.link), bridged: true, replies: true})
	}
	d := &f.drops[i]
	d.bridged, d.replies = d.bridged && w.bridged, d.replies && reply
	d.flows = add(d.flows, w.flow)
	d.networks = add(d.networks, w.gateway.Name)
	d.members = add(d.members, w.member.name)
	d.attached = add(d.attached, w.member.object)
	d.links = add(d.links, topology.InterfaceID(f.Host.Own().ID, w.member.link.Index))
	for _, p := range w.gateway.subnets {
		d.subnets = add(d.subnets, p)
	}
}

// add appends a value to a list that lacks it.
func add[T comparable](list []T, value T) []T {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// newPacket returns the first packet of a connection.
func newPacket(src, dst netip.Addr, protocol uint8, port uint16) *packet.Packet {
	return &packet.Packet{
		Src:      src,
		Dst:      dst,
		Protocol: protocol,
		SrcPort:  ephemeral,
		DstPort:  port,
		TCPFlags: 2,
		TTL:      64,
		Length:   60,
		Conn: packet.Connection{State: packet.New, OrigSrc: src, OrigDst: dst,
			OrigSrcPort: ephemeral, OrigDstPort: port},
	}
}

// reply returns the answer to a packet, as the hooks see it after the translations are undone.
func reply(p *packet.Packet) *packet.Packet {
	r := *p
	r.Src, r.Dst, r.SrcPort, r.DstPort = p.Dst, p.Src, p.DstPort, p.SrcPort
	r.TCPFlags = 0x12 // SYN and ACK
	r.Conn.State, r.Conn.Reply = packet.Established, true
	r.Conn.Status |= packet.SeenReply | packet.Assured | packet.Confirmed
	return &r
}

// The flows, as titles of findings name them.
const (
	flowOut  = "containers cannot reach other hosts"
	flowPods = "containers of one bridge cannot reach each other"
	flowDNS  = "containers cannot ask the DNS server on this host"
	flowPort = "published ports cannot be reached"
)

// outcome is what happened to the flow of a member to the outside.
type outcome struct {
	passed bool
	source netip.Addr     // after translation
	nat    []packet.Place // rules that translated it
}

// outward evaluates the way of a container to another host and back.
func (f *firewall) outward(g *gateway, m *member, a, outside netip.Addr, up *host.Link) outcome {
	own := f.Host.Own()
	p := newPacket(a, outside, unix.IPPROTO_TCP, 443)
	in, out := packet.InterfaceOf(own, m.link), packet.InterfaceOf(own, up)
	w := way{gateway: g, member: m, flow: flowOut}
	if !f.pass(w, p, hops{{unix.NF_INET_PRE_ROUTING, in, packet.Interface{}}}) ||
		p.Dst != outside ||
		!f.pass(w, p, hops{{unix.NF_INET_FORWARD, in, out}}) {
		return outcome{}
	}
	before := *p
	p.In, p.Out = in, out
	r := f.rules.Hook(unix.NF_INET_POST_ROUTING, p)
	if r.Verdict != packet.Accept {
		return outcome{}
	}
	back := reply(&before)
	back.Conn.Status |= p.Conn.Status
	ok := f.pass(
		w,
		back,
		hops{{unix.NF_INET_FORWARD, out, in}, {unix.NF_INET_POST_ROUTING, out, in}},
	)
	return outcome{ok, p.Src, r.NAT}
}

// between evaluates the way of a container to another one on the same bridge, which passes the
// rules only with br_netfilter.
func (f *firewall) between(g *gateway, m, other *member, a, b netip.Addr) {
	if m.link.Bridge == nil {
		return
	}
	name := "net.bridge.bridge-nf-call-iptables"
	if a.Is6() {
		name = "net.bridge.bridge-nf-call-ip6tables"
	}
	if f.setting(name) != "1" && !m.link.Bridge.Call {
		return
	}
	on := packet.InterfaceOf(f.Host.Own(), m.link)
	p := newPacket(a, b, unix.IPPROTO_TCP, 80)
	w := way{gateway: g, member: m, flow: flowPods, bridged: true}
	if f.pass(w, p, hops{{unix.NF_INET_FORWARD, on, on}}) {
		f.pass(w, reply(p), hops{{unix.NF_INET_FORWARD, on, on}})
	}
}

// resolve evaluates questions of a container to DNS servers on this host.
func (f *firewall) resolve(g *gateway, m *member, a netip.Addr) {
	own := f.Host.Own()
	for _, server := range f.nameservers(m) {
		if server.Is4() != a.Is4() || server.IsLoopback() || own.AddressType(server) != "local" {
			continue
		}
		in := packet.InterfaceOf(own, m.link)
		p := newPacket(a, server, unix.IPPROTO_UDP, 53)
		w := way{gateway: g, member: m, flow: flowDNS}
		if f.pass(w, p, hops{{unix.NF_INET_PRE_ROUTING, in, packet.Interface{}}}) &&
			p.Dst == server &&
			f.pass(w, p, hops{{unix.NF_INET_LOCAL_IN, in, packet.Interface{}}}) {
			f.pass(w, reply(p), hops{{unix.NF_INET_LOCAL_OUT, packet.Interface{}, in},
				{unix.NF_INET_POST_ROUTING, packet.Interface{}, in}})
		}
	}
}

// nameservers returns the DNS servers that a container may ask: of its result, or of this host.
func (s *State) nameservers(m *member) (list []netip.Addr) {
	texts := []string{}
	for _, rec := range s.Records {
		if rec.Attachment.Container == m.name && rec.Result != nil {
			texts = append(texts, rec.Result.DNS.Nameservers...)
		}
	}
	if len(texts) == 0 && s.Node.Resolver != nil {
		texts = s.Node.Resolver.Nameservers
	}
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// landing is where a packet to a published port ends after prerouting.
type landing struct {
	to  netip.AddrPort
	nat []packet.Place
}

// protocols are the protocols of published ports.
var protocols = map[string]uint8{
	"": unix.IPPROTO_TCP, "tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP,
	"sctp": unix.IPPROTO_SCTP,
}

// published evaluates the way from outside to a published port and back.
func (f *firewall) published(
	g *gateway, m *member, port mapping, at, outside netip.Addr, up *host.Link,
) (l landing, ok bool) {
	own := f.Host.Own()
	in := packet.InterfaceOf(own, up)
	p := newPacket(outside, at, protocols[strings.ToLower(port.Protocol)], port.HostPort)
	p.In = in
	r := f.rules.Hook(unix.NF_INET_PRE_ROUTING, p)
	w := way{gateway: g, member: m, flow: flowPort}
	if r.Verdict != packet.Accept {
		if r.Verdict != packet.Unknown && f.owner(*r.By) != ownerTenon {
			f.note(w, unix.NF_INET_PRE_ROUTING, false, r)
		}
		return l, false
	}
	l = landing{netip.AddrPortFrom(p.Dst, p.DstPort), r.NAT}
	if l.to.Addr() == at || !m.holds(l.to.Addr()) {
		return l, true
	}
	out := packet.InterfaceOf(own, m.link)
	if f.pass(w, p, hops{{unix.NF_INET_FORWARD, in, out}}) {
		f.pass(w, reply(p), hops{{unix.NF_INET_FORWARD, out, in}})
	}
	return l, true
}

// holds reports whether a member has an address.
func (m member) holds(a netip.Addr) bool {
	return slices.ContainsFunc(m.addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// visit is called for each address of each member that still exists.
type visit func(g *gateway, m *member, a netip.Addr)

// sample returns how many members of each network the rules are evaluated for: all of them, unless
// the rule set is very large.
func (s *State) sample() int {
	const budget, least, traversals = 300_000, 4, 4
	return max(least, budget/traversals/(1+len(s.Host.Own().Ruleset.Rules)))
}

// eachMember calls a function for the addresses of members with a link on the host, until the
// deadline passes: for at most most members of each network, spread over all of them.
func (s *State) eachMember(ctx context.Context, most int, call visit) error {
	for _, g := range s.gateways() {
		step := 1 + (len(g.members)-1)/most
		for i := 0; i < len(g.members); i += step {
			m := &g.members[i]
			if m.link == nil {
				continue
			}
			for _, p := range m.addrs {
				if err := ctx.Err(); err != nil {
					return err
				}
				call(&g, m, p.Addr())
			}
		}
	}
	return nil
}

// drops reports the rules and policies that stop the usual flows of containers.
func drops(ctx context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partNFT); err != nil {
		return nil, err
	}
	f := s.firewall()
	err = s.eachMember(ctx, s.sample(), func(g *gateway, m *member, a netip.Addr) {
		f.resolve(g, m, a)
		if other, b := g.neighbour(m, a); other != nil {
			f.between(g, m, other, a, b)
		}
		outside, found, ok := s.outsider(a.Is6())
		if !ok {
			return
		}
		up := s.Host.Own().Link(found.Link())
		f.outward(g, m, a, outside, up)
		f.eachPort(
			m,
			a,
			up,
			func(port mapping, at netip.Addr) { f.published(g, m, port, at, outside, up) },
		)
	})
	if err != nil {
		return nil, err
	}
	for _, d := range f.drops {
		list = append(list, f.finding(d))
	}
	return append(list, f.doubtful()...), nil
}

// neighbour returns another member with an address of the same family.
func (g *gateway) neighbour(m *member, a netip.Addr) (*member, netip.Addr) {
	for i := range g.members {
		o := &g.members[i]
		if o == m || o.name == m.name {
			continue
		}
		for _, p := range o.addrs {
			if p.Addr().Is4() == a.Is4() {
				return o, p.Addr()
			}
		}
	}
	return nil, netip.Addr{}
}

// eachPort calls a function for the ports that a member publishes for an address, with an address
// of this host at which the port is published.
func (f *firewall) eachPort(
	m *member,
	a netip.Addr,
	up *host.Link,
	call func(mapping, netip.Addr),
) {
	for _, port := range m.ports {
		at, err := netip.ParseAddr(port.HostIP)
		if err != nil || at.IsUnspecified() {
			at = netip.Addr{}
			for _, x := range f.Host.Own().Of(up.Index) {
				if x.Prefix.Addr().Is4() == a.Is4() && x.Scope == "global" {
					at = x.Prefix.Addr()
					break
				}
			}
		}
		if at.IsValid() && at.Is4() == a.Is4() && !at.IsLoopback() && port.HostPort != 0 {
			call(port, at)
		}
	}
}

// finding explains a drop.
func (f *firewall) finding(d drop) Finding {
	id := map[uint32]string{unix.NF_INET_FORWARD: "firewall.forward-drop",
		unix.NF_INET_LOCAL_IN: "firewall.input-drop"}[d.hook]
	if id == "" {
		id = "firewall.drop"
	}
	owner := f.owner(d.place)
	verb := "drops"
	if d.verdict == packet.Reject {
		verb = "rejects"
	}
	x := Finding{ID: id, Severity: Error, Owner: owner, Affects: f.affected(d.networks, d.members),
		Title: fmt.Sprintf(
			"%s: %s %s their packets",
			strings.Join(d.flows, ", "),
			placeTitle(d.place),
			verb,
		),
		Text: f.reason(d, owner)}
	x.Objects = d.links
	if slices.Equal(x.Affects, d.members) {
		x.Objects = d.attached
	}
	x.Evidence = []Evidence{{listing(d.place), f.telling(d.place)}}
	x.Fix = opening{d.place, owner, d.link, d.subnets, d.hook == unix.NF_INET_LOCAL_IN}.fixes()
	return x
}

// reason says which program set the rule, and which of several rule sets wins.
func (f *firewall) reason(d drop, owner string) string {
	var lines []string
	switch owner {
	case ownerDocker:
		lines = append(
			lines,
			"Docker sets this policy when it starts, and accepts only its own bridges.",
		)
	case ownerFirewalld:
		lines = append(lines, "firewalld rejects packets between zones that no policy connects; "+
			"the subnet of the containers is in no zone that it trusts.")
	case ownerUFW:
		lines = append(lines, "ufw denies forwarding by default (DEFAULT_FORWARD_POLICY).")
	}
	if d.place.Number == 0 {
		lines = append(lines, fmt.Sprintf("No rule of the chain accepts packets of %s.", d.link))
	}
	if d.replies {
		lines = append(lines, "The first packets of connections pass; the replies are dropped.")
	}
	if d.bridged {
		lines = append(
			lines,
			"br_netfilter passes frames between ports of the bridge to these rules "+
				"(net.bridge.bridge-nf-call-iptables).",
		)
	}
	if len(d.accepted) > 0 {
		lines = append(
			lines,
			fmt.Sprintf(
				"The accept of %s does not help: each base chain of the hook has to accept "+
					"a packet, and a drop is final.",
				placeTitle(d.accepted[0]),
			),
		)
	}
	if d.place.Comment != "" {
		lines = append(lines, fmt.Sprintf("The rule has the comment %q.", d.place.Comment))
	}
	return strings.Join(lines, "\n")
}

// telling returns the line that shows a policy.
func (f *firewall) telling(p packet.Place) string {
	if p.Number != 0 {
		return fmt.Sprintf("rule %d (handle %d)", p.Number, p.Handle)
	}
	for _, c := range f.Host.Own().Ruleset.Chains {
		if c.Table == p.Table && c.Name == p.Chain && c.Packets > 0 {
			return fmt.Sprintf("policy drop, %d packets", c.Packets)
		}
	}
	if program, _ := p.Program(); program != "" {
		return "-P " + p.Chain + " DROP"
	}
	return "policy drop"
}

// affected returns the networks if all of their containers suffer, else the containers.
func (s *State) affected(networks, members []string) []string {
	n := 0
	for _, g := range s.gateways() {
		if slices.Contains(networks, g.Name) {
			n += min(len(g.members), s.sample())
		}
	}
	if len(members) < n {
		return members
	}
	return networks
}

// doubtful reports rules on the way of containers that could not be evaluated.
func (f *firewall) doubtful() []Finding {
	if len(f.doubts) == 0 {
		return nil
	}
	var places []string
	for place, part := range f.doubts {
		places = append(places, fmt.Sprintf("%s (%s)", place, part))
	}
	slices.Sort(places)
	text := places
	const most = 5
	if len(text) > most {
		text = append(slices.Clone(text[:most]), fmt.Sprintf("and %d more", len(places)-most))
	}
	return []Finding{{
		ID: "firewall.unknown", Severity: Info,
		Title: fmt.Sprintf(
			"%s cannot be evaluated, and were taken as not matching",
			plural.Count(len(places), "rule"),
		),
		Text:     strings.Join(text, "\n"),
		Evidence: []Evidence{{"nft -a list ruleset", ""}},
	}}
}

// translations reports wrong or missing translations of the source and of published ports.
func translations(ctx context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partNFT); err != nil {
		return nil, err
	}
	f := s.firewall()
	err = s.eachMember(ctx, s.sample(), func(g *gateway, m *member, a netip.Addr) {
		outside, found, ok := s.outsider(a.Is6())
		if !ok {
			return
		}
		up := s.Host.Own().Link(found.Link())
		o := f.outward(g, m, a, outside, up)
		if x, wrong := f.sourceOf(g, m, a, o, up); wrong && !f.repairable(m, x.ID) {
			list = merge(list, x)
		}
		f.eachPort(m, a, up, func(port mapping, at netip.Addr) {
			l, ok := f.published(g, m, port, at, outside, up)
			if x, wrong := f.misled(g, m, a, port, l); ok && wrong && !f.repairable(m, x.ID) {
				list = merge(list, x)
			}
		})
	})
	return append(joined(list), f.staleRules()...), err
}

// joined leaves out missing rules of ports in networks without masquerade rules: they have one cause
// and one fix.
func joined(list []Finding) []Finding {
	flushed := func(fix string) int {
		return slices.IndexFunc(list, func(f Finding) bool {
			return f.ID == "firewall.masquerade" && f.Fix[0].Command == fix
		})
	}
	var rest []Finding
	for _, f := range list {
		if f.ID != "firewall.port-missing" || flushed(f.Fix[0].Command) < 0 {
			rest = append(rest, f)
		}
	}
	return rest
}

// repairable reports whether check attachments.rules reports the missing rules of a container.
func (f *firewall) repairable(m *member, id string) bool {
	return (id == "firewall.masquerade" || id == "firewall.port-missing") &&
		slices.ContainsFunc(f.CNI.Broken, func(b BrokenRules) bool { return b.Container == m.name })
}

// sourceOf judges the source with which packets of a container leave.
func (f *firewall) sourceOf(
	g *gateway,
	m *member,
	a netip.Addr,
	o outcome,
	up *host.Link,
) (x Finding, wrong bool) {
	own := f.Host.Own()
	switch {
	case !o.passed:
		return x, false
	case o.source == a && g.masquerade && len(o.nat) == 0:
		return Finding{
			ID: "firewall.masquerade", Severity: Error,
			Title: fmt.Sprintf(
				"masquerade rules of network %s are missing: packets leave %s with addresses that "+
					"only this host knows",
				g.Name,
				up.Name,
			),
			Text: "Another program has flushed the rules, for example \"nft flush ruleset\" or " +
				"a restart of a firewall. The service tenon-repair restores them each time.",
			Affects: []string{m.name}, Objects: []string{m.object}, Owner: ownerTenon,
			Evidence: []Evidence{{"nft list ruleset | grep -w " + a.String(), ""}},
			Fix: []Fix{
				{Command: "tenon repair " + g.Name, Effect: "restores rules of Tenon", Safe: true},
			},
		}, true
	case o.source == a || own.AddressType(o.source) == "local" || len(o.nat) == 0:
		return x, false
	}
	by := o.nat[0]
	owner := f.owner(by)
	if owner == ownerTenon || owner == ownerCNI {
		return x, false
	}
	return Finding{
		ID: "firewall.foreign-snat", Severity: Error,
		Title: fmt.Sprintf(
			"%s translates the source of packets of network %s to %s, which this host does not "+
				"have: "+
				"replies never arrive",
			placeTitle(by),
			g.Name,
			o.source,
		),
		Text: "It sees the packets before the masquerade rule of the network, and only the " +
			"first translation counts.",
		Affects: []string{m.name}, Objects: []string{m.object}, Owner: owner,
		Evidence: []Evidence{{listing(by), f.telling(by)}},
		Fix: []Fix{
			{
				Command: fmt.Sprintf(
					"exempt %s in %s, or delete the rule",
					prefixes(g.subnets),
					chainTitle(by),
				),
				Effect: "changes a rule of " + owner,
			},
		},
	}, true
}

func prefixes(list []netip.Prefix) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// misled judges where packets to a published port go.
func (f *firewall) misled(
	g *gateway,
	m *member,
	a netip.Addr,
	port mapping,
	l landing,
) (x Finding, wrong bool) {
	title := fmt.Sprintf("port %d/%s of container %s", port.HostPort, protocolName(port), m.name)
	switch {
	case l.to.Addr() == a:
		return x, false
	case len(l.nat) == 0:
		return Finding{
			ID: "firewall.port-missing", Severity: Error,
			Title: "published ports of network " + g.Name + " lead nowhere: their rules are missing",
			Text: "Another program has flushed the rules, or a proxy process that published the " +
				"ports has ended. One of them is " + title + ".",
			Affects: []string{m.name}, Objects: []string{m.object}, Owner: ownerTenon,
			Evidence: []Evidence{{fmt.Sprintf("nft list ruleset | grep -w %d", port.HostPort), ""}},
			Fix: []Fix{
				{Command: "tenon repair " + g.Name, Effect: "restores rules of Tenon", Safe: true},
			},
		}, true
	}
	by := l.nat[0]
	owner := f.owner(by)
	if owner == ownerTenon || owner == ownerCNI { // another attachment holds the port
		return x, false
	}
	gone := ""
	if !f.reachable(l.to.Addr()) {
		gone = ", which does not exist"
	}
	return Finding{
		ID: "firewall.foreign-dnat", Severity: Error,
		Title: fmt.Sprintf(
			"%s is never reached: %s sends its packets to %s%s",
			title,
			placeTitle(by),
			l.to,
			gone,
		),
		Text: "The chain sees the packets before the rule of the network, and only the first " +
			"translation counts.",
		Affects: []string{m.name}, Objects: []string{m.object}, Owner: owner,
		Evidence: []Evidence{{listing(by), f.telling(by)}},
		Fix: []Fix{
			{Command: "delete the rule: " + deletion(by), Effect: "changes a rule of " + owner},
		},
	}, true
}

func protocolName(port mapping) string {
	if port.Protocol == "" {
		return "tcp"
	}
	return strings.ToLower(port.Protocol)
}

// deletion returns the command that deletes a rule.
func deletion(p packet.Place) string {
	if program, table := p.Program(); program != "" {
		return fmt.Sprintf("%s -t %s -D %s %d", program, table, p.Chain, p.Number)
	}
	return fmt.Sprintf(
		"nft delete rule %s %s %s handle %d",
		p.Table.Family,
		p.Table.Name,
		p.Chain,
		p.Handle,
	)
}

// reachable reports whether an address is on a link of a known namespace, or is reached by a
// link that does not lead to containers.
func (s *State) reachable(a netip.Addr) bool {
	for i := range s.Host.Namespaces {
		if s.Host.Namespaces[i].Holder(a) != nil {
			return true
		}
	}
	f, ok := s.Host.Own().Lookup(host.Query{Dst: a})
	return !ok || f.Link() == 0 || !s.insideLinks()[f.Link()]
}

// destinationRule is a rule of another program that translates the destination of packets.
type destinationRule struct {
	place packet.Place
	to    netip.AddrPort
	owner string
	see   string
}

// destinationRules returns the rules of other programs than CNI plugins that translate destinations.
func (s *State) destinationRules() (list []destinationRule) {
	numbers := map[string]int{}
	for _, r := range s.Host.Own().Ruleset.Rules {
		key := fmt.Sprint(r.Table, r.Chain)
		numbers[key]++
		to, ok := nftmsg.Destination(r.Table.Family, r.Exprs)
		if !ok {
			continue
		}
		p := packet.Place{
			Table:   r.Table,
			Chain:   r.Chain,
			Number:  numbers[key],
			Handle:  r.Handle,
			Comment: r.Comment,
		}
		if owner := s.owner(p); owner != ownerTenon && owner != ownerCNI {
			list = append(list, destinationRule{p, to, owner, listing(p)})
		}
	}
	return list
}

// staleRules reports translations to addresses of a network that no container has.
func (f *firewall) staleRules() (list []Finding) {
	for _, d := range f.destinationRules() {
		if f.reachable(d.to.Addr()) {
			continue
		}
		list = append(list, Finding{
			ID: "firewall.stale-dnat", Severity: Warning,
			Title: fmt.Sprintf(
				"%s sends packets to %s, which no container has",
				placeTitle(d.place),
				d.to,
			),
			Text:  "If the address is given to another container, that one gets the packets.",
			Owner: d.owner, Evidence: []Evidence{{d.see, f.telling(d.place)}},
			Fix: []Fix{
				{
					Command: "delete the rule: " + deletion(d.place),
					Effect:  "changes a rule of " + d.owner,
				},
			},
		})
	}
	return list
}

// mixed reports rule sets of both iptables programs.
func mixed(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partNFT); err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, r := range s.Host.Own().Ruleset.Rules {
		p := packet.Place{Table: r.Table, Chain: baseLike(r)}
		if program, _ := p.Program(); program != "" {
			count[program]++
		}
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if count[program] == 0 || count[program+"-legacy"] == 0 {
			continue
		}
		list = append(list, Finding{
			ID: "firewall.mixed", Severity: Info,
			Title: fmt.Sprintf(
				"%[1]s has %[2]d rules in nftables and %[3]d in the legacy tables; both decide "+
					"about each packet",
				program,
				count[program],
				count[program+"-legacy"],
			),
			Text: "An accept in one set does not undo a drop in the other. Each program shows " +
				"only its own rules.",
			Evidence: []Evidence{{program + "-nft-save | grep -c ^-A", fmt.Sprint(count[program])},
				{program + "-legacy-save | grep -c ^-A", fmt.Sprint(count[program+"-legacy"])}},
			Fix: []Fix{
				{
					Command: "move all programs to one variant: update-alternatives --config " +
						"" + program,
				},
			},
		})
	}
	return list, nil
}

// baseLike returns a name of a chain under which [packet.Place.Program] recognizes the table.
func baseLike(r nftmsg.ListedRule) string { return strings.ToUpper(r.Chain) }

// zones reports networks that are in no zone of firewalld. Rules that drop packets are
// findings of their own.
func zones(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partFirewalld); err != nil {
		return nil, err
	}
	fw := s.Node.Firewalld
	if fw == nil {
		return nil, NotUsed()
	}
	for _, g := range s.gateways() {
		covered := false
		for _, z := range fw.Zones {
			covered = covered || g.bridge != "" && slices.Contains(z.Interfaces, g.bridge)
			for _, source := range z.Sources {
				p, err := netip.ParsePrefix(source)
				covered = covered || err == nil && slices.ContainsFunc(g.subnets, p.Overlaps)
			}
		}
		if covered || len(g.members) == 0 {
			continue
		}
		o := opening{owner: ownerFirewalld, link: g.bridge, subnets: g.subnets}
		list = append(list, Finding{
			ID: "firewall.firewalld-zone", Severity: Info,
			Title: fmt.Sprintf(
				"network %s is in no zone of firewalld; the default zone %s decides about its "+
					"packets",
				g.Name,
				fw.Default,
			),
			Affects: []string{g.Name}, Owner: ownerFirewalld,
			Evidence: []Evidence{{"firewall-cmd --get-active-zones", ""}}, Fix: o.fixes(),
		})
	}
	return list, nil
}
