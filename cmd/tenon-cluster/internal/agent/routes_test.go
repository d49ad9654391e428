package agent_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
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

func TestWantOfAView(t *testing.T) {
	node := func(name, addr string, blocks ...string) registry.Node {
		n := registry.Node{Node: cluster.Node{Name: name, MTU: 1500, MAC: "02:00:00:00:00:01",
			Addresses: []netip.Addr{netip.MustParseAddr(addr)}}}
		for _, b := range blocks {
			n.Blocks = append(n.Blocks, cluster.BlockRef{Pool: "pods", Block: prefix(b)})
		}
		return n
	}
	fenced := node("n3", "192.0.2.3", "10.64.3.0/26")
	fenced.State = cluster.NodeFenced
	w := agent.Want("n1", registry.View{
		Pools: []registry.Pool{
			{Pool: cluster.Pool{Name: "pods", Range: prefix("10.64.0.0/16")}},
			{Pool: cluster.Pool{Name: "prefixes", Range: prefix("fd00::/48"), PrefixBits: 64}},
		},
		Nodes: []registry.Node{node("n1", "192.0.2.1", "10.64.1.0/26"), fenced,
			node("n2", "192.0.2.2", "10.64.2.0/26", "10.64.1.9/32")},
		Holders: []cluster.Holder{
			{Pool: "pods", Node: "n2", Addr: netip.MustParseAddr("10.64.9.9")},
			{Pool: "prefixes", Node: "n1", Addr: netip.MustParseAddr("fd00:0:0:7::")},
		},
	})
	var got []string
	for _, p := range append([]routes.Peer{w.Own}, w.Peers...) {
		got = append(got, fmt.Sprint(p.Name, p.Addrs, p.MAC, p.MTU, p.Blocks))
	}
	got = append(got, fmt.Sprint(w.Pools))
	const want = `n1 [192.0.2.1] 02:00:00:00:00:01 1500 [10.64.1.0/26 fd00:0:0:7::/64]
n3 [192.0.2.3] 02:00:00:00:00:01 1500 [10.64.3.0/26]
n2 [192.0.2.2] 02:00:00:00:00:01 1500 [10.64.2.0/26 10.64.1.9/32 10.64.9.9/32]
[10.64.0.0/16 fd00::/48]`
	if text := strings.Join(got, "\n"); strings.ReplaceAll(text, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got\n%s\nexpected\n%s", text, want)
	}
}
