package topology

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/nat"
	"github.com/tenon-cni/tenon/network"
)

// check marks problems.
func (b *builder) check() {
	for _, rec := range b.places.Records {
		b.checkAttachment(b.attachments[string(rec.Attachment.Owner())], rec)
	}
	b.checkHost()
	for _, s := range b.spaces {
		b.checkMTU(s)
	}
	b.checkDuplicates()
	b.checkSubnets()
	b.checkPorts()
}

func (n *Node) mark(s Severity, id, advice, format string, args ...any) {
	p := Problem{ID: id, Severity: s, Text: fmt.Sprintf(format, args...), Advice: advice}
	if !slices.Contains(n.Problems, p) {
		n.Problems = append(n.Problems, p)
	}
}

// settings are the options of plugins that say what an attachment needs of the host.
type settings struct {
	IPMasq           bool `json:"ipMasq"`
	IsGateway        bool `json:"isGateway"`
	IsDefaultGateway bool `json:"isDefaultGateway"`
}

// settingsOf joins the options of all plugins of an attachment.
func (b *builder) settingsOf(rec network.Record) settings {
	key := rec.Attachment
	s, known := b.settings[key]
	if !known {
		s = readSettings(rec)
		b.settings[key] = s
	}
	return s
}

func readSettings(rec network.Record) (s settings) {
	if rec.List == nil {
		return s
	}
	for _, p := range rec.List.Plugins {
		var one settings
		text, err := p.MarshalJSON()
		if err != nil || json.Unmarshal(text, &one) != nil {
			continue
		}
		s.IPMasq, s.IsGateway = s.IPMasq || one.IPMasq, s.IsGateway || one.IsGateway ||
			one.IsDefaultGateway
	}
	return s
}

func (b *builder) checkAttachment(n *Node, rec network.Record) {
	s := b.byPath[rec.Netns]
	boot := b.places.Host.BootID
	switch {
	case rec.BootID != "" && boot != "" && rec.BootID != boot:
		n.mark(Error, "attachment.earlier-boot", "tenon prune", "from before the last boot")
		return
	case rec.Netns == "":
		n.mark(Warning, "attachment.namespace-unknown", "", "namespace is not recorded")
		return
	case s == nil:
		n.mark(Error, "attachment.namespace-gone", "tenon prune", "namespace gone")
		return
	case rec.State == network.Adding:
		n.mark(Warning, "attachment.adding", "tenon recover", "ADD in progress or interrupted")
	case rec.State == network.Deleting:
		n.mark(Warning, "attachment.deleting", "tenon recover", "DEL in progress, interrupted or failed")
	}
	inside := s.LinkByName(rec.Attachment.IfName)
	if inside == nil {
		n.mark(Error, "attachment.interface-gone", "detach and attach the container",
			"interface %s is missing", rec.Attachment.IfName)
		return
	}
	b.checkLinks(n, s, inside)
	b.checkAddresses(n, s, inside, rec)
	readable := !slices.ContainsFunc(b.own().Missing,
		func(x host.Skipped) bool { return x.What == "nftables" })
	if b.settingsOf(rec).IPMasq && readable {
		b.checkMasquerade(n)
	}
}

// checkLinks checks both sides of an attachment.
func (b *builder) checkLinks(n *Node, s *space, inside *host.Link) {
	other, index := b.lower(s, inside)
	switch {
	case !inside.Up():
		n.mark(Error, "interface.down", "ip link set "+inside.Name+" up, in the namespace",
			"%s is down", inside.Name)
	case inside.Kind == "veth" && other != nil && !other.links[index].Up():
		name := other.links[index].Name
		n.mark(Error, "interface.down", "ip link set "+name+" up", "host side %s is down", name)
	case !inside.Running():
		n.mark(Error, "interface.no-carrier", "", "%s has no carrier", inside.Name)
	}
	if inside.Kind == "veth" && other != nil {
		l := other.links[index]
		bridge := other.links[l.Master] // while it is down, its ports are disabled
		if p := l.Port; p != nil && p.State != "forwarding" && l.Running() && bridge != nil && bridge.Up() {
			n.mark(Error, "bridge.port-state", "", "port %s is %s", l.Name, p.State)
		}
	}
}

// checkAddresses compares addresses, gateways and default routes with the record.
func (b *builder) checkAddresses(n *Node, s *space, inside *host.Link, rec network.Record) {
	if rec.Result == nil {
		return
	}
	for _, ip := range rec.Result.IPs {
		holds := slices.ContainsFunc(s.addrs[inside.Index],
			func(a host.Addr) bool { return a.Prefix == ip.Address })
		if !holds && ofInterface(rec.Result, ip, inside.Name) {
			n.mark(Error, "address.missing", "detach and attach the container", "address %s is missing",
				ip.Address)
		}
		if b.settingsOf(rec).IsGateway && ip.Gateway.IsValid() && len(b.ofHost(ip.Gateway)) == 0 {
			b.markGateway(n, s, inside, ip.Gateway, rec)
		}
	}
	for _, r := range rec.Result.Routes {
		if r.Dst.Bits() == 0 && !hasDefault(s.Namespace, r.Dst.Addr().Is4()) {
			n.mark(Error, "route.default-missing", "detach and attach the container",
				"no %s default route", family(r.Dst.Addr()))
		}
	}
}

// ofInterface reports whether an address of a result is on an interface. Old versions do not say.
func ofInterface(r *cni.Result, ip cni.IP, name string) bool {
	i, known := ip.Interface.Get()
	return !known || i < len(r.Interfaces) && i >= 0 && r.Interfaces[i].Name == name
}

// ofHost returns the interfaces of the host with an address.
func (b *builder) ofHost(a netip.Addr) (list []string) {
	for _, id := range b.holders[a] {
		if b.m.byID[id].Namespace == b.own().ID {
			list = append(list, id)
		}
	}
	return list
}

// markGateway marks the interface of the host that has lost a gateway address.
func (b *builder) markGateway(n *Node, s *space, inside *host.Link, gateway netip.Addr,
	rec network.Record) {
	if other, index := b.lower(s, inside); other != nil {
		l := other.links[index]
		if m := other.links[l.Master]; m != nil {
			l = m
		}
		if device := b.m.byID[other.link(l.Index)]; device != nil {
			n = device
		}
	}
	n.mark(Error, "address.gateway-gone", "ip addr add "+gateway.String()+"/… dev "+n.Name,
		"lost %s, the gateway of network %s", gateway, rec.Attachment.Network)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// hasDefault reports whether a namespace has a default route, in any table.
func hasDefault(n *host.Namespace, ipv4 bool) bool {
	return slices.ContainsFunc(n.Routes, func(r host.Route) bool {
		return r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == ipv4 && r.Type == "unicast"
	})
}

// checkMasquerade marks addresses that no rule masquerades.
func (b *builder) checkMasquerade(n *Node) {
	for _, text := range n.Attached.Addresses {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		a := p.Addr()
		if !b.masked[a] && !slices.ContainsFunc(b.rules,
			func(t nat.Translation) bool { return b.covers(t, p) }) {
			n.mark(Error, "masquerade.missing", "tenon repair", "no masquerade for %s", a)
		}
	}
}

// covers reports whether a rule of another program masquerades packets of a network, or of any
// source through an uplink.
func (b *builder) covers(t nat.Translation, p netip.Prefix) bool {
	if t.Kind != nat.Masquerade || t.Tenon {
		return false
	}
	if t.Source.IsValid() {
		return t.Source == p.Masked().Addr()
	}
	uplink := slices.ContainsFunc(b.m.Nodes, func(n *Node) bool {
		return n.Kind == Interface && n.Namespace == b.own().ID && n.Name == t.Out && n.Device.Uplink
	})
	return !t.Conditional && (t.Out == "" || uplink)
}

// checkHost checks the needs of all containers.
func (b *builder) checkHost() {
	own, node := b.own(), b.own().node
	routed := false
	for _, rec := range b.places.Records {
		routed = routed || b.settingsOf(rec).IsGateway
	}
	if !routed {
		return
	}
	if !hasDefault(own.Namespace, true) {
		node.mark(Warning, "route.default-missing", "", "no IPv4 default route")
	}
	if own.Settings["net.ipv4.ip_forward"] == "0" {
		node.mark(Error, "sysctl.ip-forward", "sysctl -w net.ipv4.ip_forward=1",
			"net.ipv4.ip_forward is 0")
	}
	for _, n := range b.m.Nodes {
		if n.Kind != Interface || n.Namespace != own.ID {
			continue
		}
		switch {
		case n.Device.State == "up":
		case n.Device.Uplink, len(n.Device.Networks) > 0 && n.Device.Kind != "veth":
			id := "interface." + strings.ReplaceAll(n.Device.State, " ", "-")
			n.mark(Error, id, "ip link set "+n.Name+" up", "%s", n.Device.State)
		}
	}
}

// checkMTU compares the MTUs of the ends of veth pairs, and of uplinks and bridges.
func (b *builder) checkMTU(s *space) {
	for i := range s.Links {
		l := &s.Links[i]
		n := b.m.byID[s.link(l.Index)]
		if n == nil {
			continue
		}
		if other, index := b.lower(s, l); l.Kind == "veth" && other != nil &&
			l.MTU > other.links[index].MTU &&
			(s == b.own() || other == b.own()) {
			peer := other.links[index]
			b.marked(n).mark(Warning, "mtu.peer", fmt.Sprintf("ip link set %s mtu %d", l.Name, peer.MTU),
				"%s has MTU %d, its peer %s %d", l.Name, l.MTU, peer.Name, peer.MTU)
		}
		if n.Device.Uplink {
			b.checkUplink(n)
		}
	}
}

// marked returns the attachment that owns an interface, or the interface.
func (b *builder) marked(n *Node) *Node {
	if owner := b.owner[n.ID]; owner != nil {
		return owner
	}
	return n
}

// checkUplink marks an uplink with a smaller MTU than a bridge of containers.
func (b *builder) checkUplink(uplink *Node) {
	for _, n := range b.m.Nodes {
		if n.Kind == Interface && n.Namespace == uplink.Namespace && n.Device.Kind == "bridge" &&
			len(n.Device.Networks) > 0 && n.Device.MTU > uplink.Device.MTU {
			uplink.mark(Warning, "mtu.uplink", "", "MTU %d, less than %d of %s", uplink.Device.MTU,
				n.Device.MTU, n.Name)
		}
	}
}

// checkDuplicates marks addresses that several containers of one segment have.
func (b *builder) checkDuplicates() {
	type place struct {
		segment string
		addr    netip.Addr
	}
	seen := map[place][]*Node{}
	var order []place
	for _, s := range b.spaces[1:] {
		for _, a := range s.Addrs {
			l := s.links[a.Link]
			if l == nil || a.Scope != "global" || b.m.byID[s.link(l.Index)] == nil {
				continue
			}
			p := place{b.segment(s, l), a.Prefix.Addr()}
			if p.segment == "" {
				continue
			}
			if seen[p] == nil {
				order = append(order, p)
			}
			seen[p] = append(seen[p], b.m.byID[s.link(l.Index)])
		}
	}
	for _, p := range order {
		for _, n := range seen[p] {
			for _, other := range seen[p] {
				if other.Namespace != n.Namespace {
					b.marked(n).mark(Error, "address.duplicate", "", "address %s is also on %s in %s", p.addr,
						other.Name, b.byID[other.Namespace].node.Name)
				}
			}
		}
	}
}

// checkSubnets marks interfaces with the subnet of a container network that another interface has
// too: the host sends packets for its addresses by the first route.
func (b *builder) checkSubnets() {
	type key struct {
		table, metric int
		dst           netip.Prefix
	}
	first := map[key]int{}
	for _, r := range b.own().Routes {
		if r.Type != "unicast" || r.Dst.Bits() == 0 || r.Dst.IsSingleIP() || len(r.Hops) != 1 ||
			r.Dst.Addr().IsLinkLocalUnicast() || r.Dst.Addr().IsMulticast() {
			continue
		}
		k := key{r.Table, r.Metric, r.Dst}
		link, known := first[k]
		if !known {
			first[k] = r.Hops[0].Link
			continue
		}
		n, used := b.m.byID[b.own().link(r.Hops[0].Link)], b.m.byID[b.own().link(link)]
		if n != nil && used != nil && n != used &&
			len(n.Device.Networks)+len(used.Device.Networks) > 0 {
			n.mark(Warning, "subnet.overlap", "give the networks different subnets, or VRFs",
				"%s is also on %s, where the host sends packets for it", r.Dst, used.Name)
		}
	}
}

// segment returns the ID of the bridge or parent of a link, or of the host for a pair that ends
// there; "" if it is not known.
func (b *builder) segment(s *space, l *host.Link) string {
	other, index := b.lower(s, l)
	switch {
	case other == nil:
		return ""
	case l.Kind != "veth":
		return other.link(index)
	case other.links[index].Master != 0:
		return other.link(other.links[index].Master)
	}
	return other.node.ID
}

// checkPorts marks ports that lead to an address of this host's networks that nothing has.
func (b *builder) checkPorts() {
	for _, n := range b.m.Nodes {
		if n.Kind != Port {
			continue
		}
		to, err := netip.ParseAddrPort(n.Translated.To)
		if err != nil || len(b.holders[to.Addr()]) > 0 {
			continue
		}
		for _, a := range b.own().Addrs {
			l := b.own().links[a.Link]
			if l != nil && l.Bridge != nil && a.Prefix.Contains(to.Addr()) {
				n.mark(Error, "port.target-gone", "", "leads to %s, which no container has", to.Addr())
				break
			}
		}
	}
}
