package ipam

import (
	"encoding/json"
	"math"
	"net/netip"
	"testing"
)

// FuzzRangeSets decodes range sets as a configuration contains them. Accepted sets have ranges of
// one family without overlap, within their subnets, and offsets that map back to the same address.
func FuzzRangeSets(f *testing.F) {
	f.Add([]byte(
		`[[{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/64","rangeStart":"2001:db8:1::5"}]]`))
	f.Add([]byte(
		`[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.3.0/29","rangeEnd":"10.1.3.4","gateway":"10.9.9.9"}]]`))
	f.Add([]byte(`[[{"Subnet":"0.0.0.0/0","RangeStart":"0.0.0.0"}],[{"subnet":"::/0"}],[]]`))
	f.Add([]byte(
		`[[{"subnet":"::ffff:10.0.0.0/104"}],[{"subnet":"10.0.0.0/8","rangeStart":"::ffff:10.0.0.7"}],null,[null]]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var sets []RangeSet
		if json.Unmarshal(text, &sets) != nil || CanonicalizeSets(sets) != nil ||
			CheckOverlap(sets) != nil {
			return
		}
		var all []Range
		for _, set := range sets {
			if set.Capacity() > set.Size() {
				t.Errorf("%s: capacity %d, size %d", set, set.Capacity(), set.Size())
			}
			for _, r := range set {
				if r.Start.Is4() != set.Is4() || !r.Subnet.Contains(r.Start) ||
					!r.Subnet.Contains(r.End) || r.End.Less(r.Start) {
					t.Errorf("%s: range %s of %s", set, r, r.Subnet)
				}
				wantArithmetic(t, r)
			}
			all = append(all, set...)
		}
		for i, r := range all {
			for _, other := range all[:i] {
				if r.Contains(other.Start) || other.Contains(r.Start) {
					t.Errorf("%s and %s overlap", r, other)
				}
			}
		}
		again, err := json.Marshal(sets)
		var same []RangeSet
		if err != nil || json.Unmarshal(again, &same) != nil || CanonicalizeSets(same) != nil {
			t.Errorf("%s changes when decoded again from %s: %v", text, again, err)
		}
	})
}

func wantArithmetic(t *testing.T, r Range) {
	t.Helper()
	if r.Size() == math.MaxUint64 {
		return
	}
	for _, offset := range []uint64{0, r.Size() / 2, r.Size() - 1} {
		if a, ok := r.At(offset); !ok || !r.Contains(a) || r.Offset(a) != offset {
			t.Errorf("%s: at %d is %s (%v), whose offset is %d", r, offset, a, ok, r.Offset(a))
		}
	}
	if last, _ := r.At(r.Size() - 1); last != r.End {
		t.Errorf("%s: the last address is %s", r, last)
	}
}

// FuzzParseRequested: an accepted text is one plain address, and is accepted again with and without
// a prefix.
func FuzzParseRequested(f *testing.F) {
	for _, seed := range []string{"10.1.2.3", "10.1.2.3/24", "2001:db8::999/48", "::ffff:10.0.0.1",
		"fe80::1%eth0", "", "/", "10.1.2.3/33"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseRequested(text)
		if err != nil {
			return
		}
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			t.Errorf("%q: %#v", text, a)
		}
		for _, again := range []string{a.String(), netip.PrefixFrom(a, a.BitLen()).String()} {
			if b, err := ParseRequested(again); b != a || err != nil {
				t.Errorf("%q is %s, but %q is %s: %v", text, a, again, b, err)
			}
		}
	})
}
