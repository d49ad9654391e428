package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/nat"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
)

// hostID is the ID of the node of the host.
const hostID = "host"

// space is a namespace with its links by index.
type space struct {
	*host.Namespace
	number int // in the list
	node   *Node
	links  map[int]*host.Link
	addrs  map[int][]host.Addr
	others map[int]string // IDs of namespaces by their identifier in this one
}

// builder builds a map.
type builder struct {
	m       *Map
	places  *why.Places
	spaces  []*space // the first is the host's
	byID    map[string]*space
	byPath  map[string]*space
	holders map[netip.Addr][]string // IDs of interfaces
	// attachments by their owner, and by container and network for objects of upstream's plugins.
	attachments map[string]*Node
	owner       map[string]*Node // attachments by the ID of their object
	settings    map[cni.Attachment]settings
	rules       []nat.Translation
	masked      map[netip.Addr]bool // sources that a rule masquerades
}

// Build arranges the state of a host as a graph. It reads nothing.
func Build(p *why.Places) *Map {
	h := p.Host
	b := &builder{places: p, byID: map[string]*space{}, byPath: map[string]*space{},
		holders: map[netip.Addr][]string{}, attachments: map[string]*Node{},
		owner: map[string]*Node{}, settings: map[cni.Attachment]settings{}, masked: map[netip.Addr]bool{},
		m: &Map{Version: Version, Time: h.Time, Host: h.Name, Kernel: h.Kernel,
			Skipped: slices.Clone(h.Skipped), byID: map[string]*Node{}}}
	for _, n := range h.Namespaces {
		b.m.Skipped = append(b.m.Skipped, n.Missing...)
	}
	b.m.Complete = len(b.m.Skipped) == 0
	b.namespaces()
	for _, s := range b.spaces {
		b.devices(s)
	}
	for _, s := range b.spaces {
		b.connect(s)
		b.routes(s)
	}
	b.records()
	b.translations()
	b.owners()
	b.check()
	return b.m
}

// add adds a node, with another ID if the ID is taken.
func (b *builder) add(n Node) *Node {
	for i := 2; b.m.byID[n.ID] != nil; i++ {
		n.ID = fmt.Sprintf("%s#%d", strings.SplitN(n.ID, "#", 2)[0], i)
	}
	b.m.byID[n.ID] = &n
	b.m.Nodes = append(b.m.Nodes, &n)
	return &n
}

func (b *builder) edge(kind Relation, from, to string) {
	b.m.Edges = append(b.m.Edges, Edge{Kind: kind, From: from, To: to})
}

func (b *builder) owns(attachment *Node, object string) {
	b.owner[object] = attachment
	b.edge(Owns, attachment.ID, object)
}

func (b *builder) own() *space { return b.spaces[0] }

func (b *builder) namespaces() {
	names := map[string]string{} // of containers, by path
	for _, rec := range b.places.Records {
		names[rec.Netns] = rec.Attachment.Container
	}
	for i := range b.places.Host.Namespaces {
		n := &b.places.Host.Namespaces[i]
		s := &space{Namespace: n, number: i, links: map[int]*host.Link{}, addrs: map[int][]host.Addr{},
			others: map[int]string{}}
		if i == 0 {
			s.node = b.add(Node{ID: hostID, Kind: Host, Name: b.places.Host.Name, Namespace: n.ID})
		} else {
			s.node = b.add(Node{ID: "ns:" + n.ID, Kind: Namespace, Name: nameOf(n, names), Namespace: n.ID,
				Paths: n.Paths, PIDs: n.PIDs})
		}
		for j := range n.Links {
			s.links[n.Links[j].Index] = &n.Links[j]
		}
		for _, a := range n.Addrs {
			s.addrs[a.Link] = append(s.addrs[a.Link], a)
		}
		for _, p := range n.Peers {
			s.others[p.NSID] = p.ID
		}
		for _, path := range n.Paths {
			b.byPath[path] = s
		}
		b.byID[n.ID] = s
		b.spaces = append(b.spaces, s)
	}
}

// nameOf returns the container in a namespace, or the name of the namespace.
func nameOf(n *host.Namespace, containers map[string]string) string {
	for _, path := range n.Paths {
		if name := containers[path]; name != "" {
			return name
		}
	}
	switch {
	case len(n.Paths) > 0:
		return filepath.Base(n.Paths[0])
	case len(n.PIDs) > 0:
		return fmt.Sprintf("process %d", n.PIDs[0])
	}
	return n.ID
}

// link returns the ID of the node of an interface.
func (s *space) link(index int) string { return InterfaceID(s.ID, index) }

// devices adds the interfaces of a namespace, sorted by index. It leaves out the loopback interface
// unless it has other addresses than the usual ones.
func (b *builder) devices(s *space) {
	for _, l := range slices.SortedFunc(slices.Values(s.Links), func(x,
		y host.Link) int {
		return cmp.Compare(x.Index, y.Index)
	}) {
		d := &Device{Kind: l.Kind, State: state(&l), MTU: l.MTU, MAC: l.MAC, VLAN: l.VLAN, VNI: l.VNI,
			Mode: l.Mode, Alias: l.Alias}
		for _, a := range s.addrs[l.Index] {
			ip := a.Prefix.Addr()
			if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
				continue
			}
			d.Addresses = append(d.Addresses, a.Prefix.String())
			b.holders[ip] = append(b.holders[ip], s.link(l.Index))
		}
		if l.Name == "lo" && d.Addresses == nil {
			continue
		}
		if m := s.links[l.Master]; l.Port != nil && m != nil && m.Bridge != nil &&
			m.Bridge.VLANFiltering {
			for _, v := range l.Port.VLANs {
				d.VLANs = append(d.VLANs, v.ID)
			}
		}
		b.add(Node{ID: s.link(l.Index), Kind: Interface, Name: l.Name, Namespace: s.ID, Device: d})
	}
}

func state(l *host.Link) string {
	switch {
	case !l.Up():
		return "down"
	case !l.Running():
		return "no carrier"
	}
	return "up"
}

// lower returns the namespace and index of the peer or the parent of a link.
func (b *builder) lower(s *space, l *host.Link) (*space, int) {
	other := s
	if l.LowerNSID != nil {
		other = b.byID[s.others[*l.LowerNSID]]
	}
	if other == nil || l.Lower == 0 || other.links[l.Lower] == nil {
		return nil, 0
	}
	return other, l.Lower
}

// connect adds the edges between interfaces.
func (b *builder) connect(s *space) {
	for i := range s.Links {
		l := &s.Links[i]
		id := s.link(l.Index)
		if b.m.byID[id] == nil {
			continue
		}
		if s.links[l.Master] != nil {
			b.edge(MemberOf, id, s.link(l.Master))
		}
		other, index := b.lower(s, l)
		switch {
		case other == nil:
		case l.Kind != "veth":
			b.edge(ParentOf, id, other.link(index))
		case b.before(s, l, other, index):
			b.edge(PeerOf, id, other.link(index))
		}
	}
}

// before reports whether a link comes before its peer, so that a pair has one edge.
func (b *builder) before(s *space, l *host.Link, other *space, index int) bool {
	if s == other {
		return l.Index < index
	}
	return s.number < other.number
}

// mainTable is RT_TABLE_MAIN; the kernel adds routes with protocol 2 (RTPROT_KERNEL) for addresses.
const mainTable, kernelProtocol = 254, 2

// routes adds the routes of a namespace to other hosts, or to other networks.
func (b *builder) routes(s *space) {
	for _, r := range s.Routes {
		if r.Type != "unicast" || r.Protocol == kernelProtocol || r.Dst.Addr().IsMulticast() ||
			r.Dst.Addr().IsLinkLocalUnicast() {
			continue
		}
		for _, hop := range r.Hops {
			if l := s.links[hop.Link]; l != nil {
				b.route(s, r, hop, l)
			}
		}
	}
}

func (b *builder) route(s *space, r host.Route, hop host.Hop, l *host.Link) {
	to := s.link(hop.Link)
	switch holders := b.holders[hop.Via]; {
	case !hop.Via.IsValid():
	case len(holders) > 0:
		to = holders[0]
	default:
		id := fmt.Sprintf("hop:%s:%s", s.ID, hop.Via)
		if b.m.byID[id] == nil {
			b.add(Node{ID: id, Kind: NextHop, Name: hop.Via.String()})
		}
		to = id
	}
	if device := b.m.byID[s.link(hop.Link)]; s == b.own() && device != nil && hop.Via.IsValid() {
		device.Device.Uplink = true
	}
	b.m.Edges = append(b.m.Edges, Edge{Kind: Routes, From: s.node.ID, To: to, Route: &Route{
		Dst: r.Dst, Via: hop.Via, Dev: l.Name, Table: r.Table, Metric: r.Metric}})
}

// records adds the attachments, sorted by their key.
func (b *builder) records() {
	list := slices.SortedFunc(slices.Values(b.places.Records), func(x, y network.Record) int {
		return cmp.Or(cmp.Compare(x.Attachment.Network, y.Attachment.Network),
			cmp.Compare(x.Attachment.Container, y.Attachment.Container),
			cmp.Compare(x.Attachment.IfName, y.Attachment.IfName))
	})
	for _, rec := range list {
		key := rec.Attachment
		n := b.add(Node{ID: AttachmentID(key),
			Kind: Attachment, Name: key.Container, Owner: "tenon", OwnerBy: "record",
			Attached: &Attached{Network: key.Network, Container: key.Container, IfName: key.IfName,
				Netns: rec.Netns, Runtime: rec.Runtime, State: rec.State, Source: rec.Source}})
		if rec.Source != "" {
			n.Owner = "upstream or other plugins"
		}
		if rec.Result != nil {
			for _, ip := range rec.Result.IPs {
				n.Attached.Addresses = append(n.Attached.Addresses, ip.Address.String())
			}
		}
		b.attachments[string(key.Owner())] = n
		b.attachments[key.Network+" "+key.Container] = n
		if s := b.byPath[rec.Netns]; s != nil {
			n.Namespace = s.ID
			b.attach(n, s, rec)
		}
	}
}

// attach connects an attachment with its interface and the host side of it.
func (b *builder) attach(n *Node, s *space, rec network.Record) {
	inside := s.LinkByName(rec.Attachment.IfName)
	if inside == nil {
		return
	}
	id := s.link(inside.Index)
	if b.m.byID[id] == nil {
		return // a loopback interface
	}
	b.owns(n, id)
	b.network(id, rec)
	other, index := b.lower(s, inside)
	if other == nil || other != b.own() {
		return
	}
	if inside.Kind == "veth" {
		b.owns(n, other.link(index))
	}
	b.network(other.link(index), rec)
	if master := other.links[index].Master; other.links[master] != nil {
		b.network(other.link(master), rec)
	}
}

// network adds the network of an attachment to an interface.
func (b *builder) network(id string, rec network.Record) {
	n := b.m.byID[id]
	if n == nil {
		return
	}
	if !slices.Contains(n.Device.Networks, rec.Attachment.Network) {
		n.Device.Networks = append(n.Device.Networks, rec.Attachment.Network)
	}
	if n.Owner == "" && n.Device.Kind != "" {
		n.Owner, n.OwnerBy = "tenon", "record"
		if rec.Source != "" {
			n.Owner = "upstream or other plugins"
		}
	}
}

// translations adds published ports and masquerading of the host.
func (b *builder) translations() {
	rules, others := nat.List(b.own().Ruleset)
	b.rules = rules
	for _, t := range rules {
		x := &Translated{Place: t.Place, Comment: t.Comment, Packets: t.Packets}
		n := Node{Kind: Masquerade, Namespace: b.own().ID, Translated: x}
		if t.Source.IsValid() {
			x.Source = b.prefix(t.Source)
			b.masked[t.Source] = b.masked[t.Source] || t.Kind == nat.Masquerade
		}
		n.Name = "masquerade " + cmp.Or(x.Source, "any source")
		n.ID = "masq:" + t.Place + ":" + x.Source
		if t.Kind == nat.Port {
			x.Protocol, x.First, x.Last, x.To = t.Protocol, int(t.First), int(t.Last), t.To.String()
			if t.Host.IsValid() {
				x.Host = t.Host.String()
			}
			n.Kind, n.Name = Port, portName(x)
			n.ID = "port:" + t.Place + ":" + n.Name
		}
		n.Owner, n.OwnerBy = ruleOwner(t)
		b.translation(b.add(n), t)
	}
	if others > 0 {
		b.m.Skipped = append(b.m.Skipped, host.Skipped{What: "translations without a port",
			Reason: fmt.Sprintf("%d rules of other programs, such as services of kube-proxy", others)})
	}
}

// translation connects a rule with its attachment and its interface.
func (b *builder) translation(n *Node, t nat.Translation) {
	kind, addr := Hides, t.Source
	if t.Kind == nat.Port {
		kind, addr = Forwards, t.To.Addr()
	}
	holders := b.holders[addr]
	if a := b.attachmentOf(t.Comment); a != nil {
		// Containers of several networks can have the address.
		own := func(id string) bool { return b.owner[id] == a }
		if slices.ContainsFunc(holders, own) {
			holders = slices.DeleteFunc(slices.Clone(holders), func(id string) bool { return !own(id) })
		}
		b.owns(a, n.ID)
	}
	for _, id := range holders {
		b.edge(kind, n.ID, id)
	}
}

// prefix returns the network of the host that begins with an address, or the address.
func (b *builder) prefix(a netip.Addr) string {
	for _, x := range b.own().Addrs {
		if m := x.Prefix.Masked(); m.Addr() == a && m.Bits() < a.BitLen() {
			return m.String()
		}
	}
	return a.String()
}

// portName returns the name of a published port: "tcp 8080 -> 10.1.0.2:80".
func portName(x *Translated) string {
	ports := fmt.Sprint(x.First)
	if x.Last != x.First {
		ports = fmt.Sprintf("%d-%d", x.First, x.Last)
	}
	if x.Host != "" {
		ports = x.Host + ":" + ports
		if strings.Contains(x.Host, ":") {
			ports = "[" + x.Host + "]" + strings.TrimPrefix(ports, x.Host)
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s -> %s", x.Protocol, ports, x.To))
}
