package agent

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

func TestClaimedBlocks(t *testing.T) {
	t.Parallel()
	block := func(pool, b string) cluster.BlockRef {
		return cluster.BlockRef{Pool: pool, Block: netip.MustParsePrefix(b)}
	}
	pool := func(name, rng string) registry.Pool {
		p := cluster.Pool{Name: name, Range: netip.MustParsePrefix(rng)}
		if err := p.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		return registry.Pool{Pool: p}
	}
	v := registry.View{
		Pools: []registry.Pool{
			pool("pods", "10.64.0.0/20"), pool("pods6", "fd00::/112"), pool("empty", "10.65.0.0/20"),
		},
		Nodes: []registry.Node{
			{Node: cluster.Node{Blocks: []cluster.BlockRef{
				block("pods", "10.64.0.0/26"), block("pods6", "fd00::/122")}}},
			{Node: cluster.Node{Blocks: []cluster.BlockRef{
				block("pods", "10.64.1.0/26")}}},
		},
		Holders: []cluster.Holder{
			{Pool: "pods", Addr: netip.MustParseAddr("10.64.2.2")},
			{Pool: "pods", Addr: netip.MustParseAddr("10.64.2.3")},
		},
	}
	want := map[string]uint64{"pods": 3, "pods6": 1, "empty": 0}
	if got := claimedBlocks(v); !maps.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}
