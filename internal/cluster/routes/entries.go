package routes

import (
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// entries are the routes, neighbours and forwarding entries in the kernel.
type entries struct {
	routes     map[routeKey]kernel.NodeRoute
	neighbours map[neighbourKey]kernel.Neighbour
	forwarding map[forwardingKey]kernel.Neighbour
	proxies    map[kernel.Proxy]bool
}

// routeKey identifies a route in the table main.
type routeKey struct {
	dst    netip.Prefix
	metric int
}

type neighbourKey struct {
	link int
	addr netip.Addr
}

type forwardingKey struct {
	link int
	mac  [6]byte
}

func newEntries() entries {
	return entries{
		map[routeKey]kernel.NodeRoute{}, map[neighbourKey]kernel.Neighbour{},
		map[forwardingKey]kernel.Neighbour{}, map[kernel.Proxy]bool{},
	}
}

func keyOf(r kernel.NodeRoute) routeKey { return routeKey{r.Dst, r.Metric} }

func (e *entries) route(r kernel.NodeRoute) { e.routes[keyOf(r)] = r }

func (e *entries) neighbour(n kernel.Neighbour) {
	e.neighbours[neighbourKey{n.Link, n.Addr}] = n
}

func (e *entries) forward(n kernel.Neighbour) {
	e.forwarding[forwardingKey{n.Link, n.MAC}] = n
}

// entries returns the entries of the plan. devices has the indexes of the devices.
func (p *plan) entries(devices map[family]kernel.Link) entries {
	e := newEntries()
	for n, kind := range p.ends {
		e.route(kernel.NodeRoute{Dst: n, Type: kind, Metric: metricEnd})
	}
	for n, r := range p.blocks {
		if n.IsSingleIP() {
			e.proxy(n.Addr(), p.facts.nets)
		}
		src := p.source(r, familyOf(n.Addr()))
		if r.tunnel == 0 {
			e.route(kernel.NodeRoute{
				Dst: n, Type: kernel.RouteUnicast, Via: r.Via, Link: r.link, Metric: metric,
				MTU: below(r.MTU, p.facts.mtu(r.link)), Src: src,
			})
			continue
		}
		device, ok := devices[r.tunnel]
		if ok {
			e.throughTunnel(n, r, device, src)
		}
	}
	return e
}

// source returns the source address of packets that this host itself sends. The kernel could choose
// the gateway of a shared block, which other nodes have as well. The reply takes the tunnel only to
// an address in an own block.
func (p *plan) source(r *route, f family) netip.Addr {
	block, node := p.facts.src[f], netip.Addr{}
	if p.facts.own[f] != 0 {
		node = p.options.own(f)
	}
	if node.IsValid() && (r.tunnel == 0 || !block.IsValid()) {
		return node
	}
	return block
}

// proxy adds the proxy entries for an address of another node: on the links of which it seems to be
// a neighbour, because containers here have addresses of the same block.
func (e *entries) proxy(a netip.Addr, nets []kernel.LinkAddr) {
	for _, n := range nets {
		if n.Addr.Contains(a) {
			e.proxies[kernel.Proxy{Link: n.Link, Addr: a}] = true
		}
	}
}

// throughTunnel adds the route to a block, and the entries that it needs.
func (e *entries) throughTunnel(n netip.Prefix, r *route, device kernel.Link, src netip.Addr) {
	var mac [6]byte
	copy(mac[:], r.peer.MAC)
	out := kernel.NodeRoute{
		Dst: n, Type: kernel.RouteUnicast, Link: device.Index, Metric: metric,
		MTU: below(r.MTU, device.MTU), Src: src,
	}
	out.Via = linkLocal(r.peer.MAC)
	if n.Addr().Is4() && r.tunnel == ip4 {
		out.Via, out.OnLink = r.Via, true
	}
	e.route(out)
	e.neighbour(kernel.Neighbour{Link: device.Index, Addr: out.Via, MAC: mac})
	e.forward(kernel.Neighbour{Link: device.Index, Addr: r.Via, MAC: mac})
}

// below returns the MTU of a path if it is smaller than the one of its link, else 0.
func below(path, link int) int {
	if path < link {
		return path
	}
	return 0
}
