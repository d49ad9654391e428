package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/cluster/routes"
)

// Router programs the routes to the blocks of other nodes. A *[routes.Router] is one.
type Router interface {
	// Apply makes the kernel agree with want.
	Apply(ctx context.Context, want routes.Want) (routes.Report, error)
	// Watch returns a channel with a value when Apply must be called again, because the kernel has
	// changed. It is closed when ctx ends, or when the kernel can no longer be watched.
	Watch(ctx context.Context) (<-chan struct{}, error)
}

// routing makes the kernel have the routes to the blocks of other nodes.
type routing struct {
	o        *Options
	identity *identity
	session  *session
	view     *view
	problems *problems
	turn     turn
	changed  chan struct{} // the view has changed
}

// run programs the routes after changes of the view or of the kernel, and at least every
// resyncTime. Routes stay when ctx ends.
func (r *routing) run(ctx context.Context) error {
	if r.o.Router == nil {
		return nil
	}
	var kernel <-chan struct{}
	for ctx.Err() == nil {
		if kernel == nil {
			var err error
			kernel, err = r.o.Router.Watch(ctx)
			r.problems.report("watch routes", err)
		}
		t := time.NewTimer(resyncTime + r.o.Jitter(resyncTime/10))
		select {
		case <-r.changed:
		case _, ok := <-kernel:
			if !ok {
				kernel = nil // the next resync watches again
			}
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if !sleep(ctx, batchTime) {
			break
		}
		select {
		case <-r.changed: // the view below includes it
		default:
		}
		if err := r.program(ctx); ctx.Err() == nil {
			r.problems.report("routes", err)
		}
	}
	return nil
}

// program makes the kernel agree with the last view, and publishes the MTU. Before the node has
// joined, it does nothing: a route needs the addresses of both nodes.
func (r *routing) program(ctx context.Context) error {
	v, seen := r.view.latest()
	self := func(n registry.Node) bool { return n.Name == r.o.Node.Name }
	if !seen || !slices.ContainsFunc(v.Nodes, self) { // routes stay as they are
		return nil
	}
	report, err := r.o.Router.Apply(ctx, wanted(r.o.Node.Name, v))
	err = errors.Join(append(report.Problems, err)...)
	if report.MTU == 0 {
		return err
	}
	end, turnErr := r.turn.take(ctx)
	if turnErr != nil {
		return err
	}
	defer end()
	return errors.Join(err, r.publishMTU(ctx, report))
}

// publishMTU writes the MTU for container interfaces into node.json, and the MTU of the underlay
// into the node's document. The caller has the turn.
func (r *routing) publishMTU(ctx context.Context, report routes.Report) error {
	if err := r.identity.remember(func(n *local.Node) { n.MTU = report.MTU }); err != nil {
		return err
	}
	r.session.setUnderlay(report.Underlay)
	s, err := r.session.joined()
	if err != nil || s.Node.MTU == report.Underlay {
		return nil // without a session, the next join publishes it
	}
	return r.session.update(ctx, func(n *cluster.Node) { n.MTU = report.Underlay })
}

// wanted returns the routes of a node in a view. A node that is suspect or fenced keeps its routes
// until its blocks have been reclaimed.
func wanted(self string, v registry.View) (w routes.Want) {
	shared := map[string][]netip.Prefix{}
	units := map[string]int{}
	for _, p := range v.Pools {
		w.Pools = append(w.Pools, p.Range)
		units[p.Name] = p.PrefixBits
	}
	for _, h := range v.Holders {
		bits := h.Addr.BitLen()
		if units[h.Pool] > 0 {
			bits = units[h.Pool]
		}
		if unit, err := h.Addr.Prefix(bits); err == nil {
			shared[h.Node] = append(shared[h.Node], unit)
		}
	}
	w.Own.Name = self
	for _, n := range v.Nodes {
		p := routes.Peer{Name: n.Name, Addrs: n.Addresses, MTU: n.MTU}
		if mac, err := net.ParseMAC(n.MAC); err == nil {
			p.MAC = mac
		}
		for _, b := range n.Blocks {
			p.Blocks = append(p.Blocks, b.Block)
		}
		p.Blocks = append(p.Blocks, shared[n.Name]...)
		if n.Name == self {
			w.Own = p
		} else {
			w.Peers = append(w.Peers, p)
		}
	}
	return w
}
