package nft

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// The nodes of a cluster assign addresses of its pools to containers. Packets between pools keep
// their source, so that a container on another node sees the address of the sender. [Masquerading]
// and [Filtering] look up source and destination together, in a set that has an element for each
// pair of pools. These elements have no owner: a daemon sets all of them.

// clusterSet returns the set of pairs of pools of a rule set.
func (p protocol) clusterSet(name string) *set {
	s := p.netSet(name)
	s.unowned, s.shared = true, false
	s.text = func(x nftmsg.Element) string {
		half, end := len(x.Key)/2, lastKey(x)
		return fmt.Sprintf("%s to %s", network(x.Key[:half], end[:half]),
			network(x.Key[half:], end[half:]))
	}
	return s
}

func (p protocol) cluster() *set          { return p.clusterSet("cluster") }
func (p protocol) is(a netip.Prefix) bool { return a.Addr().BitLen() == int(p.saddr.Len)*8 }

// accepts returns the set of [Filtering]. The chain of a rule set can only look up its own sets.
func (p protocol) accepts() *set {
	s := p.clusterSet("forward_cluster")
	s.like = p.cluster()
	return s
}

// pairs returns an element for each pair of pools of the version of IP.
func (p protocol) pairs(pools []netip.Prefix) (list []nftmsg.Element) {
	pools = slices.DeleteFunc(slices.Clone(pools), func(n netip.Prefix) bool { return !p.is(n) })
	for _, from := range pools {
		for _, to := range pools {
			list = append(list, nftmsg.Element{
				Key:    slices.Concat(from.Addr().AsSlice(), to.Addr().AsSlice()),
				KeyEnd: slices.Concat(last(from).AsSlice(), last(to).AsSlice()),
			})
		}
	}
	return list
}

// distinctPools returns pools without host bits, without pools inside others, and sorted.
func distinctPools(pools []netip.Prefix) []netip.Prefix {
	var outer []netip.Prefix
	sorted := slices.Clone(pools)
	for i, n := range sorted {
		sorted[i] = n.Masked()
	}
	slices.SortFunc(sorted, netip.Prefix.Compare) // an outer pool comes before the pools in it
	for _, n := range sorted {
		if !slices.ContainsFunc(outer, n.Overlaps) {
			outer = append(outer, n)
		}
	}
	return outer
}

// SamePools reports whether two lists cover the same addresses in the same pools.
func SamePools(a, b []netip.Prefix) bool {
	return slices.Equal(distinctPools(a), distinctPools(b))
}

// ClusterPools returns the pools of the cluster, none if no daemon has set any. complete is false
// if a rule or an element is missing that [Conn.SetClusterPools] makes for them.
func (c *Conn) ClusterPools() (pools []netip.Prefix, complete bool, err error) {
	have := c.state()
	for _, p := range families() {
		for _, x := range have.elements(p.cluster()) {
			half := len(x.Key) / 2
			n := network(x.Key[:half], lastKey(x)[:half])
			if !slices.Contains(pools, n) {
				pools = append(pools, n)
			}
		}
	}
	if len(pools) == 0 {
		return nil, true, have.err
	}
	return pools, clusterChanges(pools, have).empty(), have.err
}

// SetClusterPools replaces the pools of the cluster, in one transaction.
func (c *Conn) SetClusterPools(ctx context.Context, pools []netip.Prefix) error {
	err := c.transact(ctx, func(have *state) (changes, error) {
		return clusterChanges(pools, have), nil
	})
	if err != nil {
		return fmt.Errorf("cluster pools: %w", err)
	}
	return nil
}

// clusterChanges returns the changes that set the pools. They build [Masquerading] if there are
// pools, so that the first container that it masquerades finds them, but change [Filtering] only
// where it exists.
func clusterChanges(pools []netip.Prefix, have *state) (c changes) {
	pools = distinctPools(pools)
	for _, rs := range []*RuleSet{Masquerading, Filtering} {
		s := rs.skeleton()
		now := have.status(s)
		if now == absent && (len(pools) == 0 || rs == Filtering) {
			continue
		}
		if now != current {
			b := rebuild(s, have)
			b.fresh = nil // the elements follow
			c.builds = append(c.builds, b)
		}
		for _, p := range families() {
			set := p.cluster()
			if rs == Filtering {
				set = p.accepts()
			}
			ch := change{skeleton: s, set: set}
			want, exist := p.pairs(pools), have.elements(set)
			ch.add = without(want, exist)
			ch.del = without(exist, want)
			if !ch.empty() {
				c.sets = append(c.sets, ch)
			}
		}
	}
	return c
}

// without returns the elements of list that others lacks.
func without(list, others []nftmsg.Element) (left []nftmsg.Element) {
	for _, x := range list {
		if !contains(others, x) {
			left = append(left, x)
		}
	}
	return left
}

func (c changes) empty() bool { return len(c.builds)+len(c.sets) == 0 }
