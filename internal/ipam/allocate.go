package ipam

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
)

// Reservations are the reservations of a network during an operation. No other process changes them
// meanwhile.
type Reservations interface {
	// Held returns the leases that Release would free for the owner, sorted by address.
	Held(ctx context.Context, o Owner) ([]Lease, error)
	// Last returns the address that was last reserved for the set with this index, or the zero Addr
	// if it is not known.
	Last(ctx context.Context, set int) (netip.Addr, error)
	// NextFree returns the lowest address of r between from and to that is probably free, or the
	// zero Addr if there is none. It is a hint: Reserve decides.
	NextFree(ctx context.Context, r Range, from, to netip.Addr) (netip.Addr, error)
	// Reserve makes o the holder of a, and a the last address of the set. It returns an *InUseError
	// if another owner holds a.
	Reserve(ctx context.Context, set int, a netip.Addr, o Owner) error
	// Survey counts the usable addresses of the set that are reserved and returns the n oldest
	// leases. It reads the reservations themselves, and afterwards NextFree agrees with them.
	Survey(ctx context.Context, set RangeSet, n int) (used uint64, oldest []Lease, err error)
}

// Request requests one address of each set.
type Request struct {
	Owner Owner
	Sets  []RangeSet   // canonical, without overlap
	Addrs []netip.Addr // requested addresses, at most one per set
}

// Allocation is a reserved address and its range.
type Allocation struct {
	Addr  netip.Addr
	Range Range
}

// Prefix returns the address with the prefix length of its subnet.
func (a Allocation) Prefix() netip.Prefix { return netip.PrefixFrom(a.Addr, a.Range.Subnet.Bits()) }

// Allocate reserves one address per set, in the order of the sets. It does not give a second
// address of a set to an owner. Unless res fails, the error is or wraps one of the types of this
// package. Reservations made before an error remain; rolling back the transaction of res removes
// them, and only them.
func Allocate(ctx context.Context, res Reservations, req Request) ([]Allocation, error) {
	requested, err := assign(req.Sets, req.Addrs)
	if err != nil {
		return nil, err
	}
	held, err := res.Held(ctx, req.Owner)
	if err != nil {
		return nil, err
	}
	var all []Allocation
	for i, set := range req.Sets {
		a, err := allocateOne(ctx, res, turn{i, set, req.Owner, held}, requested[i])
		if err != nil {
			return nil, fmt.Errorf("failed to allocate for range %d: %w", i, err)
		}
		r, _ := set.Range(a)
		all = append(all, Allocation{a, r})
	}
	return all, nil
}

// turn is the allocation from one set.
type turn struct {
	index int
	set   RangeSet
	owner Owner
	held  []Lease
}

func allocateOne(
	ctx context.Context, res Reservations, t turn, requested netip.Addr,
) (netip.Addr, error) {
	if i := slices.IndexFunc(t.held, func(l Lease) bool { return t.set.Contains(l.Addr) }); i >= 0 {
		return netip.Addr{}, &DuplicateError{t.owner, t.held[i]}
	}
	if requested.IsValid() {
		return requested, t.reserve(ctx, res, requested)
	}
	return t.search(ctx, res, func(a netip.Addr) error {
		return res.Reserve(ctx, t.index, a, t.owner)
	})
}

func (t turn) reserve(ctx context.Context, res Reservations, a netip.Addr) error {
	if !t.set.Usable(a) {
		return &GatewayError{a}
	}
	err := res.Reserve(ctx, t.index, a, t.owner)
	var inUse *InUseError
	if errors.As(err, &inUse) {
		return &InUseError{t.set, inUse.Holder}
	}
	return err
}

// search returns the first free address for which take does not return an *InUseError. If no
// address seems free, search counts the reservations and searches again if they leave a free
// address.
func (t turn) search(
	ctx context.Context, res Reservations, take func(netip.Addr) error,
) (netip.Addr, error) {
	for surveyed := false; ; surveyed = true {
		for a, err := range candidates(ctx, res, t.index, t.set) {
			if err == nil {
				err = take(a)
			}
			var inUse *InUseError
			if !errors.As(err, &inUse) {
				return a, err
			}
		}
		const oldest = 3
		used, leases, err := res.Survey(ctx, t.set, oldest)
		if err != nil {
			return netip.Addr{}, err
		}
		if surveyed || used >= t.set.Capacity() {
			return netip.Addr{}, &ExhaustedError{t.set, used, leases}
		}
	}
}

// Available returns an *ExhaustedError for the first set without a free address. It reserves
// nothing.
func Available(ctx context.Context, res Reservations, sets []RangeSet) error {
	for i, set := range sets {
		if _, err := (turn{index: i, set: set}).search(ctx, res, func(netip.Addr) error {
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// candidates yields the addresses that seem free, in search order. It ends after an error.
func candidates(
	ctx context.Context, res Reservations, index int, set RangeSet,
) iter.Seq2[netip.Addr, error] {
	return func(yield func(netip.Addr, error) bool) {
		last, err := res.Last(ctx, index)
		if err != nil {
			yield(netip.Addr{}, err)
			return
		}
		for _, part := range set.after(last) {
			for from := part.from; from.IsValid() && !part.to.Less(from); {
				a, err := res.NextFree(ctx, part.Range, from, part.to)
				if err == nil && !a.IsValid() {
					break
				}
				if (err != nil || part.usable(a)) && !yield(a, err) || err != nil {
					return
				}
				from = a.Next()
			}
		}
	}
}
