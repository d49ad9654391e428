package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// Branch is an object in a tree for people: the host, its uplinks and bridges, containers on them.
// Names and facts contain only printable characters, see [Clean].
type Branch struct {
	ID       string    // of the node; of folded branches, of the first one
	Kind     Shape     //
	Name     string    //
	Facts    []string  // addresses, kind of interface
	Ports    []string  // published: ":8080 -> 80"
	Note     string    // network, owner, state
	Problems []Problem //
	Related  []string  // IDs of other nodes that the branch stands for
	Children []*Branch //
	Folded   []*Branch // equal ones; the branch is a fold if this is not nil
	Hint     string    // of a fold: the command that unfolds it

	class   string // branches of the same class are equal but for their names and addresses
	network string // of an attachment
}

// Shape is the kind of a branch.
type Shape string

// The shapes.
const (
	OfHost      Shape = "host"
	OfUplink    Shape = "uplink"
	OfBridge    Shape = "bridge"
	OfInterface Shape = "interface"
	OfContainer Shape = "container" // an attachment
	OfNamespace Shape = "namespace" // without an attachment
	OfPort      Shape = "port"      // published, to an address that no container has
	OfFold      Shape = "fold"
)

// Tree is a map as a tree.
type Tree struct {
	Root    *Branch   // the host; its children are the interfaces that are no uplinks
	Uplinks []*Branch // interfaces that lead to other hosts
	Summary string    // "214 attachments in 3 networks"
}

// planter builds a tree.
type planter struct {
	m     *Map
	out   map[string][]Edge // by From
	in    map[string][]Edge // by To
	shown map[string]bool   // nodes that a branch stands for
	below map[string][]*Branch
}

// Tree arranges a map as a tree. all shows each attachment; otherwise equal ones fold.
func (m *Map) Tree(all bool) *Tree {
	p := &planter{m: m, out: map[string][]Edge{}, in: map[string][]Edge{}, shown: map[string]bool{},
		below: map[string][]*Branch{}}
	for _, e := range m.Edges {
		p.out[e.From], p.in[e.To] = append(p.out[e.From], e), append(p.in[e.To], e)
	}
	t := &Tree{}
	t.Summary = p.summary()
	p.containers()
	p.namespaces()
	p.devices(t)
	p.ports()
	host := m.Nodes[0]
	t.Root = &Branch{ID: host.ID, Kind: OfHost, Name: Clean(host.Name), Problems: host.Problems,
		Note: t.Summary, Children: p.below[hostID]}
	if m.Kernel != "" {
		t.Root.Facts = []string{"Linux " + Clean(m.Kernel)}
	}
	t.Root.arrange(all)
	for _, u := range t.Uplinks {
		u.arrange(all)
	}
	return t
}

func (p *planter) summary() string {
	networks := map[string]bool{}
	n := 0
	for _, x := range p.m.Nodes {
		if x.Kind == Attachment {
			networks[x.Attached.Network] = true
			n++
		}
	}
	if n == 0 {
		return "no attachments"
	}
	return plural.Count(n, "attachment") + " in " + plural.Count(len(networks), "network")
}

// place puts a branch below an interface of the host, or below the host.
func (p *planter) place(at string, b *Branch) { p.below[at] = append(p.below[at], b) }

// containers adds a branch for each attachment.
func (p *planter) containers() {
	for _, n := range p.m.Nodes {
		if n.Kind != Attachment {
			continue
		}
		b := &Branch{ID: n.ID, Kind: OfContainer, Name: Short(n.Attached.Container),
			network: n.Attached.Network}
		at := ""
		var facts []string
		problems := slices.Clone(n.Problems)
		for _, e := range p.out[n.ID] {
			x := p.m.Node(e.To)
			b.Related = append(b.Related, x.ID)
			p.shown[x.ID] = true
			switch {
			case x.Kind == Port:
				b.Ports = append(b.Ports, shortPort(x))
			case x.Kind == Interface && x.Namespace == p.m.Nodes[0].Namespace:
				at = cmp.Or(p.above(x.ID), hostID)
				problems = append(problems, x.Problems...)
			case x.Kind == Interface:
				facts = append(facts, plain(x.Device.Addresses)...)
				at = cmp.Or(at, p.above(x.ID))
				b.class = fmt.Sprint(x.Device.Kind, x.Device.State, x.Device.MTU, x.Device.VLAN, x.Device.Mode)
				b.Ports = append(b.Ports, p.foreignPorts(x.ID)...)
				b.Note = interfaceNote(n.Attached.IfName, x.Device)
				problems = append(problems, x.Problems...)
			}
		}
		if facts == nil {
			facts = plain(n.Attached.Addresses)
		}
		b.Problems = problems
		b.Facts, b.Ports = cleaned(facts), cleaned(slices.Compact(slices.Sorted(slices.Values(b.Ports))))
		b.class += fmt.Sprint(n.Attached.Network, n.Attached.IfName, families(facts), len(b.Ports),
			n.Owner)
		if n.Namespace != "" {
			p.shown["ns:"+n.Namespace] = true
		}
		if at = cmp.Or(at, p.ofNetwork(n.Attached.Network), hostID); at == hostID {
			b.Note = strings.TrimSuffix("network "+Clean(n.Attached.Network)+", "+b.Note, ", ")
		}
		p.place(at, b)
	}
}

// interfaceNote names the interface unless it is an ordinary one.
func interfaceNote(name string, d *Device) string {
	switch {
	case d.Mode != "":
		return Clean(name + ", " + d.Kind + " in mode " + d.Mode)
	case d.Kind != "veth":
		return Clean(strings.TrimSpace(name + " " + d.Kind))
	case name != "eth0":
		return Clean(name)
	}
	return ""
}

// above returns the interface of the host to which another interface leads: the bridge of its peer,
// the peer, or the parent.
func (p *planter) above(id string) string {
	for _, e := range p.out[id] {
		to := p.m.Node(e.To)
		if (e.Kind == MemberOf || e.Kind == ParentOf) && to.Namespace == p.m.Nodes[0].Namespace {
			return e.To
		}
	}
	for _, e := range p.in[id] {
		if from := p.m.Node(e.From); e.Kind == PeerOf && from.Namespace == p.m.Nodes[0].Namespace &&
			p.m.Node(id).Namespace != from.Namespace {
			if from.Device.Uplink {
				return from.ID
			}
			p.shown[from.ID] = true
			return cmp.Or(p.above(from.ID), hostID)
		}
	}
	return ""
}

// ofNetwork returns an interface of the host with attachments of a network.
func (p *planter) ofNetwork(network string) string {
	for _, n := range p.m.Nodes {
		if n.Kind == Interface && n.Namespace == p.m.Nodes[0].Namespace && n.Device.Kind != "veth" &&
			slices.Contains(n.Device.Networks, network) {
			return n.ID
		}
	}
	return ""
}

// foreignPorts returns the ports that rules without an attachment forward to an interface.
func (p *planter) foreignPorts(id string) (list []string) {
	for _, e := range p.in[id] {
		if e.Kind == Forwards && !p.shown[e.From] {
			p.shown[e.From] = true
			list = append(list, shortPort(p.m.Node(e.From)))
		}
	}
	return list
}

// shortPort returns a port without the address of the container: ":8080 -> 80".
func shortPort(n *Node) string {
	x := n.Translated
	name := portName(x)
	name, to, _ := strings.Cut(name, " -> ")
	protocol, ports, _ := strings.Cut(name, " ")
	if x.Host == "" {
		ports = ":" + ports
	}
	if protocol != "tcp" {
		ports += "/" + protocol
	}
	if a, err := netip.ParseAddrPort(to); err == nil {
		to = fmt.Sprint(a.Port())
	}
	text := ports + " -> " + to
	if n.Owner != "tenon" {
		text += " (" + n.Owner + ")"
	}
	if x.Packets != nil {
		text += fmt.Sprintf(" %s", plural.Count(int(*x.Packets), "packet"))
	}
	return text
}

// namespaces adds a branch for each other namespace with an interface that leads to the host, or
// with addresses.
func (p *planter) namespaces() {
	inside := map[string][]*Node{}
	for _, n := range p.m.Nodes {
		if n.Kind == Interface {
			inside[n.Namespace] = append(inside[n.Namespace], n)
		}
	}
	for _, n := range p.m.Nodes {
		if n.Kind != Namespace || p.shown[n.ID] {
			continue
		}
		b := &Branch{ID: n.ID, Kind: OfNamespace, Name: Short(n.Name), Problems: n.Problems}
		at := ""
		for _, x := range inside[n.Namespace] {
			at = cmp.Or(at, p.above(x.ID))
			b.Facts = append(b.Facts, cleaned(plain(x.Device.Addresses))...)
			b.Ports = append(b.Ports, cleaned(p.foreignPorts(x.ID))...)
			b.Related = append(b.Related, x.ID)
			b.Problems = append(b.Problems, x.Problems...)
			b.class += fmt.Sprint(x.Device.Kind, x.Device.State, x.Device.MTU)
		}
		if at == "" && b.Facts == nil {
			continue
		}
		b.Note = ownerNote(n)
		if at == "" {
			b.Note += ", no link to the host"
		}
		b.class += fmt.Sprint(n.Owner, families(b.Facts), len(b.Ports))
		p.place(cmp.Or(at, hostID), b)
	}
}

// ownerNote names the owner of an object, unless it is Tenon.
func ownerNote(n *Node) string {
	switch n.Owner {
	case "tenon":
		return ""
	case "":
		return "no attachment"
	case unknown:
		return "not Tenon's, owner unknown"
	}
	return "not Tenon's (" + n.Owner + ")"
}

// devices adds a branch for each interface of the host that is not part of another branch.
func (p *planter) devices(t *Tree) {
	var branches []*Branch
	for _, n := range p.m.Nodes {
		if n.Kind != Interface || n.Namespace != p.m.Nodes[0].Namespace || p.shown[n.ID] {
			continue
		}
		b := p.device(n)
		branches = append(branches, b)
		switch at := p.above(n.ID); {
		case at != "":
			p.place(at, b)
		case b.Kind == OfUplink:
			t.Uplinks = append(t.Uplinks, b)
		default:
			p.place(hostID, b)
		}
	}
	for _, b := range branches { // after all are placed
		b.Children = p.below[b.ID]
		n := 0
		for _, c := range b.Children {
			if c.Kind == OfContainer {
				n++
			}
		}
		if b.Kind == OfBridge && b.Children == nil && !strings.HasSuffix(b.Note, "no carrier") {
			b.Note += ", no ports"
		}
		if n > 0 {
			b.Note += ", " + plural.Count(n, "attachment")
		}
		b.Note = strings.TrimPrefix(b.Note, ", ")
	}
}

// device returns the branch of an interface of the host.
func (p *planter) device(n *Node) *Branch {
	d := n.Device
	b := &Branch{ID: n.ID, Kind: OfInterface, Name: Clean(n.Name), Facts: cleaned(d.Addresses),
		Problems: n.Problems, Ports: cleaned(p.foreignPorts(n.ID))}
	switch {
	case d.Uplink:
		b.Kind = OfUplink
	case d.Kind == "bridge":
		b.Kind = OfBridge
	}
	var notes []string
	add := func(format string, args ...any) {
		notes = append(notes, Clean(fmt.Sprintf(format,
			args...)))
	}
	for _, e := range p.out[hostID] {
		if e.Kind == Routes && e.Route.Dev == n.Name {
			switch dst := e.Route.Dst; {
			case dst.Bits() == 0 && e.Route.Via.IsValid():
				add("default via %s", e.Route.Via)
			case e.Route.Via.IsValid():
				add("%s via %s", dst, e.Route.Via)
			default:
				add("route %s", dst)
			}
		}
	}
	notes = limited(notes)
	switch len(d.Networks) {
	case 0:
	case 1:
		add("network %s", d.Networks[0])
	default:
		add("networks %s", strings.Join(d.Networks, ", "))
	}
	switch {
	case d.VLAN != 0:
		add("VLAN %d", d.VLAN)
	case d.VNI != 0:
		add("VXLAN %d", d.VNI)
	case d.Kind != "" && d.Kind != "bridge" && d.Kind != "veth":
		add("%s", d.Kind)
	}
	if d.VLANs != nil {
		add("VLANs %s", strings.Trim(fmt.Sprint(d.VLANs), "[]"))
	}
	if d.Networks == nil && n.Owner != "" && n.Owner != "tenon" && !(d.Uplink && n.Owner == unknown) {
		add("%s", ownerNote(n))
	}
	if d.State != "up" && !slices.ContainsFunc(n.Problems,
		func(x Problem) bool { return x.Text == d.State }) {
		add("%s", d.State)
	}
	b.Note = strings.Join(notes, ", ")
	b.class = fmt.Sprint(d.Kind, d.State, d.MTU, d.VLAN, n.Owner, len(d.Addresses), d.VLANs)
	return b
}

// maxRoutes is the number of routes that an interface shows.
const maxRoutes = 3

func limited(notes []string) []string {
	if len(notes) <= maxRoutes {
		return notes
	}
	rest := fmt.Sprintf("%d more routes", len(notes)-maxRoutes)
	return append(slices.Clone(notes[:maxRoutes]), rest)
}

// ports adds a branch for each published port that no other branch shows.
func (p *planter) ports() {
	for _, n := range p.m.Nodes {
		if n.Kind != Port || p.shown[n.ID] {
			continue
		}
		b := &Branch{ID: n.ID, Kind: OfPort, Name: "port " + Clean(n.Name), Problems: n.Problems,
			class: "port " + n.Owner}
		if n.Owner != "tenon" {
			b.Note = ownerNote(n)
		}
		p.place(hostID, b)
	}
}

// plain returns addresses without their prefix length.
func plain(prefixes []string) (list []string) {
	for _, s := range prefixes {
		a, _, _ := strings.Cut(s, "/")
		list = append(list, a)
	}
	return list
}

// families returns the number of addresses of each family.
func families(addrs []string) (n [2]int) {
	for _, a := range addrs {
		if strings.Contains(a, ":") {
			n[1]++
		} else {
			n[0]++
		}
	}
	return n
}
