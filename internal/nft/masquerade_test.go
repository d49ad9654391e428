package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func setup(t testing.TB) (*testnet.Namespace, *nft.Conn) {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	ns := testnet.New(t).Host
	return ns, open(t, ns)
}

func open(t testing.TB, ns *testnet.Namespace) *nft.Conn {
	t.Helper()
	c, err := nft.Open(testnet.NS(t, ns))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// masquerade masquerades addresses and returns the undo, which fails the test if it fails.
func masquerade(t testing.TB, c *nft.Conn, tag string, addrs ...string) (undo func()) {
	t.Helper()
	back, err := put(t, c, tag, addrs...)
	must(t, err)
	return func() {
		t.Helper()
		must(t, back(t.Context()))
	}
}

// put masquerades addresses.
func put(
	t testing.TB, c *nft.Conn, tag string, addrs ...string,
) (undo func(context.Context) error, err error) {
	t.Helper()
	entries, err := nft.Masq{}.Elements(prefixes(addrs...)...)
	must(t, err)
	return c.Apply(t.Context(), nft.Request{Owner: tag, Elements: entries})
}

// take removes the elements with a matching tag and returns their number.
func take(t testing.TB, c *nft.Conn, match func(string) bool) int {
	t.Helper()
	removed, err := c.Remove(t.Context(), nft.Masquerading, match, nil)
	must(t, err)
	return len(removed)
}

// expect compares the masqueraded addresses with "address network comment" strings.
func expect(t testing.TB, c *nft.Conn, want ...string) {
	t.Helper()
	list, err := c.List(t.Context(), nft.Masquerading)
	must(t, err)
	var got []string
	for _, h := range list {
		if addr, net, ok := strings.Cut(h.Text, " not to "); ok {
			got = append(got, fmt.Sprintf("%s %s %s", addr, net, h.Comment))
			masqueraded := func(x nft.Held) bool { return x.Text == addr && x.Comment == h.Comment }
			if !slices.ContainsFunc(list, masqueraded) {
				t.Errorf("%s has a network but is not masqueraded", addr)
			}
		}
	}
	if len(list) != 2*len(got) {
		t.Errorf("%d elements for %d addresses", len(list), len(got))
	}
	slices.SortFunc(got, func(a, b string) int {
		x, y := netip.MustParseAddr(strings.Fields(a)[0]), netip.MustParseAddr(strings.Fields(b)[0])
		return x.Compare(y)
	})
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("masqueraded (-want +got):\n%s", diff)
	}
}

func generation(t testing.TB, ns *testnet.Namespace) uint32 {
	t.Helper()
	n, err := testnet.Generation(ns)
	must(t, err)
	return n
}

func TestRulesetReadsAsIntended(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	masquerade(t, c, "owner a", "10.1.2.3/24", "fd00::3/64")
	const want = `table inet tenon {
	set masq4 {
		type ipv4_addr
		size 32768
		comment "masquerade 3"
		elements = { 10.1.2.3 comment "owner a" }
	}

	set nomasq4 {
		type ipv4_addr . ipv4_addr
		flags interval
		elements = { 10.1.2.3 . 10.1.2.0/24 comment "owner a" }
	}

	map snat4 {
		type ipv4_addr : ipv4_addr
		size 4096
	}

	set cluster4 {
		type ipv4_addr . ipv4_addr
		flags interval
	}

	set masq6 {
		type ipv6_addr
		size 32768
		elements = { fd00::3 comment "owner a" }
	}

	set nomasq6 {
		type ipv6_addr . ipv6_addr
		flags interval
		elements = { fd00::3 . fd00::/64 comment "owner a" }
	}

	map snat6 {
		type ipv6_addr : ipv6_addr
		size 4096
	}

	set cluster6 {
		type ipv6_addr . ipv6_addr
		flags interval
	}

	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip daddr 224.0.0.0/4 return
		ip saddr . ip daddr @nomasq4 return
		ip saddr . ip daddr @cluster4 return
		snat ip to ip saddr map @snat4
		ip saddr @masq4 masquerade
		ip6 daddr ff00::/8 return
		ip6 saddr . ip6 daddr @nomasq6 return
		ip6 saddr . ip6 daddr @cluster6 return
		snat ip6 to ip6 saddr map @snat6
		ip6 saddr @masq6 masquerade
	}
}
`
	if diff := cmp.Diff(want, ns.Command("nft", "list", "ruleset")); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
}

func TestMasqueradePrefixLengths(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	masquerade(t, c, "v4", "10.1.2.3/24", "10.0.0.1/0", "10.9.0.1/31", "10.9.0.9/32",
		"10.128.0.5/9")
	masquerade(t, c, "v6", "fd00::3/64", "fd01::3/128", "fd02::3/0", "fd03::3/61")
	masquerade(t, c, "mapped", "::ffff:10.8.8.8/24")
	expect(t, c,
		"10.0.0.1 0.0.0.0/0 v4",
		"10.1.2.3 10.1.2.0/24 v4",
		"10.8.8.8 10.8.8.0/24 mapped",
		"10.9.0.1 10.9.0.0/31 v4",
		"10.9.0.9 10.9.0.9/32 v4",
		"10.128.0.5 10.128.0.0/9 v4",
		"fd00::3 fd00::/64 v6",
		"fd01::3 fd01::3/128 v6",
		"fd02::3 ::/0 v6",
		"fd03::3 fd03::/61 v6",
	)
}

func TestMasqueradeSameAddressTwiceKeepsTheNarrowerNetwork(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	masquerade(t, c, "a", "10.1.2.3/16", "10.1.2.3/24", "10.1.2.3/8")
	expect(t, c, "10.1.2.3 10.1.2.0/24 a")
}

func TestMasqueradeAgainChangesNothing(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	masquerade(t, c, "a", "10.1.2.3/24")
	before := generation(t, ns)
	undo := masquerade(t, c, "a", "10.1.2.3/24")
	undo()
	if after := generation(t, ns); after != before {
		t.Errorf("generation %d, was %d", after, before)
	}
	expect(t, c, "10.1.2.3 10.1.2.0/24 a")
}

func TestMasqueradeUndo(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	masquerade(t, c, "other", "10.1.2.4/24")
	undo := masquerade(t, c, "a", "10.1.2.3/24", "fd00::3/64")
	expect(t, c, "10.1.2.3 10.1.2.0/24 a", "10.1.2.4 10.1.2.0/24 other", "fd00::3 fd00::/64 a")
	undo()
	expect(t, c, "10.1.2.4 10.1.2.0/24 other")
}

func TestMasqueradeTakesOver(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	masquerade(t, c, "old", "10.1.2.3/24", "10.1.2.9/24")
	undo := masquerade(t, c, "new", "10.1.2.3/16", "10.1.2.4/16")
	expect(t, c, "10.1.2.3 10.1.0.0/16 new", "10.1.2.4 10.1.0.0/16 new", "10.1.2.9 10.1.2.0/24 old")
	// The late DEL of the former owner leaves the address alone.
	if n := take(t, c, is("old")); n != 2 {
		t.Errorf("removed %d, want the 2 elements of 10.1.2.9", n)
	}
	expect(t, c, "10.1.2.3 10.1.0.0/16 new", "10.1.2.4 10.1.0.0/16 new")
	undo()
	expect(t, c, "10.1.2.3 10.1.2.0/24 old")
}

func TestMasqueradeUndoLeavesWhatOthersTookOver(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	masquerade(t, c, "first", "10.1.2.3/24")
	undo := masquerade(t, c, "second", "10.1.2.3/24", "10.1.2.4/24")
	masquerade(t, c, "third", "10.1.2.3/24")
	undo()
	expect(t, c, "10.1.2.3 10.1.2.0/24 third")
}

func TestMasqueradeUndoAfterTheTableWasDeleted(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	undo := masquerade(t, c, "a", "10.1.2.3/24")
	ns.Command("nft", "flush", "ruleset")
	undo()
	if out := ns.Command("nft", "list", "ruleset"); out != "" {
		t.Errorf("ruleset:\n%s", out)
	}
}

func TestMasqueradeUndoRestoresAfterTheTableWasDeleted(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	masquerade(t, c, "old", "10.1.2.3/24")
	undo := masquerade(t, c, "new", "10.1.2.3/24")
	ns.Command("nft", "flush", "ruleset")
	undo()
	expect(t, c)
}

func TestMasqueradeComment(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	long := strings.Repeat("x", nft.MaxComment)
	masquerade(t, c, long, "10.1.2.3/24")
	expect(t, c, "10.1.2.3 10.1.2.0/24 "+long)
	if out := ns.Command("nft", "list", "ruleset"); strings.Count(out, `comment "`+long+`"`) != 2 {
		t.Errorf("comment is not shown:\n%s", out)
	}
	for name, tag := range map[string]string{"empty": "", "too long": long + "x", "NUL": "a\x00b"} {
		if _, err := put(t, c, tag, "10.1.2.3/24"); err == nil {
			t.Errorf("%s comment accepted", name)
		}
	}
}

func TestMasqueradeRefusesInvalidPrefixes(t *testing.T) {
	t.Parallel()
	if _, err := (nft.Masq{}).Elements(netip.Prefix{}); err == nil {
		t.Error("invalid prefix accepted")
	}
}

func TestUnmasquerade(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	for i := range 200 {
		masquerade(t, c, fmt.Sprintf("net%d/%d", i%2, i), fmt.Sprintf("10.1.%d.3/24", i),
			fmt.Sprintf("fd00:%d::3/64", i))
	}
	before := generation(t, ns)
	n := take(t, c, func(string) bool { return false })
	if after := generation(t, ns); n != 0 || after != before {
		t.Errorf("no tag matches: %d removed, generation %d, was %d", n, after, before)
	}
	n = take(t, c, func(comment string) bool { return strings.HasPrefix(comment, "net0/") })
	if after := generation(t, ns); n != 400 || after != before+1 {
		t.Errorf("%d removed in %d transactions; want 400 in 1", n, after-before)
	}
	list, err := c.List(t.Context(), nft.Masquerading)
	if err != nil || len(list) != 400 ||
		slices.ContainsFunc(list,
			func(h nft.Held) bool { return !strings.HasPrefix(h.Comment, "net1/") }) {
		t.Errorf("%d left, %v; want the 400 of net1", len(list), err)
	}
}

func TestNothingToReadBeforeFirstUse(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	if n := take(t, c, func(string) bool { return true }); n != 0 {
		t.Errorf("removed %d", n)
	}
	expect(t, c)
	must(t, c.Available())
	if out := ns.Command("nft", "list", "ruleset"); out != "" {
		t.Errorf("ruleset:\n%s", out)
	}
}

func TestSkeletonIsMadeOnce(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	masquerade(t, c, "a", "10.1.2.3/24")
	before := generation(t, ns)
	masquerade(t, open(t, ns), "b", "10.1.2.4/24")
	if after := generation(t, ns); after != before+1 {
		t.Errorf("%d transactions for one element", after-before)
	}
	if out := ns.Command("nft", "-a", "list", "chain", "inet", "tenon",
		"postrouting"); strings.Count(out, "# handle") != 11 {
		t.Errorf("chain:\n%s", out)
	}
}

// TestSkeletonIsReplaced checks that a damaged skeleton, or one of another version, is replaced and
// keeps its elements.
func TestSkeletonIsReplaced(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	masquerade(t, c, "a", "10.1.2.3/24", "fd00::3/64")
	fresh := ns.Command("nft", "list", "ruleset")
	for _, row := range []struct{ name, damage string }{
		{"rules flushed", "flush table inet tenon"},
		{"chain deleted", "flush chain inet tenon postrouting; delete chain inet tenon postrouting"},
		{"a rule too many", "insert rule inet tenon postrouting accept"},
		{"other version", `flush chain inet tenon postrouting
			delete set inet tenon masq4
			add set inet tenon masq4 { type ipv4_addr; comment "masquerade 0"; elements = { 10.1.2.3 comment "a" }; }
			add rule inet tenon postrouting ip saddr @masq4 accept`},
		{"first set deleted", `flush chain inet tenon postrouting
			delete set inet tenon masq4`},
	} {
		ns.Command("nft", row.damage)
		if !strings.Contains(ns.Command("nft", "list", "table", "inet", "tenon"), " saddr ") {
			expect(t, c) // without rules no address is masqueraded
		}
		masquerade(t, c, "a", "10.1.2.3/24", "fd00::3/64")
		if diff := cmp.Diff(sortedLines(fresh),
			sortedLines(ns.Command("nft", "list", "ruleset"))); diff != "" {
			t.Errorf("%s: (-fresh +replaced):\n%s", row.name, diff)
		}
	}
}

// sortedLines makes rulesets comparable that have their objects in different orders.
func sortedLines(s string) []string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return lines
}

func TestForeignRulesAreLeftAlone(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	ns.Command("nft", `add table inet other
		add chain inet other postrouting { type nat hook postrouting priority srcnat; }
		add rule inet other postrouting ip saddr 10.0.0.0/8 masquerade comment "theirs"`)
	theirs := ns.Command("nft", "list", "table", "inet", "other")
	masquerade(t, c, "a", "10.1.2.3/24")
	take(t, c, func(string) bool { return true })
	if got := ns.Command("nft", "list", "table", "inet", "other"); got != theirs {
		t.Errorf("table is now\n%s", got)
	}
}

func TestMasqueradeRace(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 30 {
		one := open(t, ns)
		wg.Go(func() {
			<-start
			// All owners want one address, and each has another of its own.
			undo, err := put(t, one, fmt.Sprintf("owner %d", i), "10.1.2.3/24",
				fmt.Sprintf("10.1.3.%d/24", i))
			if err == nil && i%2 == 0 {
				err = undo(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	list, err := c.List(t.Context(), nft.Masquerading)
	must(t, err)
	own := slices.DeleteFunc(list, func(h nft.Held) bool {
		return strings.HasPrefix(h.Text, "10.1.2.3")
	})
	if len(own) != 30 {
		t.Errorf("%d of 30 exist: %v", len(own), own)
	}
}

func TestMasqueradeWaitsForTheLock(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	unlock, err := testnet.NS(t, ns).Lock(t.Context())
	must(t, err)
	defer unlock()
	cause := errors.New("terminated")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := c.Apply(ctx, nft.Request{Owner: "a"}); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func BenchmarkMasquerade(b *testing.B) {
	_, c := setup(b)
	masquerade(b, c, "first", "10.1.2.2/24") // creates the skeleton
	for i := 0; b.Loop(); i++ {
		masquerade(b, c, "a", fmt.Sprintf("10.%d.%d.3/24", i/250%250, i%250))
	}
}

// BenchmarkUnmasquerade removes one address of 1000.
func BenchmarkUnmasquerade(b *testing.B) {
	_, c := setup(b)
	for i := range 1000 {
		masquerade(b, c, "other", fmt.Sprintf("10.%d.%d.3/24", i/250, i%250))
	}
	for b.Loop() {
		masquerade(b, c, "a", "10.200.0.3/24")
		if n := take(b, c, is("a")); n != 2 {
			b.Fatal(n)
		}
	}
}
