package routes_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// BenchmarkApply measures Apply with 500 other nodes that have a block of each family: from
// nothing, and without any difference.
func BenchmarkApply(b *testing.B) {
	for _, row := range []struct {
		name string
		mode routes.Mode
		peer func(int) routes.Peer
	}{
		{"vxlan", routes.ModeVXLAN, farOf500}, {"host-gw", routes.ModeHostGW, nearOf500},
	} {
		var peers []routes.Peer
		for n := 2; n < 502; n++ {
			peers = append(peers, row.peer(n))
		}
		b.Run(row.name+"/full", func(b *testing.B) { benchmark(b, row.mode, peers, false) })
		b.Run(row.name+"/empty", func(b *testing.B) { benchmark(b, row.mode, peers, true) })
	}
}

// nearOf500 and farOf500 are like nearby and distant, for more than 250 nodes.
func nearOf500(n int) routes.Peer {
	return peer(n, fmt.Sprintf("203.0.%d.%%d", 110+n/250), fmt.Sprintf("2001:db8:2:%d::%%d", n/250))
}

func farOf500(n int) routes.Peer {
	return peer(n, fmt.Sprintf("198.51.%d.%%d", 100+n/250), fmt.Sprintf("2001:db8:1:%d::%%d", n/250))
}

func benchmark(b *testing.B, mode routes.Mode, peers []routes.Peer, same bool) {
	n := testnet.New(b)
	n.Uplink()
	n.Host.Batch("address add 203.0.96.1/19 dev uplink", "address add 2001:db8:2::1/60 dev uplink nodad")
	own := peer(1, "203.0.96.%d", "2001:db8:2::%d")
	r, err := routes.New(routes.Options{Mode: mode, Cluster: "lab", Nodes: own.Addrs})
	if err != nil {
		b.Fatal(err)
	}
	w := routes.Want{Own: own, Peers: peers, Pools: pools}
	n.Host.Do(func() {
		changes := 0
		apply := func() {
			report, err := r.Apply(b.Context(), w)
			if err != nil || len(report.Problems) > 0 {
				b.Fatal(err, report.Problems)
			}
			changes = report.Changes
		}
		apply()
		for b.Loop() {
			if !same {
				b.StopTimer()
				if err := r.Remove(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			apply()
		}
		b.ReportMetric(float64(changes), "changes")
	})
}
