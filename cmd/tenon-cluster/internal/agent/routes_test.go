package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/routes"
)

// router records what the agent wants.
type router struct {
	mu     sync.Mutex
	wants  []routes.Want
	kernel chan struct{}
}

func (r *router) Apply(_ context.Context, w routes.Want) (routes.Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wants = append(r.wants, w)
	return routes.Report{MTU: 1450, Underlay: 1500}, nil
}

func (r *router) Watch(context.Context) (<-chan struct{}, error) { return r.kernel, nil }

// calls returns the number of calls of Apply and the last want.
func (r *router) calls() (int, routes.Want) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wants), r.wants[len(r.wants)-1]
}

func TestRoutesFollowTheOtherNodes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		r := &router{kernel: make(chan struct{}, 1)}
		n := w.node("n1")
		n.change = func(o *agent.Options) { o.Router = r }
		n.start()
		others := make([]*node, 5)
		for i := range others {
			others[i] = w.node(fmt.Sprint("o", i)).start()
		}
		pass(10 * time.Second)
		before, _ := r.calls()
		for i, o := range others {
			o.mustAdd("pods", fmt.Sprint("c", i))
		}
		pass(10 * time.Second)
		count, want := r.calls()
		if count != before+1 {
			w.Errorf("five claims at once caused %d calls, expected 1", count-before)
		}
		if len(want.Peers) != len(others) || want.Own.Name != "n1" {
			w.Errorf("want %+v", want)
		}
		for _, p := range want.Peers {
			if len(p.Blocks) != 1 {
				w.Errorf("peer %s has blocks %v, expected one", p.Name, p.Blocks)
			}
		}
		if doc := n.stored(); doc.MTU != 1500 || doc.MAC == "" {
			w.Errorf("the node publishes MTU %d and MAC %q", doc.MTU, doc.MAC)
		}
		if own, err := n.files.Node(); err != nil || own.MTU != 1450 {
			w.Errorf("node.json has MTU %d, %v; expected 1450", own.MTU, err)
		}
		r.kernel <- struct{}{}
		pass(time.Second)
		if after, _ := r.calls(); after != count+1 {
			w.Errorf("a change of the kernel caused %d calls, expected 1", after-count)
		}
		pass(110 * time.Second)
		if after, _ := r.calls(); after < count+2 {
			w.Errorf("no call within the resync time")
		}
	})
}

// TestRoutesWaitForTheNode: without the node's own addresses, the router could only report that
// these are missing.
func TestRoutesWaitForTheNode(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		w.node("n2").start()
		r := &router{kernel: make(chan struct{}, 1)}
		n := w.node("n1")
		n.change = func(o *agent.Options) { o.Router = r }
		client, key := w.kv.Client("n1"), cluster.NewKeys("c").Node("n1")
		client.Fault(func(c memkv.Call) memkv.Fault {
			if c.Write && slices.Contains(c.Keys, key) {
				return memkv.Fault{Error: errors.New("unavailable")}
			}
			return memkv.Fault{}
		})
		n.startWith(client)
		pass(5 * time.Minute)
		client.Fault(nil)
		pass(time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.wants) == 0 {
			w.Fatal("no routes after the node has joined")
		}
		if own := r.wants[0].Own; len(own.MAC) == 0 || len(own.Addrs) != 1 {
			w.Errorf("routes without the addresses of the node: %+v", own)
		}
	})
}
