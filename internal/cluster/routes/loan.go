package routes

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// nearBits limits proxy entries to blocks of at most 2^nearBits addresses. The default blocks have
// 2^6.
const nearBits = 10

// surround adds routes to the parts of each block of another node that seems to be on a link here:
// a bridge keeps the gateway of a block that this node has returned, and gets the one of a block
// from which this node has borrowed an address. The kernel prefers such a link to a route to the
// whole block, but not to routes to its parts. Only containers with borrowed addresses consider the
// others of the block their neighbours.
func (p *plan) surround() {
	for n, r := range maps.Clone(p.blocks) {
		borrowed := p.borrowedFrom(n)
		if n.IsSingleIP() || !borrowed && !p.onLink(n) {
			continue
		}
		for _, part := range without(n, func(b netip.Prefix) bool { return b == n || p.single(b) }) {
			if p.blocks[part] == nil {
				p.blocks[part] = r
			}
			p.near[part] = borrowed
		}
		if borrowed && n.Addr().BitLen()-n.Bits() > nearBits {
			p.problem("node %q: containers with borrowed addresses of block %s do not reach the others"+
				" on the node's bridge: it has more than %d addresses", r.Peer, n, 1<<nearBits)
		}
	}
}

// onLink reports whether a block is the network of an address here.
func (p *plan) onLink(block netip.Prefix) bool {
	return slices.ContainsFunc(p.facts.nets, func(x kernel.LinkAddr) bool {
		return x.Addr.Masked() == block
	})
}

// borrowedFrom reports whether an own single address lies in a block.
func (p *plan) borrowedFrom(block netip.Prefix) bool {
	for n := range p.mine {
		if n.IsSingleIP() && block.Contains(n.Addr()) {
			return true
		}
	}
	return false
}

// single reports whether a node, this one or another, has a single address of a block.
func (p *plan) single(block netip.Prefix) bool {
	if p.borrowedFrom(block) {
		return true
	}
	for n := range p.blocks {
		if n.IsSingleIP() && block.Contains(n.Addr()) {
			return true
		}
	}
	return false
}

// without returns the largest parts of a block for which has returns false.
func without(block netip.Prefix, has func(netip.Prefix) bool) []netip.Prefix {
	if !has(block) {
		return []netip.Prefix{block}
	}
	if block.IsSingleIP() {
		return nil
	}
	low := netip.PrefixFrom(block.Addr(), block.Bits()+1)
	high := netip.PrefixFrom(flip(block.Addr(), block.Bits()), block.Bits()+1)
	return append(without(low, has), without(high, has)...)
}

// flip returns an address with one other bit, counted from the first.
func flip(a netip.Addr, bit int) netip.Addr {
	b := a.AsSlice()
	b[bit/8] ^= 0x80 >> (bit % 8)
	flipped, _ := netip.AddrFromSlice(b)
	return flipped
}

// proxyAll adds the proxy entries for the addresses of a part of a block of another node.
func (e *entries) proxyAll(part netip.Prefix, p *plan) {
	if part.Addr().BitLen()-part.Bits() > nearBits {
		return
	}
	for a := part.Addr(); part.Contains(a); a = a.Next() {
		e.proxy(a, p.facts.nets)
	}
}
