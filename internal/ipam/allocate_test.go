package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// book keeps reservations in memory. Its hints can be wrong.
type book struct {
	reserved map[netip.Addr]Lease
	last     map[int]netip.Addr
	stale    map[netip.Addr]bool // NextFree treats these as reserved until the next survey
	trusted  bool                // NextFree treats every address as free
	failing  error               // the error of Reserve once reserved is reached
	reserve  int
}

func (b *book) Held(_ context.Context, o Owner) ([]Lease, error) {
	var held []Lease
	for _, l := range b.reserved {
		if l.Owner == o {
			held = append(held, l)
		}
	}
	return held, nil
}

func (b *book) Last(_ context.Context, set int) (netip.Addr, error) { return b.last[set], nil }

func (b *book) NextFree(_ context.Context, _ Range, from, to netip.Addr) (netip.Addr, error) {
	for a := from; a.IsValid() && !to.Less(a); a = a.Next() {
		_, reserved := b.reserved[a]
		if b.trusted || !reserved && !b.stale[a] {
			return a, nil
		}
	}
	return netip.Addr{}, nil
}

func (b *book) Reserve(_ context.Context, set int, a netip.Addr, o Owner) error {
	if b.reserve--; b.reserve == 0 && b.failing != nil {
		return b.failing
	}
	if l, ok := b.reserved[a]; ok {
		return fmt.Errorf("reserve %s: %w", a, &InUseError{Holder: l})
	}
	b.reserved[a] = Lease{Addr: a, Owner: o}
	b.last[set] = a
	return nil
}

func (b *book) Survey(
	_ context.Context, set RangeSet, n int,
) (used uint64, oldest []Lease, err error) {
	b.stale = nil
	for a, l := range b.reserved {
		if set.Usable(a) {
			used++
			oldest = append(oldest, l)
		}
	}
	slices.SortFunc(oldest, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	return used, oldest[:min(n, len(oldest))], nil
}

func newBook(last string, reserved ...string) *book {
	b := &book{reserved: map[netip.Addr]Lease{}, last: map[int]netip.Addr{}}
	if last != "" {
		b.last[0] = netip.MustParseAddr(last)
	}
	for _, text := range reserved {
		a := netip.MustParseAddr(text)
		b.reserved[a] = Lease{Addr: a, Owner: Owner{Container: "other", IfName: "eth0"},
			Since: time.Unix(1700000000, 0), Age: 3 * time.Hour}
	}
	return b
}

// TestAllocateFromOneSet includes ranges with zero bytes at both ends of the arithmetic.
func TestAllocateFromOneSet(t *testing.T) {
	t.Parallel()
	const slash29 = `{"subnet":"10.0.0.0/29"}`
	twoRanges := []string{`{"subnet":"10.0.1.0/30"}`, `{"subnet":"10.0.2.0/30"}`}
	tests := []struct {
		name     string
		ranges   []string
		last     string
		reserved string
		want     string
	}{
		{"the first is the gateway", []string{slash29}, "", "", "10.0.0.2/29"},
		{"smallest subnet", []string{`{"subnet":"10.0.0.0/30"}`}, "", "", "10.0.0.2/30"},
		{"IPv6", []string{`{"subnet":"2001:db8:1::/64"}`}, "", "", "2001:db8:1::2/64"},
		{"reserved addresses are skipped", []string{slash29}, "", "10.0.0.2", "10.0.0.3/29"},
		{"after the last one", []string{slash29}, "10.0.0.5", "", "10.0.0.6/29"},
		{"wraps around at the end", []string{slash29}, "10.0.0.6", "", "10.0.0.2/29"},
		{"wraps around over reserved addresses", []string{slash29}, "10.0.0.4",
			"10.0.0.4 10.0.0.5 10.0.0.6", "10.0.0.2/29"},
		{"last outside the set", []string{slash29}, "10.0.0.128", "10.0.0.2", "10.0.0.3/29"},
		{"last in the other family", []string{slash29}, "2001:db8::1", "", "10.0.0.2/29"},
		{"only the last is free", []string{slash29}, "10.0.0.3",
			"10.0.0.2 10.0.0.4 10.0.0.5 10.0.0.6", "10.0.0.3/29"},
		{"a released address is not reserved next", []string{slash29}, "10.0.0.2", "",
			"10.0.0.3/29"},
		{"first range first", twoRanges, "", "", "10.0.1.2/30"},
		{"on to the next range", twoRanges, "10.0.1.2", "10.0.1.2", "10.0.2.2/30"},
		{"back to the first range", twoRanges, "10.0.2.2", "10.0.2.2", "10.0.1.2/30"},
		{"from the middle of the second range", []string{`{"subnet":"10.0.1.0/30"}`,
			`{"subnet":"10.0.2.0/29"}`}, "10.0.2.3", "", "10.0.2.4/29"},
		{"gateway in the middle", []string{`{"subnet":"10.0.0.0/29","gateway":"10.0.0.4"}`},
			"10.0.0.3", "", "10.0.0.5/29"},
		{"gateway at the end", []string{`{"subnet":"10.0.0.0/29","gateway":"10.0.0.6"}`},
			"10.0.0.5", "", "10.0.0.1/29"},
		{"last is the gateway", []string{slash29}, "10.0.0.1", "", "10.0.0.2/29"},
		{"first byte zero, IPv4", []string{`{"subnet":"0.0.0.0/23"}`}, "0.0.0.255", "",
			"0.0.1.0/23"},
		{"carry through 64 bits", []string{`{"subnet":"::/32"}`}, "::ffff:ffff:ffff:ffff", "",
			"0:0:0:1::/32"},
		{"first byte zero", []string{`{"subnet":"::/120"}`}, "::fe", "", "::ff/120"},
		{"the last address of IPv6",
			[]string{`{"subnet":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125"}`},
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/125"},
		{"wraps around at the last address of IPv6",
			[]string{`{"subnet":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125"}`},
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffa/125"},
		{"full", []string{slash29}, "10.0.0.3", "10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6",
			"failed to allocate for range 0: no IP addresses available in range set: " +
				"10.0.0.1-10.0.0.6"},
		{"both ranges full", twoRanges, "", "10.0.1.2 10.0.2.2",
			"failed to allocate for range 0: no IP addresses available in range set: " +
				"10.0.1.1-10.0.1.2,10.0.2.1-10.0.2.2"},
		{"only the gateway", []string{`{"subnet":"10.0.0.0/29","rangeEnd":"10.0.0.1"}`}, "", "",
			"failed to allocate for range 0: no IP addresses available in range set: " +
				"10.0.0.1-10.0.0.1"},
	}
	for _, test := range tests {
		for _, trusted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/hints %v", test.name, !trusted), func(t *testing.T) {
				t.Parallel()
				b := newBook(test.last, strings.Fields(test.reserved)...)
				b.trusted = trusted
				all, err := Allocate(t.Context(), b,
					Request{Owner: Owner{Container: "c1", IfName: "eth0"},
						Sets: []RangeSet{set(t, test.ranges...)}})
				got := ""
				if err != nil {
					got = err.Error()
				} else if got = all[0].Prefix().
					String(); b.reserved[all[0].Addr].Owner.Container != "c1" ||
					b.last[0] != all[0].Addr {
					t.Errorf("not reserved: %+v", b)
				}
				if got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			})
		}
	}
}

// TestAllocateRefuses proves R-42.
func TestAllocateRefuses(t *testing.T) {
	t.Parallel()
	v4 := set(t, `{"subnet":"10.0.0.0/29"}`, `{"subnet":"10.1.0.0/29"}`)
	v6 := set(t, `{"subnet":"2001:db8::/64"}`)
	owner := Owner{Container: "c1", IfName: "eth0"}
	tests := []struct{ name, own, requested, want string }{
		{"a second address", "10.1.0.3", "",
			"failed to allocate for range 0: 10.1.0.3 has been allocated to c1, duplicate " +
				"allocation is not allowed"},
		{"a second address that was requested", "10.1.0.3", "10.0.0.4",
			"failed to allocate for range 0: 10.1.0.3 has been allocated to c1, duplicate " +
				"allocation is not allowed"},
		{"the address that it holds", "10.0.0.4", "10.0.0.4",
			"failed to allocate for range 0: 10.0.0.4 has been allocated to c1, duplicate " +
				"allocation is not allowed"},
		{"a second address in a later set", "2001:db8::7", "",
			"failed to allocate for range 1: 2001:db8::7 has been allocated to c1, duplicate " +
				"allocation is not allowed"},
		{"the gateway", "", "10.0.0.1",
			"failed to allocate for range 0: requested ip 10.0.0.1 is subnet's gateway"},
		{"a reserved address", "", "10.0.0.2",
			"failed to allocate for range 0: requested IP address 10.0.0.2 is not available in " +
				"range set 10.0.0.1-10.0.0.6,10.1.0.1-10.1.0.6"},
		{"an address of no set", "", "10.0.0.7 10.9.0.1",
			"failed to allocate all requested IPs: 10.0.0.7 10.9.0.1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBook("", "10.0.0.2")
			if test.own != "" {
				a := netip.MustParseAddr(test.own)
				b.reserved[a] = Lease{Addr: a, Owner: owner}
			}
			var requested []netip.Addr
			for _, text := range strings.Fields(test.requested) {
				requested = append(requested, netip.MustParseAddr(text))
			}
			_, err := Allocate(t.Context(), b, Request{owner, []RangeSet{v4, v6}, requested})
			if err == nil || err.Error() != test.want {
				t.Fatalf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestAllocateOneOfEachSet(t *testing.T) {
	t.Parallel()
	b := newBook("")
	sets := []RangeSet{set(t, `{"subnet":"10.1.2.0/24"}`),
		set(t, `{"subnet":"2001:db8:1::/64","gateway":"fe80::1"}`)}
	all, err := Allocate(t.Context(), b,
		Request{Owner{Container: "c1", IfName: "eth0"},
			sets, []netip.Addr{netip.MustParseAddr("2001:db8:1::999")}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range all {
		got = append(got, a.Prefix().String()+" via "+a.Range.Gateway.String())
	}
	if diff := cmp.Diff([]string{"10.1.2.2/24 via 10.1.2.1", "2001:db8:1::999/64 via fe80::1"},
		got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStaleHintsDoNotExhaust: an address that a hint reports as reserved is found before the set
// counts as exhausted.
func TestStaleHintsDoNotExhaust(t *testing.T) {
	t.Parallel()
	sets := []RangeSet{set(t, `{"subnet":"10.0.0.0/30","gateway":"10.9.0.1"}`)}
	b := newBook("", "10.0.0.1")
	b.stale = map[netip.Addr]bool{netip.MustParseAddr("10.0.0.2"): true}
	if err := Available(t.Context(), b, sets); err != nil {
		t.Errorf("available: %v", err)
	}
	b.stale = map[netip.Addr]bool{netip.MustParseAddr("10.0.0.2"): true}
	all, err := Allocate(t.Context(), b, Request{Owner: Owner{Container: "c1", IfName: "eth0"},
		Sets: sets})
	if err != nil || all[0].Addr != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestAvailable(t *testing.T) {
	t.Parallel()
	sets := []RangeSet{set(t, `{"subnet":"2001:db8::/64"}`), set(t, `{"subnet":"10.0.0.0/30"}`)}
	b := newBook("")
	if err := Available(t.Context(), b, sets); err != nil || len(b.reserved) > 0 {
		t.Errorf("with a free address: %v, reserved %v", err, b.reserved)
	}
	b = newBook("", "10.0.0.2")
	var exhausted *ExhaustedError
	if err := Available(t.Context(), b, sets); !errors.As(err, &exhausted) || exhausted.Used != 1 ||
		!exhausted.Set.Is4() {
		t.Errorf("without a free address: %v", err)
	}
}

func TestErrorsOfTheStoreArePassedOn(t *testing.T) {
	t.Parallel()
	b := newBook("")
	b.failing, b.reserve = errors.New("disk on fire"), 2
	sets := []RangeSet{set(t, `{"subnet":"10.0.0.0/30"}`), set(t, `{"subnet":"10.1.0.0/30"}`)}
	_, err := Allocate(t.Context(), b, Request{Owner: Owner{Container: "c1", IfName: "eth0"},
		Sets: sets})
	if !errors.Is(err, b.failing) || len(b.reserved) != 1 {
		t.Errorf("got %v, reserved %v", err, b.reserved)
	}
}

// FuzzAllocate compares the chosen address with a choice from a list of all addresses.
func FuzzAllocate(f *testing.F) {
	f.Add(uint8(6), uint8(0), uint8(3), uint8(1), uint64(0b110100), uint64(0), uint8(0))
	f.Add(uint8(1), uint8(6), uint8(9), uint8(4), uint64(0xffff), uint64(1), uint8(1))
	f.Add(uint8(7), uint8(9), uint8(0), uint8(15), uint64(0xfffff), uint64(0xfff), uint8(2))
	f.Fuzz(func(t *testing.T, firstSize, secondSize, gateway, last uint8, reserved, stale uint64,
		family uint8) {
		set := fuzzSet(firstSize, secondSize, gateway, family)
		b := newBook("")
		b.stale = map[netip.Addr]bool{}
		var all []netip.Addr
		for _, r := range set {
			for a := r.Start; a.IsValid() && r.Contains(a); a = a.Next() {
				if reserved>>len(all)&1 == 1 {
					b.reserved[a] = Lease{Addr: a}
				}
				b.stale[a] = stale>>len(all)&1 == 1
				all = append(all, a)
			}
		}
		if int(last) < len(all) {
			b.last[0] = all[last]
			all = append(slices.Clone(all[last+1:]), all[:last+1]...)
		}
		want := firstUsable(set, all, func(a netip.Addr) bool {
			_, reserved := b.reserved[a]
			return reserved || b.stale[a]
		})
		if !want.IsValid() {
			want = firstUsable(set, all, func(a netip.Addr) bool {
				_, reserved := b.reserved[a]
				return reserved
			})
		}
		got, err := Allocate(t.Context(), b,
			Request{Owner: Owner{Container: "c1", IfName: "eth0"}, Sets: []RangeSet{set}})
		var exhausted *ExhaustedError
		switch {
		case !want.IsValid() && !errors.As(err, &exhausted):
			t.Errorf("%s without a free address: got %v, %v", set, got, err)
		case want.IsValid() && (err != nil || got[0].Addr != want):
			t.Errorf("%s, last %s: got %v, %v, want %s", set, b.last[0], got, err, want)
		}
	})
}

// fuzzSet returns a set of two ranges of up to 16 addresses, near the limits of the arithmetic.
func fuzzSet(firstSize, secondSize, gateway, family uint8) RangeSet {
	starts := [][]string{{"0.0.0.250", "10.0.255.250"},
		{"::fffa", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0"}}[family%2]
	var set RangeSet
	for i, size := range []uint8{firstSize % 16, secondSize % 16} {
		r := Range{Start: netip.MustParseAddr(starts[i])}
		r.End = r.Start
		for range size {
			r.End = r.End.Next()
		}
		r.Gateway = r.Start
		for range gateway % 20 {
			r.Gateway = r.Gateway.Next()
		}
		set = append(set, r)
	}
	return set
}

func firstUsable(set RangeSet, order []netip.Addr, reserved func(netip.Addr) bool) netip.Addr {
	for _, a := range order {
		if set.Usable(a) && !reserved(a) {
			return a
		}
	}
	return netip.Addr{}
}
