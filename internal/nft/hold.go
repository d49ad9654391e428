package nft

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Holding drops forwarded packets from blocks of a cluster's node that the node may not use any
// more. The sets guarded contain the blocks with a limit. The elements of the sets held end by
// themselves, so that the kernel drops the packets even if no daemon runs. The elements have no
// owner: a daemon sets all of them.
var Holding = &RuleSet{name: "hold", skeleton: holdSkeleton}

func (p protocol) guarded() *set { return p.clusterSet("guarded") }

// held returns the set of blocks before their limits.
func (p protocol) held() *set {
	s := p.clusterSet("held")
	s.Timeout = true
	return s
}

func holdSkeleton() skeleton {
	s := skeleton{version: "hold 1", table: table}
	forward := forwardChain(table, "hold", nftmsg.PriorityFilter-1)
	for _, p := range families() {
		guarded, held := p.guarded(), p.held()
		s.sets = append(s.sets, guarded, held)
		// ip saddr . ip daddr @guarded4 ip saddr . ip daddr != @held4 drop
		forward.add(p.rule(p.saddr, p.daddr, guarded.has(p.saddr.Register), held.lacks(),
			verdict(nftmsg.Drop)))
	}
	s.chains = []chain{forward}
	return s
}

// SetHolds replaces the blocks with a limit, in one transaction: packets from a block pass until
// its duration has elapsed, and never if it is not positive. The kernel measures it without the
// time for which the system was suspended. Packets from other addresses are not affected.
func (c *Conn) SetHolds(ctx context.Context, left map[netip.Prefix]time.Duration) error {
	err := c.transact(ctx, func(have *state) (changes, error) {
		return holdChanges(left, have), nil
	})
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return nil
}

// holdChanges returns the changes that set the blocks. The elements of held are replaced, because
// the kernel cannot extend their time.
func holdChanges(left map[netip.Prefix]time.Duration, have *state) (c changes) {
	s := Holding.skeleton()
	now := have.status(s)
	if now == absent && len(left) == 0 {
		return c
	}
	if now != current {
		b := rebuild(s, have)
		b.fresh = nil // the elements follow
		c.builds = append(c.builds, b)
	}
	blocks := slices.SortedFunc(maps.Keys(left), netip.Prefix.Compare)
	for _, p := range families() {
		guarded := change{skeleton: s, set: p.guarded()}
		held := change{skeleton: s, set: p.held()}
		var want []nftmsg.Element
		for _, b := range blocks {
			if !p.is(b) {
				continue
			}
			x := p.from(b)
			want = append(want, x)
			if x.Timeout = left[b]; x.Timeout > 0 {
				held.add = append(held.add, x)
			}
		}
		exist := have.elements(guarded.set)
		guarded.add, guarded.del = without(want, exist), without(exist, want)
		held.del = have.elements(held.set)
		for _, ch := range []change{held, guarded} {
			if !ch.empty() {
				c.sets = append(c.sets, ch)
			}
		}
	}
	return c
}

// from returns the element for packets from a block to any address.
func (p protocol) from(block netip.Prefix) nftmsg.Element {
	block = block.Masked()
	everything := netip.PrefixFrom(block.Addr(), 0).Masked()
	return nftmsg.Element{
		Key:    slices.Concat(block.Addr().AsSlice(), everything.Addr().AsSlice()),
		KeyEnd: slices.Concat(last(block).AsSlice(), last(everything).AsSlice()),
	}
}
