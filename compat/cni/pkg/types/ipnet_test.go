package types_test

import (
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestParseCIDR(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, ip, mask string }{
		{"IPv4 keeps its host bits", "10.0.0.5/24", "10.0.0.5", "ffffff00"},
		{"IPv6 keeps its host bits", "fd00::5/64", "fd00::5", "ffffffffffffffff0000000000000000"},
		{"network", "10.0.0.0/8", "10.0.0.0", "ff000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, err := types.ParseCIDR(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if n.IP.String() != tt.ip || n.Mask.String() != tt.mask {
				t.Errorf("%v/%v, want %s/%s", n.IP, n.Mask, tt.ip, tt.mask)
			}
		})
	}
	for _, in := range []string{"", "10.0.0.1", "10.0.0.1/33", "fd00::/129", "x/8"} {
		_, err := types.ParseCIDR(in)
		var parse *net.ParseError
		if !errors.As(err, &parse) || err.Error() != "invalid CIDR address: "+in {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestIPNetJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"10.0.0.5/24"`, `"fd00::5/64"`, `"0.0.0.0/0"`, `"::/0"`} {
		var n types.IPNet
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if b, err := json.Marshal(n); err != nil || string(b) != text {
			t.Errorf("%s becomes %s, %v", text, b, err)
		}
	}
	for text, want := range map[string]string{
		`3`:             "json: cannot unmarshal number into Go value of type string",
		`"10.0.0.5/33"`: "invalid CIDR address: 10.0.0.5/33",
		`""`:            "invalid CIDR address: ",
	} {
		n := types.IPNet{IP: net.IPv4(1, 1, 1, 1)}
		if err := json.Unmarshal([]byte(text), &n); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if n.IP.String() != "1.1.1.1" {
			t.Errorf("%s: changed to %v", text, n)
		}
	}
	if b, err := json.Marshal(types.IPNet{}); err != nil || string(b) != `"\u003cnil\u003e"` {
		t.Errorf("unset network: %s, %v", b, err)
	}
}
