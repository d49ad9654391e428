package agent

import (
	"context"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// watch follows nodes, pools and shared addresses until ctx ends.
func (a *Agent) watch(ctx context.Context) error {
	var sampled time.Time
	resync := resyncTime + a.o.Jitter(resyncTime/2)
	a.session.store().Watch(ctx, resync, func(v registry.View, err error) {
		a.problems.report("watch", err)
		if err != nil {
			return
		}
		if a.see(v) {
			poke(a.wake)
		}
		poke(a.routing.changed)
		sampled = a.sample(v, sampled)
	})
	return nil
}

// see records a view. It reports whether it concerns this node or its pools.
func (a *Agent) see(v registry.View) (concerned bool) {
	before, listed := a.view.latest()
	concerned = poolRevisions(v.Pools) != poolRevisions(before.Pools)
	if n, ok := older(v.Nodes, before.Nodes); ok && listed {
		a.trust.doubt("the document of node %s has an older revision than before", n)
		concerned = true
	}
	own, _ := a.session.joined()
	for _, n := range v.Nodes {
		if n.Name == a.o.Node.Name && n.Revision > own.Node.Revision {
			concerned = true
		}
	}
	a.view.set(v)
	a.reclaimer.observe(v.Nodes)
	return concerned
}

// older returns the name of a node with an older document than before.
func older(now, before []registry.Node) (name string, ok bool) {
	revisions := map[string]int64{}
	for _, n := range before {
		revisions[n.Name] = n.Revision
	}
	for _, n := range now {
		if n.Revision < revisions[n.Name] {
			return n.Name, true
		}
	}
	return "", false
}

// poolRevisions returns the sum of the revisions of pools, which grows with each change, and their
// number.
func poolRevisions(pools []registry.Pool) (r struct {
	sum    int64
	number int
}) {
	for _, p := range pools {
		r.sum += p.Revision
	}
	r.number = len(pools)
	return r
}

// alive reports whether a node should have a leased key.
func alive(n registry.Node) bool {
	return n.State == cluster.NodeActive || n.State == cluster.NodeDraining
}
