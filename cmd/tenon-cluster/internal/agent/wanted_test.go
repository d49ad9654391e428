package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/routes"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	prefix := netip.MustParsePrefix
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
	w := wanted("n1", registry.View{
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
	text := strings.Join(got, "\n")
	if strings.ReplaceAll(text, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got\n%s\nexpected\n%s", text, want)
	}
}
