package ipam

import (
	"encoding/json"
	"math"
	"net/netip"
	"testing"
)

// parseRange decodes the JSON form.
func parseRange(t testing.TB, text string) Range {
	t.Helper()
	var r Range
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCanonicalize tests the defaults of ranges and invalid ranges.
func TestCanonicalize(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"IPv4 goes from network+1 to broadcast-1", `{"subnet":"192.0.2.0/24"}`,
			"192.0.2.1-192.0.2.254 gw 192.0.2.1"},
		{"IPv4 /25", `{"subnet":"192.0.2.0/25"}`, "192.0.2.1-192.0.2.126 gw 192.0.2.1"},
		{"IPv4 /30 is the smallest", `{"subnet":"192.0.2.4/30"}`,
			"192.0.2.5-192.0.2.6 gw 192.0.2.5"},
		{"IPv6 goes to the last address", `{"subnet":"2001:DB8:1::/64"}`,
			"2001:db8:1::1-2001:db8:1:0:ffff:ffff:ffff:ffff gw 2001:db8:1::1"},
		{"IPv6 /126 is the smallest", `{"subnet":"2001:db8::/126"}`,
			"2001:db8::1-2001:db8::3 gw 2001:db8::1"},
		{"all of IPv6", `{"subnet":"::/0"}`, "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff gw ::1"},
		{"all of IPv4", `{"subnet":"0.0.0.0/0"}`, "0.0.0.1-255.255.255.254 gw 0.0.0.1"},
		{"all fields set",
			`{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.40","rangeEnd":"192.0.2.50","gateway":"192.0.2.254"}`, "192.0.2.40-192.0.2.50 gw 192.0.2.254"},
		{"IPv4 addresses written as IPv6",
			`{"subnet":"192.0.2.0/24","rangeStart":"::ffff:192.0.2.40","gateway":"::ffff:192.0.2.3"}`, "192.0.2.40-192.0.2.254 gw 192.0.2.3"},
		{"a gateway outside", `{"subnet":"192.0.2.0/24","gateway":"198.51.100.1"}`,
			"192.0.2.1-192.0.2.254 gw 198.51.100.1"},
		{"one address", `{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.7","rangeEnd":"192.0.2.7"}`,
			"192.0.2.7-192.0.2.7 gw 192.0.2.1"},
		{"explicit network and broadcast address",
			`{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.0","rangeEnd":"192.0.2.255"}`,
			"192.0.2.0-192.0.2.255 gw 192.0.2.1"},
		{"empty strings are absent",
			`{"subnet":"192.0.2.0/24","rangeStart":"","rangeEnd":"","gateway":""}`,
			"192.0.2.1-192.0.2.254 gw 192.0.2.1"},

		{"no subnet", `{"rangeStart":"192.0.2.1"}`, "range without subnet"},
		{"IPv4 subnet written as IPv6", `{"subnet":"::ffff:192.0.2.0/120"}`,
			"network ::ffff:192.0.2.0/120 is IPv4 written as IPv6"},
		{"host bits /24", `{"subnet":"192.0.2.12/24"}`,
			"Network has host bits set. For a subnet mask of length 24 the network address is " +
				"192.0.2.0"},
		{"host bits /23", `{"subnet":"192.0.3.0/23"}`,
			"Network has host bits set. For a subnet mask of length 23 the network address is " +
				"192.0.2.0"},
		{"host bits /64", `{"subnet":"2001:db8:1::1/64"}`,
			"Network has host bits set. For a subnet mask of length 64 the network address is " +
				"2001:db8:1::"},
		{"host bits /63", `{"subnet":"2001:db8:1:1::/63"}`,
			"Network has host bits set. For a subnet mask of length 63 the network address is " +
				"2001:db8:1::"},
		{"/31", `{"subnet":"192.0.2.0/31"}`, "Network 192.0.2.0/31 too small to allocate from"},
		{"/32", `{"subnet":"192.0.2.0/32"}`, "Network 192.0.2.0/32 too small to allocate from"},
		{"/127", `{"subnet":"2001:db8::/127"}`,
			"Network 2001:db8::/127 too small to allocate from"},
		{"start outside", `{"subnet":"192.0.2.0/24","rangeStart":"192.0.3.1"}`,
			"RangeStart 192.0.3.1 not in network 192.0.2.0/24"},
		{"start of the other family", `{"subnet":"192.0.2.0/24","rangeStart":"2001:db8::1"}`,
			"RangeStart 2001:db8::1 not in network 192.0.2.0/24"},
		{"end outside", `{"subnet":"192.0.2.0/24","rangeEnd":"192.0.3.1"}`,
			"RangeEnd 192.0.3.1 not in network 192.0.2.0/24"},
		{"end of the other family", `{"subnet":"192.0.2.0/24","rangeEnd":"2001:db8::1"}`,
			"RangeEnd 2001:db8::1 not in network 192.0.2.0/24"},
		{"start behind end",
			`{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.9","rangeEnd":"192.0.2.3"}`,
			"RangeStart 192.0.2.9 not in network 192.0.2.0/24"},
		{"start behind the default end", `{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.255"}`,
			"RangeStart 192.0.2.255 not in network 192.0.2.0/24"},
		{"end before the default start", `{"subnet":"192.0.2.0/24","rangeEnd":"192.0.2.0"}`,
			"RangeEnd 192.0.2.0 not in network 192.0.2.0/24"},
		{"zone", `{"subnet":"fe80::/64","rangeStart":"fe80::5%eth0"}`,
			"address fe80::5%eth0 has a zone"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := parseRange(t, test.in)
			before := r
			err := r.Canonicalize()
			got := r.String() + " gw " + r.Gateway.String()
			if err != nil {
				got = err.Error()
				if r != before {
					t.Errorf("a refused range was changed: %+v, before %+v", r, before)
				}
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestRangeJSONWithoutDefaults(t *testing.T) {
	t.Parallel()
	const text = `{"subnet":"192.0.2.0/24","rangeEnd":"192.0.2.9"}`
	b, err := json.Marshal(parseRange(t, text))
	if err != nil || string(b) != text {
		t.Errorf("got %s, %v; want %s", b, err, text)
	}
}

// TestContains tests addresses at the limits of a range.
func TestContains(t *testing.T) {
	t.Parallel()
	v4 := canonical(t,
		`{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.40","rangeEnd":"192.0.2.50"}`)
	v6 := canonical(t,
		`{"subnet":"2001:db8:1::/64","rangeStart":"2001:db8:1::40","rangeEnd":"2001:db8:1::50"}`)
	tests := []struct {
		addr string
		in   Range
		want bool
	}{
		{"192.0.2.39", v4, false},
		{"192.0.2.40", v4, true},
		{"192.0.2.50", v4, true},
		{"192.0.2.51", v4, false},
		{"2001:db8:1::45", v4, false},
		{"2001:db8:1::3f", v6, false},
		{"2001:db8:1::40", v6, true},
		{"2001:db8:1::50", v6, true},
		{"2001:db8:1::51", v6, false},
		{"192.0.2.45", v6, false},
	}
	for _, test := range tests {
		if got := test.in.Contains(netip.MustParseAddr(test.addr)); got != test.want {
			t.Errorf("%s in %s: got %v", test.addr, test.in, got)
		}
	}
	if v4.Contains(netip.Addr{}) || v6.Contains(netip.Addr{}) {
		t.Error("the zero address lies in a range")
	}
}

func canonical(t testing.TB, text string) Range {
	t.Helper()
	r := parseRange(t, text)
	if err := r.Canonicalize(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOverlaps tests pairs of ranges.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, a, b string
		want       bool
	}{
		{"adjacent", `{"subnet":"192.0.2.0/24"}`, `{"subnet":"192.0.3.0/24"}`, false},
		{"different families", `{"subnet":"192.0.2.0/24"}`, `{"subnet":"2001:db8:1::/64"}`, false},
		{"identical", `{"subnet":"192.0.2.0/24"}`, `{"subnet":"192.0.2.0/24"}`, true},
		{"containing", `{"subnet":"192.0.0.0/20"}`, `{"subnet":"192.0.2.0/24"}`, true},
		{"split subnet", `{"subnet":"192.0.2.0/24","rangeEnd":"192.0.2.128"}`,
			`{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.129"}`, false},
		{"touching at one address", `{"subnet":"192.0.2.0/24","rangeEnd":"192.0.2.128"}`,
			`{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.128"}`, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a, b := canonical(t, test.a), canonical(t, test.b)
			if a.Overlaps(b) != test.want || b.Overlaps(a) != test.want {
				t.Errorf("%s and %s: got %v, reversed %v", a, b, a.Overlaps(b), b.Overlaps(a))
			}
		})
	}
}

// TestOffset: each address has its offset from the start, in both directions.
func TestOffset(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, start, end string
		size             uint64
		offset           uint64
		addr             string
	}{
		{"IPv4", "10.0.0.250", "10.0.1.5", 12, 8, "10.0.1.2"},
		{"first byte zero", "0.0.0.254", "0.0.1.3", 6, 3, "0.0.1.1"},
		{"first byte zero, IPv6", "::ffff", "::1:5", 7, 2, "::1:1"},
		{"carry into the upper half", "2001:db8::ffff:ffff:ffff:fffe", "2001:db8:0:1::3", 6, 2,
			"2001:db8:0:1::"},
		{"the last address of IPv6", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 16, 15,
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"more than can be counted", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
			math.MaxUint64, 1 << 63, "::8000:0:0:0"},
		{"one more than can be counted", "2001:db8::", "2001:db8::ffff:ffff:ffff:ffff",
			math.MaxUint64, 5, "2001:db8::5"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := Range{Start: netip.MustParseAddr(test.start), End: netip.MustParseAddr(test.end)}
			if r.Size() != test.size {
				t.Errorf("size: got %d, want %d", r.Size(), test.size)
			}
			want := netip.MustParseAddr(test.addr)
			if got, ok := r.At(test.offset); !ok || got != want {
				t.Errorf("at %d: got %s, %v; want %s", test.offset, got, ok, want)
			}
			if got := r.Offset(want); got != test.offset {
				t.Errorf("offset of %s: got %d, want %d", want, got, test.offset)
			}
			if a, ok := r.At(test.size); ok && test.size < math.MaxUint64 {
				t.Errorf("after the end: got %s", a)
			}
		})
	}
}
