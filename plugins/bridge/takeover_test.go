package bridge_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// reference is the directory of the upstream plugins.
const reference = "/usr/lib/cni"

// TestTakeover: Tenon checks and deletes attachments of the upstream plugins, and vice versa: link,
// addresses and reservations.
func TestTakeover(t *testing.T) {
	t.Parallel()
	takeover(t, gateway+ipamDual, "tenon")
}

// TestTakeoverOfVLAN is TestTakeover for an access port. Each implementation uses the other's
// gateway interface. Debian's version leaves its port in the default VLAN.
func TestTakeoverOfVLAN(t *testing.T) {
	t.Parallel()
	testnet.Require(t, vlanFiltering)
	for _, first := range []string{"tenon", "reference"} {
		t.Run(first+" creates the shared objects", func(t *testing.T) {
			t.Parallel()
			takeover(t, vlanGateway, first)
		})
	}
}

// takeover attaches with one implementation and detaches with the other, on a host where one of
// them has created the shared objects.
func takeover(t *testing.T, members, first string) {
	t.Helper()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "bridge")))
	for _, row := range []struct{ name, adds, takesOver string }{
		{"from upstream", "reference", "tenon"},
		{"to upstream", "tenon", "reference"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, members)
			r.Conf["cniVersion"] = "1.0.0" // the newest that Debian's plugins support
			call := func(who string, verb cni.Command, prev json.RawMessage) json.RawMessage {
				q := r.Request(verb, "c")
				if prev != nil {
					q.Conf["prevResult"] = prev
				}
				if who == "reference" {
					return r.Foreign(reference, q)
				}
				return r.Must(q)
			}
			call(first, cni.Add, nil)
			call(first, cni.Del, nil) // leaves the shared objects
			before := r.State()
			result := call(row.adds, cni.Add, nil)
			call(row.takesOver, cni.Check, result)
			call(row.takesOver, cni.Del, result)
			call(row.adds, cni.Del, result)
			if diff := testnet.Diff(before, r.State()); strings.Contains(diff, "eth0") ||
				strings.Contains(diff, "veth") {
				t.Error(diff)
			}
			if left, _ := filepath.Glob(filepath.Join(r.Dir, "*", "[1f]*")); len(left) > 0 {
				t.Errorf("reservations left: %v", left)
			}
		})
	}
}
