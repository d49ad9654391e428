package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// Request asks for an address, or a prefix.
type Request struct {
	Owner     ipam.Owner // with the network
	Addr      netip.Addr // requested, or the zero Addr
	Namespace string     // of the pod, for quotas
}

// owner returns the owner to record.
func (q Request) owner() ipam.Owner {
	o := q.Owner
	o.Namespace = q.Namespace
	return o
}

// Allocation is the address for an interface.
type Allocation struct {
	Addr    netip.Prefix // with the length of the block, or of the prefix
	Gateway netip.Addr
}

// The range sets of a pool, as indexes of package filestore: it remembers the last address of each.
const (
	setOwned = iota
	setShared
)

// Allocate reserves an address of the node's blocks: the one that was allocated the longest time
// ago, as long as blocks do not change. It checks state, boot and hold before and after, and
// reserves nothing on error. The error wraps one of the errors of this package or of package ipam.
func (p *Pool) Allocate(ctx context.Context, q Request) (Allocation, error) {
	if err := p.permit(ctx, q); err != nil {
		return Allocation{}, err
	}
	held, err := p.files.Held(ctx, q.Owner)
	if err == nil && len(held) > 0 {
		err = &ipam.DuplicateError{Owner: q.Owner, Held: held[0]}
	}
	if err != nil {
		return Allocation{}, err
	}
	a, err := p.reserve(ctx, q)
	if err == nil {
		err = p.usable() // the process may have been paused since the first check
	}
	if err != nil {
		return Allocation{}, errors.Join(err, p.undo(ctx, q.Owner))
	}
	return p.allocation(a)
}

// undo frees the addresses of an attachment that had none before.
func (p *Pool) undo(ctx context.Context, o ipam.Owner) error {
	ctx = context.WithoutCancel(ctx)
	held, err := p.files.Held(ctx, o)
	errs := []error{err}
	for _, l := range held {
		errs = append(errs, p.files.Free(ctx, l))
	}
	return errors.Join(errs...)
}

// permit checks whether the request may get an address now.
func (p *Pool) permit(ctx context.Context, q Request) error {
	if err := p.usable(); err != nil {
		return err
	}
	return p.Permit(ctx, q.Namespace)
}

// Permit reports whether a namespace may get another address of the pool on this node. The error
// wraps ErrNamespace, or ErrQuota if the agent must draw tokens first.
func (p *Pool) Permit(ctx context.Context, namespace string) error {
	pool := &p.State.Pool
	if len(pool.Namespaces) > 0 && !slices.Contains(pool.Namespaces, namespace) {
		return fmt.Errorf("pool %s: %w: %q is none of %q", p.name, ErrNamespace, namespace,
			pool.Namespaces)
	}
	limit := pool.LimitOf(namespace)
	if limit == 0 {
		return nil
	}
	used, err := p.Used(ctx)
	if err == nil && used[namespace] >= p.State.Tokens[namespace] {
		err = fmt.Errorf("pool %s: %w: namespace %q uses %d addresses on this node and may use %d; "+
			"its quota in the cluster is %d", p.name, ErrQuota, namespace, used[namespace],
			p.State.Tokens[namespace], limit)
	}
	return err
}

// reserve reserves the requested or a free address.
func (p *Pool) reserve(ctx context.Context, q Request) (netip.Addr, error) {
	if q.Addr.IsValid() {
		return p.reserveRequested(ctx, q)
	}
	find := p.reserveAddress
	if p.State.Pool.PrefixBits > 0 {
		find = p.reservePrefix
	}
	a, err := find(ctx, q)
	if errors.Is(err, ErrFull) {
		return netip.Addr{}, p.full(ctx)
	}
	return a, err
}

// reserveRequested reserves the address of a request.
func (p *Pool) reserveRequested(ctx context.Context, q Request) (netip.Addr, error) {
	a := p.State.Unit(q.Addr)
	if err := p.State.Pool.Allocatable(a); err != nil {
		return a, fmt.Errorf("%w: %w", ErrNotAllocatable, err)
	}
	b := p.State.BlockOf(a)
	if b == nil || !b.usable() {
		return a, fmt.Errorf("pool %s: %s: %w", p.name, a, ErrForeignAddress)
	}
	return a, p.inBlock(p.files.Reserve(ctx, setOwned, a, q.owner()))
}

// Unit returns the address that a request for a reserves: in a pool of prefixes, the address of the
// interface stands for the first one of its prefix.
func (s *State) Unit(a netip.Addr) netip.Addr {
	if s.Pool.PrefixBits > 0 {
		unit, err := a.Prefix(s.Pool.PrefixBits)
		if err == nil && a == attached(unit).Addr.Addr() {
			return unit.Addr()
		}
	}
	return a
}

// inBlock adds the block to an error about the holder of a requested address.
func (p *Pool) inBlock(err error) error {
	var inUse *ipam.InUseError
	if !errors.As(err, &inUse) {
		return err
	}
	block, _ := p.State.Pool.BlockOf(inUse.Holder.Addr)
	set := ipam.RangeSet{{Subnet: block, Start: block.Addr(), End: cluster.LastOf(block)}}
	return &ipam.InUseError{Set: set, Holder: inUse.Holder}
}

// reserveAddress reserves a free address of the owned blocks.
func (p *Pool) reserveAddress(ctx context.Context, q Request) (netip.Addr, error) {
	var free ipam.RangeSet
	for _, b := range p.State.Blocks {
		if b.usable() {
			free = append(free, p.State.Pool.Ranges(b.Block)...)
		}
	}
	if len(free) == 0 {
		return netip.Addr{}, ErrFull
	}
	all, err := ipam.Allocate(ctx, p.files, ipam.Request{Owner: q.owner(), Sets: []ipam.RangeSet{free}})
	var exhausted *ipam.ExhaustedError
	if errors.As(err, &exhausted) {
		return netip.Addr{}, ErrFull
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return all[0].Addr, nil
}

// reservePrefix reserves a free prefix of the owned blocks, by its first address.
func (p *Pool) reservePrefix(ctx context.Context, q Request) (netip.Addr, error) {
	var units []netip.Addr
	for _, b := range p.State.Blocks {
		if b.usable() {
			for unit := range p.State.Pool.Prefixes(b.Block) {
				units = append(units, unit.Addr())
			}
		}
	}
	last, err := p.files.Last(ctx, setOwned)
	if err != nil {
		return netip.Addr{}, err
	}
	if at := slices.Index(units, last); at >= 0 {
		units = slices.Concat(units[at+1:], units[:at+1])
	}
	for _, a := range units {
		taken, err := p.files.Taken(ctx, a)
		if taken {
			continue
		}
		if err == nil {
			err = p.files.Reserve(ctx, setOwned, a, q.owner())
		}
		var inUse *ipam.InUseError
		if !errors.As(err, &inUse) {
			return a, err
		}
	}
	return netip.Addr{}, ErrFull
}

// full returns the error for blocks without a free address.
func (p *Pool) full(ctx context.Context) error {
	e := &FullError{Pool: p.name}
	blocks, _, err := p.Usage(ctx)
	for _, u := range blocks {
		if u.usable() {
			e.Used, e.Capacity = e.Used+u.Used, e.Capacity+u.Capacity
			e.Blocks = append(e.Blocks, u.Nonce)
		}
	}
	leases, leasesErr := p.Leases(ctx)
	slices.SortStableFunc(leases, func(a, b ipam.Lease) int { return a.Since.Compare(b.Since) })
	const oldest = 3
	e.Oldest = leases[:min(oldest, len(leases))]
	return errors.Join(e, err, leasesErr)
}

// Put records that an attachment holds a shared address; the agent calls it. Putting the same again
// succeeds. The error wraps [*ipam.InUseError] if another attachment holds the address, or
// ErrNotAllocatable.
func (p *Pool) Put(ctx context.Context, a netip.Addr, q Request) (Allocation, error) {
	if p.unread != nil {
		return Allocation{}, p.unread
	}
	if err := p.State.Pool.Allocatable(a); err != nil {
		return Allocation{}, fmt.Errorf("%w: %w", ErrNotAllocatable, err)
	}
	held, err := p.files.Held(ctx, q.Owner)
	if err != nil {
		return Allocation{}, err
	}
	if slices.ContainsFunc(held, func(l ipam.Lease) bool { return l.Addr == a }) {
		return p.allocation(a)
	}
	if err := p.inBlock(p.files.Reserve(ctx, setShared, a, q.owner())); err != nil {
		if len(held) == 0 {
			err = errors.Join(err, p.undo(ctx, q.Owner))
		}
		return Allocation{}, err
	}
	return p.allocation(a)
}

// allocation returns the result for a reserved address.
func (p *Pool) allocation(a netip.Addr) (Allocation, error) {
	pool := &p.State.Pool
	if pool.PrefixBits > 0 {
		unit, err := a.Prefix(pool.PrefixBits)
		return attached(unit), err
	}
	block, ok := pool.BlockOf(a)
	if !ok {
		return Allocation{}, fmt.Errorf("%s is not in pool %s", a, p.name)
	}
	return Allocation{netip.PrefixFrom(a, block.Bits()), pool.Gateway(block)}, nil
}

// attached returns the result for a prefix. Its first address is the anycast address of routers
// (RFC 4291 section 2.6.1), so the gateway is the next one and the interface has the one after it.
func attached(unit netip.Prefix) Allocation {
	gateway := unit.Addr().Next()
	return Allocation{netip.PrefixFrom(gateway.Next(), unit.Bits()), gateway}
}
