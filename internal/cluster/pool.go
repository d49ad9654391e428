package cluster

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// Schema is the version of the JSON documents in the store and on disk. A program refuses
// documents with a higher one.
const Schema = 1

// Limits and defaults of a pool.
const (
	DefaultBlockBits4 = 26
	DefaultBlockBits6 = 122
	DefaultCooldown   = Duration(5 * time.Minute)
	MinHold           = Duration(time.Hour)
	maxBlocksBits     = 24 // a pool has at most 2^24 blocks
	maxBlockBits      = 16 // a block has at most 2^16 addresses or prefixes
)

// Pool is a range of addresses of one family with the rules for its use.
type Pool struct {
	Schema int    `json:"schema"`
	Name   string `json:"name"`
	// Range is the whole range. Pools never overlap.
	Range netip.Prefix `json:"range"`
	// BlockBits is the prefix length of a block, 26 or 122 by default. It never changes.
	BlockBits int `json:"blockBits"`
	// PrefixBits is the length of the prefix that an attachment gets, for IPv6 from 64 to 80. Zero
	// means that it gets a single address.
	PrefixBits int `json:"prefixBits,omitempty"`
	// Exclude lists addresses that are never allocated.
	Exclude []netip.Prefix `json:"exclude,omitempty"`
	// Reserve lists addresses that are allocated only by request.
	Reserve []netip.Prefix `json:"reserve,omitempty"`
	// Namespaces may use the pool. Empty means all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Nodes selects the nodes that may claim blocks by labels such as "zone=a". A node needs all of
	// them.
	Nodes map[string]string `json:"nodes,omitempty"`
	// Quota limits the addresses of a namespace. The key "*" is the limit of the namespaces that
	// have none of their own. Zero or absent means no limit.
	Quota map[string]uint64 `json:"quota,omitempty"`
	// MaxBlocks limits the blocks of a node. Zero means no limit.
	MaxBlocks int `json:"maxBlocks,omitempty"`
	// Cooldown is the time before another node can claim a block that a node has lost or returned.
	Cooldown Duration `json:"cooldown"`
	// Hold, if positive, is the time after the last contact with the store after which a node stops
	// using its blocks, at least one hour.
	Hold Duration `json:"hold,omitempty"`
}

// Canonicalize sets defaults and checks the pool. Errors have code 7.
func (p *Pool) Canonicalize() error {
	p.Schema = Schema
	if p.Cooldown == 0 {
		p.Cooldown = DefaultCooldown
	}
	if p.BlockBits == 0 && p.Range.IsValid() {
		p.BlockBits = DefaultBlockBits6
		switch {
		case p.Range.Addr().Is4():
			p.BlockBits = DefaultBlockBits4
		case p.PrefixBits > 0:
			p.BlockBits = p.PrefixBits - 6
		}
		p.BlockBits = max(p.BlockBits, p.Range.Bits())
	}
	return p.validate()
}

func (p *Pool) validate() error {
	wrong := func(format string, args ...any) error {
		return cni.Errorf(cni.CodeInvalidConfig, "pool %q: "+format, append([]any{p.Name}, args...)...)
	}
	if err := ValidateName(p.Name); err != nil {
		return wrong("%w", err)
	}
	switch {
	case !p.Range.IsValid() || p.Range.Addr().Is4In6():
		return wrong("range is missing or invalid")
	case p.Range != p.Range.Masked():
		return wrong("range %s has host bits set; did you mean %s?", p.Range, p.Range.Masked())
	case p.BlockBits < p.Range.Bits() || p.BlockBits-p.Range.Bits() > maxBlocksBits:
		return wrong("blockBits %d does not lie between %d and %d", p.BlockBits, p.Range.Bits(),
			p.Range.Bits()+maxBlocksBits)
	case p.PrefixBits != 0 && (p.Range.Addr().Is4() || p.PrefixBits < 64 || p.PrefixBits > 80):
		return wrong("prefixBits %d: an attachment can get an IPv6 prefix of length 64 to 80",
			p.PrefixBits)
	case p.unitBits()-p.BlockBits > maxBlockBits:
		return wrong("blockBits %d: a block can have at most 2^%d addresses", p.BlockBits,
			maxBlockBits)
	case p.PrefixBits == 0 && p.unitBits()-p.BlockBits < 2, p.unitBits() < p.BlockBits:
		return wrong("blockBits %d: a block is too small", p.BlockBits)
	case p.Hold != 0 && p.Hold < MinHold:
		return wrong("hold %s is shorter than %s", p.Hold, MinHold)
	case p.Cooldown < 0:
		return wrong("cooldown %s is negative", p.Cooldown)
	}
	for _, e := range slices.Concat(p.Exclude, p.Reserve) {
		if !e.IsValid() || e != e.Masked() || !p.Range.Overlaps(e) || e.Bits() < p.Range.Bits() {
			return wrong("%s is not a part of %s", e, p.Range)
		}
	}
	return nil
}

// unitBits returns the prefix length of what an attachment gets.
func (p *Pool) unitBits() int {
	if p.PrefixBits > 0 {
		return p.PrefixBits
	}
	return p.Range.Addr().BitLen()
}

// Is4 reports whether the pool holds IPv4 addresses.
func (p *Pool) Is4() bool { return p.Range.Addr().Is4() }

// Blocks returns the number of blocks.
func (p *Pool) Blocks() uint64 { return 1 << (p.BlockBits - p.Range.Bits()) }

// Block returns the block with an index, which must be less than [Pool.Blocks].
func (p *Pool) Block(index uint64) netip.Prefix {
	n := new(big.Int).SetUint64(index)
	n.Lsh(n, uint(p.Range.Addr().BitLen()-p.BlockBits))
	n.Add(n, new(big.Int).SetBytes(p.Range.Addr().AsSlice()))
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, p.Range.Addr().BitLen()/8)))
	return netip.PrefixFrom(a, p.BlockBits)
}

// BlockOf returns the block of an address. ok is false if the address lies outside the pool.
func (p *Pool) BlockOf(a netip.Addr) (block netip.Prefix, ok bool) {
	block, err := a.Prefix(p.BlockBits)
	return block, err == nil && p.Range.Contains(a)
}

// IsBlock reports whether b is a block of the pool.
func (p *Pool) IsBlock(b netip.Prefix) bool {
	return b.IsValid() && b == b.Masked() && b.Bits() == p.BlockBits && p.Range.Contains(b.Addr())
}

// Gateway returns the gateway of a block: its first address after the network address. Blocks of
// prefixes have none; there the gateway belongs to the prefix.
func (p *Pool) Gateway(block netip.Prefix) netip.Addr {
	if p.PrefixBits > 0 {
		return netip.Addr{}
	}
	return block.Addr().Next()
}

// Ranges returns the addresses of a block that can be allocated without request, as ranges whose
// subnet is the block: without the network, gateway and broadcast addresses, p.Exclude and
// p.Reserve. It returns nil if no address is left. The pool must not be one of prefixes.
func (p *Pool) Ranges(block netip.Prefix) ipam.RangeSet {
	whole := ipam.Range{Subnet: block, Gateway: p.Gateway(block)}
	if whole.Canonicalize() != nil {
		return nil
	}
	whole.Start = whole.Gateway.Next()
	parts := ipam.RangeSet{whole}
	for _, e := range slices.Concat(p.Exclude, p.Reserve) {
		parts = without(parts, e)
	}
	return parts
}

// without removes the addresses of e from the ranges.
func without(set ipam.RangeSet, e netip.Prefix) (rest ipam.RangeSet) {
	first, last := e.Addr(), LastOf(e)
	for _, r := range set {
		if last.Less(r.Start) || r.End.Less(first) {
			rest = append(rest, r)
			continue
		}
		if r.Start.Less(first) {
			part := r
			part.End = first.Prev()
			rest = append(rest, part)
		}
		if last.Less(r.End) {
			part := r
			part.Start = last.Next()
			rest = append(rest, part)
		}
	}
	return rest
}

// LastOf returns the last address of a prefix.
func LastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Allocatable reports whether an address may be given to an attachment, at least by request, and
// explains why not.
func (p *Pool) Allocatable(a netip.Addr) error {
	block, ok := p.BlockOf(a)
	if !ok {
		return fmt.Errorf("%s is not in pool %s (%s)", a, p.Name, p.Range)
	}
	unit := netip.PrefixFrom(a, p.unitBits())
	switch {
	case unit != unit.Masked():
		return fmt.Errorf("%s is not the first address of a /%d of pool %s", a, p.PrefixBits, p.Name)
	case slices.ContainsFunc(p.Exclude, unit.Overlaps):
		return fmt.Errorf("%s is excluded from pool %s", a, p.Name)
	case p.PrefixBits > 0:
		return nil
	case a == block.Addr() || a == p.Gateway(block) || a.Is4() && a == LastOf(block):
		return fmt.Errorf("%s is the network, gateway or broadcast address of block %s", a, block)
	}
	return nil
}

// Units returns the number of addresses, or prefixes, of a block that can be allocated without
// request.
func (p *Pool) Units(block netip.Prefix) uint64 {
	if p.PrefixBits == 0 {
		return p.Ranges(block).Capacity()
	}
	n := uint64(0)
	for range p.Prefixes(block) {
		n++
	}
	return n
}

// Prefixes yields the prefixes of a block that can be allocated without request, for a pool of
// prefixes.
func (p *Pool) Prefixes(block netip.Prefix) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		units := Pool{Range: block, BlockBits: p.PrefixBits}
		for i := range units.Blocks() {
			unit := units.Block(i)
			taken := func(e netip.Prefix) bool { return e.Overlaps(unit) }
			if slices.ContainsFunc(p.Exclude, taken) || slices.ContainsFunc(p.Reserve, taken) {
				continue
			}
			if !yield(unit) {
				return
			}
		}
	}
}

// LimitOf returns the quota of a namespace, or 0 if it has none.
func (p *Pool) LimitOf(namespace string) uint64 {
	if n, ok := p.Quota[namespace]; ok {
		return n
	}
	return p.Quota["*"]
}
