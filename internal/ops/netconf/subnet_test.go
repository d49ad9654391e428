package netconf_test

import (
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
)

// Free returns the first subnet of the pool that overlaps with no use, and an error if there is
// none.
func TestFree(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		uses []string
		ipv6 bool
		want string // empty: none is free
	}{
		"nothing is used":      {nil, false, "10.88.0.0/16"},
		"IPv6":                 {[]string{"10.88.0.0/16"}, true, "fd00:88::/64"},
		"a part of one":        {[]string{"10.88.255.0/24", "10.90.0.0/16"}, false, "10.89.0.0/16"},
		"more than one":        {[]string{"10.80.0.0/12"}, false, "10.112.0.0/16"},
		"an address in IPv6":   {[]string{"fd00:88::5/128"}, true, "fd00:89::/64"},
		"everything":           {[]string{"10.0.0.0/8"}, false, ""},
		"everything else":      {[]string{"fd00::/8"}, false, "10.88.0.0/16"},
		"everything with IPv6": {[]string{"fd00::/8"}, true, ""},
	} {
		var uses []netconf.Use
		for _, s := range row.uses {
			uses = append(uses, netconf.Use{Prefix: netip.MustParsePrefix(s), By: "a test"})
		}
		got, err := netconf.Free(uses, row.ipv6)
		if row.want == "" {
			if cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
			continue
		}
		if err != nil || got.String() != row.want {
			t.Errorf("%s: got %v, %v; want %s", name, got, err, row.want)
		}
	}
}
