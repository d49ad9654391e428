package ipam

import (
	"math"
	"testing"
)

func set(t testing.TB, ranges ...string) RangeSet {
	t.Helper()
	var s RangeSet
	for _, text := range ranges {
		s = append(s, canonical(t, text))
	}
	return s
}

func TestCanonicalizeSets(t *testing.T) {
	t.Parallel()
	const (
		v4  = `{"subnet":"10.1.0.0/24"}`
		v4b = `{"subnet":"10.1.0.0/25"}`
		v6  = `{"subnet":"2001:db8::/64"}`
		bad = `{"subnet":"10.1.0.1/24"}`
	)
	tests := []struct {
		name string
		sets [][]string
		want string
	}{
		{"good", [][]string{{v4, `{"subnet":"10.2.0.0/24"}`}, {v6}}, ""},
		{"parts of one subnet",
			[][]string{{`{"subnet":"10.1.0.0/24","rangeEnd":"10.1.0.9"}`,
				`{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.10"}`}}, ""},
		{"empty", [][]string{{v4}, {}}, "invalid range set 1: empty range set"},
		{"families", [][]string{{v4, v6}}, "invalid range set 0: mixed address families"},
		{"overlap inside", [][]string{{v6}, {v4, v4b}},
			"invalid range set 1: subnets 10.1.0.1-10.1.0.254 and 10.1.0.1-10.1.0.126 overlap"},
		{"bad range", [][]string{{bad}},
			"invalid range set 0: Network has host bits set. For a subnet mask of length 24 the " +
				"network address is 10.1.0.0"},
		{"overlap between", [][]string{{v6}, {v4}, {v4b}}, "range set 1 overlaps with 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sets := make([]RangeSet, len(test.sets))
			for i, ranges := range test.sets {
				for _, text := range ranges {
					sets[i] = append(sets[i], parseRange(t, text))
				}
			}
			err := CanonicalizeSets(sets)
			if err == nil {
				err = CheckOverlap(sets)
			}
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestOnePerFamily(t *testing.T) {
	t.Parallel()
	a, b := set(t, `{"subnet":"10.1.0.0/24"}`), set(t, `{"subnet":"10.2.0.0/24"}`)
	c, d := set(t, `{"subnet":"2001:db8:1::/64"}`), set(t, `{"subnet":"2001:db8:2::/64"}`)
	tests := []struct {
		name string
		sets []RangeSet
		want bool
	}{
		{"both families", []RangeSet{a, c}, true},
		{"two of IPv4", []RangeSet{a, c, b}, false},
		{"two of IPv6", []RangeSet{a, c, d}, false},
	}
	for _, test := range tests {
		if got := OnePerFamily(test.sets); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		set  RangeSet
		want uint64
	}{
		{"without the gateway", set(t, `{"subnet":"10.1.0.0/29"}`), 5},
		{"gateway outside", set(t, `{"subnet":"10.1.0.0/29","gateway":"10.9.0.1"}`), 6},
		{"ranges add up", set(t, `{"subnet":"10.1.0.0/29"}`, `{"subnet":"10.2.0.0/30"}`), 6},
		{"more than can be counted",
			set(t, `{"subnet":"2001:db8:1::/48"}`, `{"subnet":"2001:db8:2::/48"}`), math.MaxUint64},
	}
	for _, test := range tests {
		if got := test.set.Capacity(); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}
