package routes

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// surround adds routes to both halves of each block of another node that seems to be on a link
// here: a bridge keeps the gateway of a block that this node has returned. The kernel prefers such
// a link to a route to the whole block, but not to routes to its halves.
func (p *plan) surround() {
	for n, r := range maps.Clone(p.blocks) {
		if n.IsSingleIP() || !p.onLink(n) {
			continue
		}
		for _, half := range halves(n) {
			if p.blocks[half] == nil {
				p.blocks[half] = r
			}
		}
	}
}

// onLink reports whether a block is the network of an address here.
func (p *plan) onLink(block netip.Prefix) bool {
	return slices.ContainsFunc(p.facts.nets, func(x kernel.LinkAddr) bool {
		return x.Addr.Masked() == block
	})
}

// halves returns the halves of a block of more than one address.
func halves(block netip.Prefix) [2]netip.Prefix {
	bit := block.Bits()
	b := block.Addr().AsSlice()
	b[bit/8] |= 0x80 >> (bit % 8)
	second, _ := netip.AddrFromSlice(b)
	return [2]netip.Prefix{netip.PrefixFrom(block.Addr(), bit+1), netip.PrefixFrom(second, bit+1)}
}
