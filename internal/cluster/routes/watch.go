package routes

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// relevant describes the changes in the namespace that require another Apply.
type relevant struct {
	device string
	links  map[int]bool // with an own address, and tunnels
	blocks []netip.Prefix
	nodes  []netip.Addr // own and others
	single []netip.Addr // of containers of other nodes
}

// remember records what the last Apply depends on.
func (r *Router) remember(
	want Want, addrs []kernel.LinkAddr, devices map[family]kernel.Link,
) {
	last := &relevant{device: r.options.Device, links: map[int]bool{}, blocks: want.Own.Blocks,
		nodes: slices.Clone(r.options.Nodes)}
	for _, p := range want.Peers {
		last.nodes = append(last.nodes, p.Addrs...)
		for _, n := range p.Blocks {
			if n.IsSingleIP() {
				last.single = append(last.single, n.Addr())
			}
		}
	}
	for _, x := range addrs {
		if slices.Contains(r.options.Nodes, x.Addr.Addr()) {
			last.links[x.Link] = true
		}
	}
	for _, l := range devices {
		last.links[l.Index] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if devices == nil && r.last != nil { // until the new ones are known
		maps.Copy(last.links, r.last.links)
	}
	r.last = last
}

// Watch returns a channel with a value whenever the namespace has changed in a way that requires
// another [Router.Apply]: a device, a route or an entry has been deleted or replaced, a link with
// an own address has changed, an address that affects the paths has come or gone, or the kernel has
// dropped events. Events that come faster than they are received count as one, and Apply itself
// causes some. The channel is closed when ctx is done or the socket fails. Watch does not see
// everything; call Apply every minute or two as well.
func (r *Router) Watch(ctx context.Context) (<-chan struct{}, error) {
	host, closeAll, err := kernel.OpenHost(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	monitor, err := host.Monitor()
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	go r.watchUntil(ctx, monitor, changed)
	return changed, nil
}

func (r *Router) watchUntil(ctx context.Context, m *kernel.Monitor, changed chan<- struct{}) {
	defer close(changed)
	defer m.Close()
	defer context.AfterFunc(ctx, func() { m.Close() })()
	for {
		events, err := m.Next()
		if err != nil {
			if ctx.Err() == nil {
				r.options.Log.Error("watch routes", "err", err)
			}
			return
		}
		r.mu.Lock()
		last := r.last
		r.mu.Unlock()
		if last == nil || !slices.ContainsFunc(events, last.affectedBy) {
			continue
		}
		select {
		case changed <- struct{}{}:
		default: // one is pending
		}
	}
}

func (w *relevant) affectedBy(e kernel.Event) bool {
	switch {
	case e.Lost:
		return true
	case e.Link != nil:
		return w.links[e.Link.Index] || strings.HasPrefix(e.Link.Name, w.device) || ours(*e.Link)
	case e.Addr != nil:
		return w.links[e.Addr.Link] || w.affects(e.Addr.Addr)
	case e.Route != nil:
		// A foreign route with such a metric takes the place of one, or stops doing so.
		return e.Protocol == kernel.NodeProtocol && e.Deleted || (e.Replaced || e.Deleted) &&
			slices.Contains([]int{metric, metricEnd}, e.Route.Metric)
	case e.Neighbour != nil:
		return e.Deleted && w.links[e.Neighbour.Link]
	}
	return false
}

// affects reports whether an address of this host decides about a path or its source.
func (w *relevant) affects(a netip.Prefix) bool {
	if a.Addr().IsLinkLocalUnicast() { // every new interface has one
		return false
	}
	return within(a.Addr(), w.blocks) ||
		slices.ContainsFunc(w.nodes, a.Contains) || slices.ContainsFunc(w.single, a.Contains)
}
