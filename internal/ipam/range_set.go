package ipam

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// RangeSet is a pool of ranges of one family that provides one address.
type RangeSet []Range

// CanonicalizeSets checks every set separately and sets the defaults of its ranges.
func CanonicalizeSets(sets []RangeSet) error {
	for i, set := range sets {
		if err := set.Canonicalize(); err != nil {
			return fmt.Errorf("invalid range set %d: %w", i, err)
		}
	}
	return nil
}

// Canonicalize checks the set and sets the defaults of its ranges.
func (s RangeSet) Canonicalize() error {
	if len(s) == 0 {
		return errors.New("empty range set")
	}
	for i := range s {
		if err := s[i].Canonicalize(); err != nil {
			return err
		}
		if s[i].Start.Is4() != s[0].Start.Is4() {
			return errors.New("mixed address families")
		}
		for _, other := range s[:i] {
			if other.Overlaps(s[i]) {
				return fmt.Errorf("subnets %s and %s overlap", other, s[i])
			}
		}
	}
	return nil
}

// CheckOverlap returns an error if two canonical sets share an address.
func CheckOverlap(sets []RangeSet) error {
	for i, set := range sets {
		for j, other := range sets[i+1:] {
			if _, _, shared := set.Overlap(other); shared {
				return fmt.Errorf("range set %d overlaps with %d", i, i+1+j)
			}
		}
	}
	return nil
}

// DistinctFamilies reports whether there is at most one address per family, which is the limit of
// results before version 0.3.0.
func DistinctFamilies(ips []cni.IP) bool {
	seen := map[bool]bool{}
	for _, ip := range ips {
		is4 := ip.Address.Addr().Is4()
		if seen[is4] {
			return false
		}
		seen[is4] = true
	}
	return true
}

// OnePerFamily reports whether canonical sets provide at most one address per family, which is the
// limit of results before version 0.3.0.
func OnePerFamily(sets []RangeSet) bool {
	families := map[bool]int{}
	for _, set := range sets {
		families[set.Is4()]++
	}
	return families[true] <= 1 && families[false] <= 1
}

// Is4 reports whether the set holds IPv4 addresses.
func (s RangeSet) Is4() bool { return s[0].Start.Is4() }

// Overlap returns a range of each set that share an address. ok is false if the sets share none.
func (s RangeSet) Overlap(o RangeSet) (mine, other Range, ok bool) {
	for _, mine := range s {
		for _, other := range o {
			if mine.Overlaps(other) {
				return mine, other, true
			}
		}
	}
	return Range{}, Range{}, false
}

// Contains reports whether a lies in one of the ranges.
func (s RangeSet) Contains(a netip.Addr) bool {
	_, ok := s.Range(a)
	return ok
}

// Range returns the range that contains a.
func (s RangeSet) Range(a netip.Addr) (r Range, ok bool) {
	for _, r := range s {
		if r.Contains(a) {
			return r, true
		}
	}
	return Range{}, false
}

// Usable reports whether a can be allocated: it lies in a range and is not the gateway of that
// range.
func (s RangeSet) Usable(a netip.Addr) bool {
	r, ok := s.Range(a)
	return ok && r.usable(a)
}

// Size returns the number of addresses in the ranges, at most math.MaxUint64.
func (s RangeSet) Size() uint64 { return s.sum(Range.Size) }

// Capacity returns the number of addresses that can be allocated, at most math.MaxUint64.
func (s RangeSet) Capacity() uint64 { return s.sum(Range.capacity) }

func (s RangeSet) sum(of func(Range) uint64) uint64 {
	var sum uint64
	for _, r := range s {
		sum += min(of(r), math.MaxUint64-sum)
	}
	return sum
}

// String returns the comma-separated list of ranges.
func (s RangeSet) String() string {
	return join(s, ",")
}

func join[T fmt.Stringer](list []T, separator string) string {
	texts := make([]string, len(list))
	for i, element := range list {
		texts[i] = element.String()
	}
	return strings.Join(texts, separator)
}

// span is a part of one range, inclusive at both ends.
type span struct {
	Range
	from, to netip.Addr
}

// after returns the whole set in search order: it begins after last, continues with the next
// ranges, wraps around, and ends with last. If last does not lie in the set, the search begins with
// the first range.
func (s RangeSet) after(last netip.Addr) []span {
	first := 0
	for i, r := range s {
		if r.Contains(last) {
			first = i
		}
	}
	var order []span
	for i := range s {
		r := s[(first+i)%len(s)]
		order = append(order, span{r, r.Start, r.End})
	}
	if r := s[first]; r.Contains(last) {
		order[0].from = last.Next()
		order = append(order, span{r, r.Start, last})
	}
	return order
}
