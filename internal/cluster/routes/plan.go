package routes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// facts describe the host.
type facts struct {
	// hop returns the link through which packets to an address leave, and whether the address is
	// directly on it; ok is false if there is no such link.
	hop func(netip.Addr) (link int, direct, ok bool, err error)
	mtu func(link int) int    // in bytes, 0 if unknown
	own map[family]int        // the links with the own addresses
	src map[family]netip.Addr // addresses of the host in own blocks

	// nets are the networks of other links than the tunnels.
	nets []kernel.LinkAddr
}

// route is a path to blocks of a family.
type route struct {
	Path
	peer   *Peer
	link   int    // of host-gw
	tunnel family // of VXLAN
}

// plan is the wanted state, before the devices have indexes.
type plan struct {
	options *Options
	facts   facts
	report  Report
	paths   []route
	mine    map[netip.Prefix]bool // own blocks
	blocks  map[netip.Prefix]*route
	ends    map[netip.Prefix]kernel.RouteType
	tunnels map[family]bool
	own     Peer
}

// newPlan decides how each block is reached.
func newPlan(o *Options, want Want, f facts) (*plan, error) {
	p := &plan{
		options: o, facts: f, own: want.Own, tunnels: map[family]bool{},
		mine: map[netip.Prefix]bool{}, blocks: map[netip.Prefix]*route{},
		ends: map[netip.Prefix]kernel.RouteType{},
	}
	p.endPools(want)
	for _, n := range want.Own.Blocks {
		p.mine[n.Masked()] = true
		// A single address is part of a larger network on a link here, to which the kernel would
		// prefer the route to the address.
		if !n.IsSingleIP() {
			p.ends[n.Masked()] = kernel.RouteBlackhole
		}
	}
	p.report.Underlay = p.underlay()
	p.report.MTU = p.report.Underlay
	if o.Mode == ModeVXLAN || o.Mode == ModeAuto {
		if len(want.Own.MAC) != 6 {
			return nil, fmt.Errorf("node %q has no MAC address for VXLAN", want.Own.Name)
		}
		f := ip6
		if o.own(ip4).IsValid() {
			f = ip4
		}
		p.limit(p.report.Underlay - f.overhead())
	}
	for _, peer := range p.valid(want.Peers) {
		if err := p.add(peer); err != nil {
			return nil, err
		}
	}
	for i := range p.paths {
		p.assign(&p.paths[i])
		p.report.Paths = append(p.report.Paths, p.paths[i].Path)
	}
	p.surround()
	return p, nil
}

// endPools adds the unreachable routes of pools. A pool around the address of a node gets none: it
// could cut the node off from a network behind its default route.
func (p *plan) endPools(want Want) {
	nodes := slices.Clone(p.options.Nodes)
	for _, peer := range want.Peers {
		nodes = append(nodes, peer.Addrs...)
	}
	for _, n := range want.Pools {
		if i := slices.IndexFunc(nodes, n.Contains); i >= 0 {
			p.problem("pool %s contains the address %s of a node; it gets no unreachable route", n,
				nodes[i])
			continue
		}
		p.ends[n.Masked()] = kernel.RouteUnreachable
	}
}

// underlay returns the smallest MTU of the links with own addresses.
func (p *plan) underlay() (mtu int) {
	for _, link := range p.facts.own {
		mtu = smaller(mtu, p.facts.mtu(link))
	}
	return mtu
}

// smaller returns the smaller of two MTUs, of which 0 is unknown.
func smaller(a, b int) int {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

func (p *plan) limit(mtu int) { p.report.MTU = smaller(p.report.MTU, mtu) }

func (p *plan) problem(format string, args ...any) {
	p.report.Problems = append(p.report.Problems, fmt.Errorf(format, args...))
}

// valid returns the peers by name. It leaves out peers that contradict this node or another peer.
func (p *plan) valid(peers []Peer) (list []*Peer) {
	sorted := slices.Clone(peers)
	slices.SortStableFunc(sorted, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	holders := map[string]string{string(p.own.MAC): "this node"}
	for _, a := range p.options.Nodes {
		holders[a.String()] = "this node"
	}
	for i := range sorted {
		peer := &sorted[i]
		if err := check(peer, holders); err != nil {
			p.problem("node %q: %w", peer.Name, err)
			continue
		}
		for _, key := range keys(peer) {
			holders[key] = fmt.Sprintf("node %q", peer.Name)
		}
		list = append(list, peer)
	}
	return list
}

// keys returns the properties that no two nodes may share.
func keys(peer *Peer) []string {
	list := []string{"name " + peer.Name}
	if len(peer.MAC) > 0 {
		list = append(list, string(peer.MAC))
	}
	for _, a := range peer.Addrs {
		list = append(list, a.String())
	}
	return list
}

func check(peer *Peer, holders map[string]string) error {
	if n := len(peer.MAC); n != 0 && n != 6 || n == 6 && peer.MAC[0]&1 != 0 ||
		n == 6 && bytes.Equal(peer.MAC, make([]byte, 6)) {
		return fmt.Errorf("MAC address %s is not the one of an interface", peer.MAC)
	}
	for _, a := range peer.Addrs {
		if err := usable(a); err != nil {
			return err
		}
		if holder := holders[a.String()]; holder != "" {
			return fmt.Errorf("address %s is in use by %s", a, holder)
		}
	}
	if holder := holders["name "+peer.Name]; holder != "" {
		return errors.New("the name occurs twice")
	}
	if holder := holders[string(peer.MAC)]; holder != "" && len(peer.MAC) > 0 {
		return fmt.Errorf("MAC address %s is in use by %s", peer.MAC, holder)
	}
	return nil
}

// add decides about the paths to a peer.
func (p *plan) add(peer *Peer) error {
	for _, f := range []family{ip4, ip6} {
		if !slices.ContainsFunc(peer.Blocks, func(n netip.Prefix) bool {
			return familyOf(n.Addr()) == f
		}) {
			continue
		}
		r, err := p.path(peer, f)
		if problem := (*pathError)(nil); errors.As(err, &problem) {
			p.problem("node %q, IPv%d: %w", peer.Name, f, err)
			continue
		}
		if err != nil {
			return err
		}
		p.limit(r.MTU)
		if r.tunnel != 0 {
			p.tunnels[r.tunnel] = true
		}
		p.paths = append(p.paths, r)
	}
	return p.receive(peer)
}

// receive makes a device for packets from a peer, even if this node reaches it directly or it has
// no blocks: the peer may not see a shared link. The MTU allows for it.
func (p *plan) receive(peer *Peer) error {
	if p.options.Mode == ModeHostGW {
		return nil
	}
	f, err := p.common(peer)
	if err != nil {
		return nil // the peer cannot use VXLAN either
	}
	p.tunnels[f] = true
	mtu, err := p.mtuTo(f.of(peer.Addrs), peer)
	p.limit(mtu - f.overhead())
	return err
}

// pathError is a reason why no path to a peer exists.
type pathError struct{ reason string }

func (e *pathError) Error() string { return e.reason }

// path returns the path to the blocks of a family. The error is a [*pathError] if there is none.
func (p *plan) path(peer *Peer, f family) (route, error) {
	if p.options.Mode != ModeVXLAN {
		r, err := p.direct(peer, f)
		if r != nil || err != nil {
			return *cmp.Or(r, new(route)), err
		}
		if p.options.Mode == ModeHostGW {
			return route{}, &pathError{fmt.Sprintf("no address of %v is on a shared link; "+
				"use mode auto or vxlan", peer.Addrs)}
		}
	}
	tunnel, err := p.common(peer)
	if err != nil {
		return route{}, err
	}
	if len(peer.MAC) == 0 {
		return route{}, &pathError{"the MAC address for VXLAN is missing"}
	}
	via := tunnel.of(peer.Addrs)
	mtu, err := p.mtuTo(via, peer)
	if mtu > 0 {
		mtu -= tunnel.overhead()
	}
	return route{
		Path: Path{Peer: peer.Name, IPv6: f == ip6, Mode: ModeVXLAN, Via: via, MTU: mtu},
		peer: peer, tunnel: tunnel,
	}, err
}

// direct returns the path by host-gw, nil if there is none. IPv4 packets can take an IPv6 next hop.
func (p *plan) direct(peer *Peer, f family) (*route, error) {
	for _, via := range []netip.Addr{f.of(peer.Addrs), ip6.of(peer.Addrs)} {
		if !via.IsValid() {
			continue
		}
		link, direct, ok, err := p.facts.hop(via)
		if err != nil {
			return nil, err
		}
		if ok && direct {
			return &route{
				Path: Path{Peer: peer.Name, IPv6: f == ip6, Mode: ModeHostGW, Via: via,
					MTU: smaller(p.facts.mtu(link), peer.MTU)},
				peer: peer, link: link,
			}, nil
		}
	}
	return nil, nil
}

// common returns the family of a tunnel, which both nodes must choose alike.
func (p *plan) common(peer *Peer) (family, error) {
	for _, f := range []family{ip4, ip6} {
		if p.options.own(f).IsValid() && f.of(peer.Addrs).IsValid() {
			return f, nil
		}
	}
	return 0, &pathError{fmt.Sprintf("addresses %v have no family in common with the own %v",
		peer.Addrs, p.options.Nodes)}
}

// mtuTo returns the size of the largest packet that arrives at a node.
func (p *plan) mtuTo(a netip.Addr, peer *Peer) (int, error) {
	link, _, ok, err := p.facts.hop(a)
	if !ok {
		link = p.facts.own[familyOf(a)]
	}
	return smaller(p.facts.mtu(link), peer.MTU), err
}

// assign records the path of each block. The first node by name keeps a block that several claim.
func (p *plan) assign(r *route) {
	for _, n := range r.peer.Blocks {
		if !n.IsValid() || (familyOf(n.Addr()) == ip6) != r.IPv6 {
			continue
		}
		n = n.Masked()
		switch other := p.blocks[n]; {
		case p.mine[n]:
			p.problem("node %q: block %s is a block of this node", r.Peer, n)
		case other != nil && other.peer != r.peer:
			p.problem("node %q: block %s is a block of node %q", r.Peer, n, other.Peer)
		default:
			p.blocks[n] = r
		}
	}
}
