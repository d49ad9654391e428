package portmap_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestFirstAddresses: if the container has several addresses of a family, the ports lead to the
// first one of its own interface, and to no second one of either family.
func TestFirstAddresses(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		testnet.Require(t, testnet.Tool("ip6tables-restore"))
		h := newHost(t, withBackend(backend))
		h.attach("c", 0)
		var prev object
		must(t, json.Unmarshal(h.prev["c"], &prev))
		first := prev["ips"].([]any)
		inside := first[0].(object)["interface"]
		var ips []any
		// the host's
		ips = append(ips, object{"address": "10.1.0.90/24", "interface": 0}, object{
			"address": "fd00:1::90/64", "interface": 0,
		})
		ips = append(ips, first...)
		ips = append(ips, object{"address": "10.1.0.91/24", "interface": inside}, object{
			"address": "fd00:1::91/64", "interface": inside,
		})
		// of no interface
		ips = append(ips, object{"address": "10.1.0.92/24"}, object{"address": "fd00:1::92/64"})
		prev["ips"] = ips
		var err error
		h.prev["c"], err = json.Marshal(prev)
		must(t, err)

		h.Container("c").
			Batch("address add 10.1.0.91/24 dev eth0", "address add fd00:1::91/64 dev eth0 nodad")
		for address, name := range map[string]string{"10.1.0.2": "first", "10.1.0.91": "second",
			"fd00:1::2": "first", "fd00:1::91": "second"} {
			serve(t, h.Container("c"), name, address, 80)
		}
		h.add("c", both(8080, 80, ""))
		h.check("c", both(8080, 80, ""))
		answers(t, h.lan, "192.0.2.1:8080", "first")
		answers(t, h.lan, "[2001:db8::1]:8080", "first")
		for _, other := range []string{"10.1.0.9", "fd00:1::9"} { // prefix of all other addresses
			if out := h.ruleset(); strings.Contains(out, other) {
				t.Errorf("the ruleset has %s…:\n%s", other, out)
			}
		}
	})
}
