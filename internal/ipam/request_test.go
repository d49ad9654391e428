package ipam

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRequested(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"10.1.2.3", "10.1.2.3"},
		{"10.1.2.3/24", "10.1.2.3"},
		{"2001:DB8::999", "2001:db8::999"},
		{"2001:db8::999/48", "2001:db8::999"},
		{"::ffff:10.1.2.3", "10.1.2.3"},
		{"", "cannot understand ip: IP <nil> not v4 nor v6"},
		{"10.1.2.300", "invalid IP address 10.1.2.300"},
		{"10.1.2.3/33", "invalid IP address 10.1.2.3/33"},
		{"10.1.2.3/", "invalid IP address 10.1.2.3/"},
		{"fe80::1%eth0", "invalid IP address fe80::1%eth0"},
	}
	for _, test := range tests {
		a, err := ParseRequested(test.in)
		got := a.String()
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%q: got %s, want %s", test.in, got, test.want)
		}
	}
}

// TestAssign tests requested addresses.
func TestAssign(t *testing.T) {
	t.Parallel()
	sets := []RangeSet{
		set(t, `{"subnet":"10.1.2.0/24"}`, `{"subnet":"10.1.3.0/24"}`),
		set(t, `{"subnet":"2001:db8:1::/48"}`),
		set(t, `{"subnet":"10.4.0.0/24"}`),
	}
	tests := []struct {
		name      string
		requested []string
		want      []string
		err       string
	}{
		{"none", nil, []string{"", "", ""}, ""},
		{"one", []string{"10.1.2.88"}, []string{"10.1.2.88", "", ""}, ""},
		{"second range of a set", []string{"10.1.3.88"}, []string{"10.1.3.88", "", ""}, ""},
		{"one per set, in any order", []string{"2001:db8:1::999", "10.4.0.7", "10.1.2.88"},
			[]string{"10.1.2.88", "2001:db8:1::999", "10.4.0.7"}, ""},
		{"duplicates count once", []string{"10.4.0.7", "10.4.0.7"}, []string{"", "", "10.4.0.7"},
			""},
		{"two of one set: the first one is used", []string{"10.1.3.88", "10.1.2.88"}, nil,
			"failed to allocate all requested IPs: 10.1.2.88"},
		{"in no set", []string{"10.9.9.9", "10.1.2.88", "fd00::1"}, nil,
			"failed to allocate all requested IPs: 10.9.9.9 fd00::1"},
		{"the broadcast address is in no set", []string{"10.4.0.255"}, nil,
			"failed to allocate all requested IPs: 10.4.0.255"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var requested []netip.Addr
			for _, text := range test.requested {
				requested = append(requested, netip.MustParseAddr(text))
			}
			assigned, err := assign(sets, requested)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != test.err {
				t.Errorf("error %q, want %q", text, test.err)
			}
			var got []string
			for _, a := range assigned {
				got = append(got, map[bool]string{true: a.String()}[a.IsValid()])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
