package ptp_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// reference is the directory of the upstream plugins.
const reference = "/usr/lib/cni"

// attach attaches container c with the plugins of either implementation and returns the result.
func attach(t *testing.T, r *plugintest.Runtime, who string) json.RawMessage {
	t.Helper()
	return call(t, r, who, cni.Add, nil)
}

func call(
	t *testing.T, r *plugintest.Runtime, who string, verb cni.Command, prev json.RawMessage,
) json.RawMessage {
	t.Helper()
	q := r.Request(verb, "c")
	if prev != nil {
		q.Conf["prevResult"] = prev
	}
	if who == "reference" {
		return r.Foreign(reference, q)
	}
	return r.Must(q)
}

// TestLikeTheReference compares routes, addresses of the host-side veth and result with upstream's.
func TestLikeTheReference(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "ptp")))
	var seen [2]string
	for i, who := range []string{"reference", "tenon"} {
		r := runtime(t, `,"ipMasq":true`+ipamDual)
		r.Conf["cniVersion"] = "1.0.0" // the newest that Debian's plugins support
		var result struct{ IPs, Routes any }
		if err := json.Unmarshal(attach(t, r, who), &result); err != nil {
			t.Fatal(err)
		}
		state, err := json.MarshalIndent([]any{
			result, routes(r.Container("c"), "-4"), routes(r.Container("c"), "-6"), hostRoutes(r,
				"-4"), hostRoutes(r, "-6"),
			addresses(r, "-4"), addresses(r, "-6"),
		}, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		seen[i] = string(state)
	}
	if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
		t.Error(diff)
	}
}

// hostRoutes returns the routes of the host without the name of the host-side veth.
func hostRoutes(r *plugintest.Runtime, family string) []string {
	list := routes(r.Host, family)
	for i, line := range list {
		fields := strings.Fields(line)
		for j := range fields {
			if j > 0 && fields[j-1] == "dev" {
				fields[j] = "HOSTEND"
			}
		}
		list[i] = strings.Join(fields, " ")
	}
	return list
}

// addresses returns the addresses of the host-side veth.
func addresses(r *plugintest.Runtime, family string) (list []string) {
	for line := range strings.Lines(r.Host.Command("ip", "-o", family, "address", "show", "scope",
		"global")) {
		list = append(list, strings.Fields(line)[3])
	}
	return list
}

// TestTakeover: Tenon checks and deletes attachments of the upstream plugins, and vice versa: link,
// addresses, rules and reservations.
func TestTakeover(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "ptp")))
	for _, row := range []struct{ name, adds, takesOver, members string }{
		{"from upstream", "reference", "tenon", `,"ipMasq":true` + ipamDual},
		// upstream's DEL needs iptables rules
		{"to upstream", "tenon", "reference", `,"ipMasq":true,"ipMasqBackend":"iptables"` +
			ipamDual},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			r.Conf["cniVersion"] = "1.0.0"
			r.Add("before")
			r.Del("before") // leaves the shared objects
			before := r.State()
			result := attach(t, r, row.adds)
			call(t, r, row.takesOver, cni.Check, result)
			call(t, r, row.takesOver, cni.Del, result)
			left(t, r, before)
		})
	}
}

// TestTakeoverByGC: GC releases the reservation and the rules of an attachment of the upstream
// plugins when the container no longer exists.
func TestTakeoverByGC(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "ptp")))
	r := runtime(t, `,"ipMasq":true`+ipamDual)
	r.Add("before")
	r.Del("before")
	r.Remove("before")
	before := r.State()
	r.Conf["cniVersion"] = "1.0.0"
	attach(t, r, "reference")
	r.Conf["cniVersion"] = "1.1.0"
	r.Must(r.Collect("c"))
	if addresses(r, "-4") == nil {
		t.Error("a valid attachment was collected")
	}
	r.Remove("c")
	for end := time.Now().
		Add(testnet.Patience); addresses(r, "-4") != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) { // the kernel ends namespaces in the background
			t.Fatal("the link of a removed container stays")
		}
	}
	r.Must(r.Collect())
	left(t, r, before)
}

// left fails the test if a link, a rule or a reservation exists that did not exist before.
func left(t *testing.T, r *plugintest.Runtime, before string) {
	t.Helper()
	if diff := testnet.Diff(before, r.State()); strings.Contains(diff, "eth0") ||
		strings.Contains(diff, "veth") || strings.Contains(diff, "CNI-") {
		t.Error(diff)
	}
	if files, _ := filepath.Glob(filepath.Join(r.Dir, "*", "[1f]*")); len(files) > 0 {
		t.Errorf("reservations left: %v", files)
	}
}
