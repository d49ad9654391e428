package agent

import (
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/usage"
)

// sample records the use of the pools in a view for forecasts, once per [usage.Interval]. last is
// the time of the last sample, and sample returns the new one.
func (a *Agent) sample(v registry.View, last time.Time) time.Time {
	now := a.o.now().wall
	if !last.IsZero() && now.Sub(last) < usage.Interval && !now.Before(last) {
		return last
	}
	if err := usage.Record(a.o.Dir, now, claimedBlocks(v)); err != nil {
		a.o.Log.Warn("cannot record the use of pools", "error", err)
	}
	return now
}

// claimedBlocks returns the number of blocks of each pool that are owned or shared.
func claimedBlocks(v registry.View) map[string]uint64 {
	counts := map[string]uint64{}
	seen := map[netip.Prefix]bool{}
	for _, p := range v.Pools {
		counts[p.Name] = 0
	}
	count := func(pool string, b netip.Prefix) {
		if !seen[b] {
			seen[b] = true
			counts[pool]++
		}
	}
	for _, n := range v.Nodes {
		for _, b := range n.Blocks {
			count(b.Pool, b.Block)
		}
	}
	for _, p := range v.Pools {
		for _, h := range v.Holders {
			if b, ok := p.BlockOf(h.Addr); ok && h.Pool == p.Name {
				count(p.Name, b)
			}
		}
	}
	return counts
}
