package agent

import (
	"slices"
	"sync"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// view is what the node knows of the pools and of the other nodes.
type view struct {
	o       *Options
	session *session

	mu     sync.Mutex    // guards the following fields
	last   registry.View // of the last list or watch
	listed bool          // the nodes have been listed
}

// latest returns the last view. listed is false before the nodes have been listed.
func (v *view) latest() (last registry.View, listed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last, v.listed
}

// set records a view.
func (v *view) set(now registry.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last, v.listed = now, true
}

// setPools records the pools of a linearizable read.
func (v *view) setPools(pools []registry.Pool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last.Pools = pools
}

// pool returns the last known document of a pool.
func (v *view) pool(name string) (registry.Pool, bool) {
	last, _ := v.latest()
	for _, p := range last.Pools {
		if p.Name == name {
			return p, true
		}
	}
	return registry.Pool{}, false
}

// uses reports whether the labels of this node match the pool's selector.
func (v *view) uses(p registry.Pool) bool {
	for label, value := range p.Nodes {
		if got, ok := v.o.Node.Labels[label]; !ok || got != value {
			return false
		}
	}
	return true
}

// poolNames returns the pools that this node may use and the pools in its files, sorted.
func (v *view) poolNames() ([]string, error) {
	names, err := v.o.Local.Pools()
	if err != nil {
		return nil, err
	}
	last, _ := v.latest()
	for _, p := range last.Pools {
		if v.uses(p) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// peers returns the number of other nodes.
func (v *view) peers() (count int) {
	last, _ := v.latest()
	for _, n := range last.Nodes {
		if n.Name != v.o.Node.Name {
			count++
		}
	}
	return count
}

// scarce reports whether a pool has so few free blocks that a node should neither claim ahead nor
// keep empty ones: fewer than two for each node.
func (v *view) scarce(name string) bool { return !v.plenty(name, 2) }

// plenty reports whether a pool has a number of blocks for each node that no node owns.
func (v *view) plenty(name string, each uint64) bool {
	free, known := v.unowned(name)
	last, _ := v.latest()
	return known && free >= each*uint64(len(last.Nodes))
}

// unowned returns the number of blocks of a pool that no node owns; some may cool down. It takes the
// blocks of this node from the session, because the view has a claim only later. known is false
// until the agent has seen the pool and all nodes.
func (v *view) unowned(name string) (free uint64, known bool) {
	last, listed := v.latest()
	for _, p := range last.Pools {
		if p.Name == name {
			free, known = p.Blocks(), listed
		}
	}
	owned := func(blocks []cluster.BlockRef) {
		for _, b := range blocks {
			if b.Pool == name && free > 0 {
				free--
			}
		}
	}
	own, err := v.session.joined()
	if err == nil {
		owned(own.Node.Blocks)
	}
	for _, n := range last.Nodes {
		if err != nil || n.Name != v.o.Node.Name {
			owned(n.Blocks)
		}
	}
	return free, known
}
