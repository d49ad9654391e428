package ipam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
)

// Range is a range of addresses in one subnet. The zero value of every field except Subnet stands
// for a default, which [Range.Canonicalize] sets; all other methods require a canonical range. The
// JSON form is the range object of host-local configurations.
type Range struct {
	// Subnet is the network, without host bits, at most /30 or /126. The addresses have its prefix
	// length.
	Subnet netip.Prefix `json:"subnet" required:"true"`
	// Start is the first address that can be allocated. The default is the network address plus
	// one.
	Start netip.Addr `json:"rangeStart,omitzero"`
	// End is the last address that can be allocated. The default is the last address of the subnet,
	// for IPv4 the address before the broadcast address.
	End netip.Addr `json:"rangeEnd,omitzero"`
	// Gateway is the address of the router. It is never allocated and can lie outside the subnet.
	// The default is the network address plus one.
	Gateway netip.Addr `json:"gateway,omitzero"`
}

// Canonicalize checks the range and sets the defaults. On error the range is unchanged.
func (r *Range) Canonicalize() error {
	if err := r.checkSubnet(); err != nil {
		return err
	}
	for _, a := range []netip.Addr{r.Start, r.End, r.Gateway} {
		if a.Zone() != "" {
			return fmt.Errorf("address %s has a zone", a)
		}
	}
	first := r.Subnet.Addr().Next()
	start := orDefault(r.Start, first)
	end := orDefault(r.End, lastUsable(r.Subnet))
	if r.Start.IsValid() && (!r.Subnet.Contains(start) || end.Less(start)) {
		return fmt.Errorf("RangeStart %s not in network %s", start, r.Subnet)
	}
	if r.End.IsValid() && (!r.Subnet.Contains(end) || end.Less(start)) {
		return fmt.Errorf("RangeEnd %s not in network %s", end, r.Subnet)
	}
	r.Start, r.End, r.Gateway = start, end, orDefault(r.Gateway, first)
	return nil
}

func (r *Range) checkSubnet() error {
	switch subnet := r.Subnet; {
	case !subnet.IsValid():
		return errors.New("range without subnet")
	case subnet.Addr().Is4In6():
		return fmt.Errorf("network %s is IPv4 written as IPv6", subnet)
	case subnet.Addr().BitLen()-subnet.Bits() < 2:
		//lint:ignore ST1005 users search for the text of the upstream plugin
		return fmt.Errorf("Network %s too small to allocate from", subnet)
	case subnet.Masked() != subnet:
		//lint:ignore ST1005 users search for the text of the upstream plugin
		return fmt.Errorf(
			"Network has host bits set. For a subnet mask of length %d the network address is %s",
			subnet.Bits(), subnet.Masked().Addr())
	}
	return nil
}

func orDefault(a, otherwise netip.Addr) netip.Addr {
	if a.IsValid() {
		return a.Unmap()
	}
	return otherwise
}

// lastUsable returns the last address of p, or for IPv4 the one before it.
func lastUsable(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// Contains reports whether a lies between Start and End, both included.
func (r Range) Contains(a netip.Addr) bool { return !a.Less(r.Start) && !r.End.Less(a) }

// Overlaps reports whether an address lies in both ranges.
func (r Range) Overlaps(o Range) bool { return !o.End.Less(r.Start) && !r.End.Less(o.Start) }

// String returns "start-end".
func (r Range) String() string { return r.Start.String() + "-" + r.End.String() }

// Size returns the number of addresses from Start to End, at most math.MaxUint64.
func (r Range) Size() uint64 {
	span := r.Offset(r.End)
	return span + min(1, math.MaxUint64-span)
}

// Offset returns the number of addresses in the range before a, at most math.MaxUint64.
func (r Range) Offset(a netip.Addr) uint64 {
	from, to := r.Start.As16(), a.As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(to[8:]), binary.BigEndian.Uint64(from[8:]), 0)
	if high, _ := bits.Sub64(binary.BigEndian.Uint64(to[:8]), binary.BigEndian.Uint64(from[:8]),
		borrow); high > 0 {
		return math.MaxUint64
	}
	return low
}

// At returns the address at an offset from Start. ok is false if it lies after End.
func (r Range) At(offset uint64) (a netip.Addr, ok bool) {
	if r.Size()-1 < offset {
		return netip.Addr{}, false
	}
	b := r.Start.As16()
	low, carry := bits.Add64(binary.BigEndian.Uint64(b[8:]), offset, 0)
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+carry)
	binary.BigEndian.PutUint64(b[8:], low)
	if a = netip.AddrFrom16(b); r.Start.Is4() {
		a = a.Unmap()
	}
	return a, true
}

// usable reports whether a can be allocated.
func (r Range) usable(a netip.Addr) bool { return r.Contains(a) && a != r.Gateway }

// capacity returns the number of addresses that can be allocated.
func (r Range) capacity() uint64 {
	if r.Contains(r.Gateway) {
		return r.Size() - 1
	}
	return r.Size()
}
