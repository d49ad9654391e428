package nft_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func mac(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

// guard guards a port and returns the undo, which fails the test if it fails.
func guard(t testing.TB, c *nft.Conn, tag, port string, mac net.HardwareAddr) (undo func()) {
	t.Helper()
	back, err := c.Apply(t.Context(), nft.Request{Owner: tag, Elements: guardEntries(t, port, mac)})
	must(t, err)
	return func() {
		t.Helper()
		must(t, back(t.Context()))
	}
}

func guardEntries(t testing.TB, port string, mac net.HardwareAddr) []nft.Element {
	t.Helper()
	entries, err := nft.Guard(port, mac)
	must(t, err)
	return entries
}

// guarded reports whether the guard of a port exists.
func guarded(t testing.TB, c *nft.Conn, tag, port string, mac net.HardwareAddr) bool {
	t.Helper()
	missing, err := lacks(t, c, nft.Request{Owner: tag, Elements: guardEntries(t, port, mac)})
	must(t, err)
	return len(missing) == 0
}

// unguard removes the guard of a port if its comment matches.
func unguard(t testing.TB, c *nft.Conn, port string, match func(string) bool) {
	t.Helper()
	first := nft.GuardedPort(port)
	_, err := c.Remove(t.Context(), nft.Guarding, match, &first)
	must(t, err)
}

// expectGuards compares the elements of the guards, as nft(8) lists them.
func expectGuards(t testing.TB, ns *testnet.Namespace, want ...string) {
	t.Helper()
	got := []string{}
	for _, set := range []string{"guarded", "macs"} {
		_, list, _ := strings.Cut(ns.Command("nft", "list", "set", "bridge", "tenon", set),
			"elements = {")
		list, _, _ = strings.Cut(list, "}")
		for element := range strings.SplitSeq(list, ",") {
			if element = strings.TrimSpace(element); element != "" {
				got = append(got, element)
			}
		}
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("elements (-want +got):\n%s", diff)
	}
}

func TestGuardReadsAsIntended(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	guard(t, c, "owner a", "veth0123456789a", mac(1))
	const want = `table bridge tenon {
	set guarded {
		type ifname
		size 32768
		comment "macspoofchk 1"
		elements = { "veth0123456789a" comment "owner a" }
	}

	set macs {
		type ifname . ether_addr
		size 32768
		elements = { "veth0123456789a" . 02:00:00:00:00:01 comment "owner a" }
	}

	chain prerouting {
		type filter hook prerouting priority dstnat; policy accept;
		iifname @guarded iifname . ether saddr != @macs drop
	}
}
`
	if diff := cmp.Diff(want, ns.Command("nft", "list", "ruleset")); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
	if !guarded(t, c, "owner a", "veth0123456789a", mac(1)) {
		t.Error("the guard is reported as missing")
	}
	for port, m := range map[string]net.HardwareAddr{"veth0123456789a": mac(2), "other": mac(1)} {
		if guarded(t, c, "owner a", port, m) {
			t.Errorf("%s is guarded for %s", port, m)
		}
	}
	if guarded(t, c, "owner b", "veth0123456789a", mac(1)) {
		t.Error("the guard of owner a counts for owner b")
	}
}

func TestGuardAgain(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	guard(t, c, "a", "port", mac(1))
	before := generation(t, ns)
	guard(t, c, "a", "port", mac(1))()
	if after := generation(t, ns); after != before {
		t.Errorf("applied again: generation %d, was %d", after, before)
	}
	undo := guard(t, c, "b", "port", mac(2))
	expectGuards(t, ns, `"port" comment "b"`, `"port" . 02:00:00:00:00:02 comment "b"`)
	undo()
	expectGuards(t, ns, `"port" comment "a"`, `"port" . 02:00:00:00:00:01 comment "a"`)
	undo = guard(t, c, "b", "port", mac(2))
	guard(t, c, "c", "port", mac(3))
	undo()
	expectGuards(t, ns, `"port" comment "c"`, `"port" . 02:00:00:00:00:03 comment "c"`)
}

// TestGuardRulesFlushed checks that a port without the rules is not guarded, and that the next
// guard creates the rules again.
func TestGuardRulesFlushed(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	guard(t, c, "a", "port", mac(1))
	fresh := ns.Command("nft", "list", "ruleset")
	ns.Command("nft", "flush table bridge tenon")
	if guarded(t, c, "a", "port", mac(1)) {
		t.Error("guarded without rules")
	}
	guard(t, c, "a", "port", mac(1))
	if diff := cmp.Diff(sortedLines(fresh),
		sortedLines(ns.Command("nft", "list", "ruleset"))); diff != "" {
		t.Errorf("(-fresh +created again):\n%s", diff)
	}
}

func TestGuardUndo(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	guard(t, c, "a", "port", mac(1))()
	expectGuards(t, ns)
}

func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, port string
		mac        net.HardwareAddr
	}{
		{"no port", "", mac(1)},
		{"invalid interface name", "a-name-of-16-byte", mac(1)},
		{"address that is not an Ethernet address", "port",
			net.HardwareAddr{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		if _, err := nft.Guard(row.port, row.mac); err == nil {
			t.Errorf("%s: accepted", row.name)
		}
	}
}

func TestUnguard(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	for i := range byte(4) {
		guard(t, c, fmt.Sprintf("net%d/%d", i%2, i), fmt.Sprintf("port%d", i), mac(i))
	}
	before := generation(t, ns)
	unguard(t, c, "port0", is("net1/0"))
	unguard(t, c, "absent", is("net1/0"))
	if after := generation(t, ns); after != before {
		t.Errorf("no owner matches: generation %d, was %d", after, before)
	}
	unguard(t, c, "port0", is("net0/0"))
	_, err := c.Remove(t.Context(), nft.Guarding,
		func(comment string) bool { return strings.HasPrefix(comment, "net1/") }, nil)
	must(t, err)
	if after := generation(t, ns); after != before+2 {
		t.Errorf("%d transactions, want 2", after-before)
	}
	expectGuards(t, ns, `"port2" comment "net0/2"`, `"port2" . 02:00:00:00:00:02 comment "net0/2"`)
}

func is(want string) func(string) bool { return func(s string) bool { return s == want } }

func TestUnguardBeforeFirstUse(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	unguard(t, c, "port", is("a"))
	_, err := c.Remove(t.Context(), nft.Guarding, is("a"), nil)
	must(t, err)
	if out := ns.Command("nft", "list", "ruleset"); out != "" {
		t.Errorf("ruleset:\n%s", out)
	}
}

// BenchmarkUnguardNothing measures the cost that DEL pays for a port without a guard while other
// ports have one.
func BenchmarkUnguardNothing(b *testing.B) {
	_, c := setup(b)
	for i := range 1000 {
		guard(b, c, "other", fmt.Sprintf("port%d", i), mac(1))
	}
	for b.Loop() {
		unguard(b, c, "absent", is("a"))
	}
}
