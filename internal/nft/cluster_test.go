package nft_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func setPools(t testing.TB, c *nft.Conn, pools ...string) {
	t.Helper()
	must(t, c.SetClusterPools(t.Context(), prefixes(pools...)))
}

// wantPools compares the elements that nft(8) lists, of all sets with pools of a cluster.
func wantPools(t testing.TB, ns *testnet.Namespace, want string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(ns.Command("nft", "list", "ruleset")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "set ") {
			got = append(got, strings.Fields(line)[1])
		} else if i := len(got) - 1; strings.Contains(line, " . ") && strings.Contains(line, "/") {
			got[i] += " " + strings.Trim(strings.TrimPrefix(line, "elements = "), "{ },")
		}
	}
	var of []string
	for _, set := range got {
		if strings.Contains(set, "cluster") && strings.Contains(set, " ") {
			of = append(of, set)
		}
	}
	if diff := cmp.Diff(want, strings.Join(of, "\n")); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// TestClusterPools checks that pools are replaced in one transaction, survive ADD and DEL of
// attachments, and are read back.
func TestClusterPools(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	setPools(t, c) // builds nothing
	if out := ns.Command("nft", "list", "ruleset"); out != "" {
		t.Fatalf("without pools:\n%s", out)
	}
	masquerade(t, c, "owner a", "10.64.0.3/26")
	before := generation(t, ns)
	setPools(t, c, "10.64.0.0/12", "10.64.3.0/24", "fd00:64::/48")
	if n := generation(t, ns) - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	const first = "cluster4 10.64.0.0/12 . 10.64.0.0/12\ncluster6 fd00:64::/48 . fd00:64::/48"
	wantPools(t, ns, first)
	setPools(t, c, "10.64.0.0/12", "fd00:64::/48")
	if n := generation(t, ns) - before; n != 1 {
		t.Errorf("%d transactions for the same pools", n)
	}
	masquerade(t, c, "owner a", "10.64.0.4/26")
	take(t, c, func(string) bool { return true })
	wantPools(t, ns, first)
	for _, wider := range []string{"10.64.0.0/11", "10.64.0.0/13"} { // overlaps its predecessor
		setPools(t, c, wider)
		wantPools(t, ns, "cluster4 "+wider+" . "+wider)
		got, complete, err := c.ClusterPools()
		must(t, err)
		if !complete || !nft.SamePools(got, prefixes(wider)) {
			t.Errorf("read %v, complete: %t", got, complete)
		}
	}
	list, err := c.All()
	must(t, err)
	if len(list) != 0 {
		t.Errorf("elements with owners: %v", list)
	}
	tables, refused, err := c.Erase(t.Context(), func(string) bool { return false })
	if err != nil || len(tables) != 1 || len(refused) != 0 { // uninstalling needs no permission
		t.Errorf("erased %v, refused %v: %v", tables, refused, err)
	}
	setPools(t, c, "10.64.0.0/13") // the agent restores them
	wantPools(t, ns, "cluster4 10.64.0.0/13 . 10.64.0.0/13")
	setPools(t, c)
	wantPools(t, ns, "")
}

// TestClusterPoolsOfFilter checks that chain forward accepts packets between pools, whether it is
// older or younger than they are.
func TestClusterPoolsOfFilter(t *testing.T) {
	t.Parallel()
	const want = "cluster4 10.64.0.0/12 . 10.64.0.0/12"
	admit := func(t *testing.T, c *nft.Conn) {
		_, err := c.Apply(t.Context(), nft.Request{
			Owner: "c", Elements: nft.Admit(netip.MustParseAddr("10.64.0.3"))})
		must(t, err)
	}
	for _, order := range []string{"older", "younger"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			ns, c := setup(t)
			if order == "older" {
				admit(t, c)
			}
			setPools(t, c, "10.64.0.0/12")
			if order == "younger" {
				wantPools(t, ns, want)
				admit(t, c)
			}
			both := map[string]string{"older": "forward_" + want + "\n" + want,
				"younger": want + "\nforward_" + want}
			wantPools(t, ns, both[order])
			setPools(t, c)
			wantPools(t, ns, "")
		})
	}
}

// TestClusterUpgrade checks that a chain of an earlier version, which lacks the rules, gets them
// with the pools, or with the next attachment.
func TestClusterUpgrade(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	masquerade(t, c, "owner a", "10.64.0.3/26")
	earlier := strings.NewReplacer("masquerade 3", "masquerade 2",
		"\t\tip saddr . ip daddr @cluster4 return\n", "",
		"\t\tip6 saddr . ip6 daddr @cluster6 return\n", "",
	).Replace(ns.Command("nft", "list", "ruleset"))
	for _, f := range []string{"4", "6"} {
		from, to, _ := strings.Cut(earlier, "\tset cluster"+f)
		_, to, _ = strings.Cut(to, "\t}\n")
		earlier = from + to
	}
	install := func() {
		t.Helper()
		ns.Command("nft", "delete", "table", "inet", "tenon")
		if out, err := ns.Output(earlier, "nft", "-f", "-"); err != nil {
			t.Fatal(out, err)
		}
	}
	rule := func() bool {
		return strings.Contains(ns.Command("nft", "list", "ruleset"), "@cluster4 return")
	}
	install()
	if rule() {
		t.Fatal("the earlier version has the rule")
	}
	masquerade(t, c, "owner b", "10.64.0.4/26")
	if !rule() {
		t.Error("no rule after another attachment")
	}
	install()
	setPools(t, c, "10.64.0.0/12")
	if !rule() {
		t.Error("no rule with the pools")
	}
	expect(t, c, "10.64.0.3 10.64.0.0/26 owner a")
	wantPools(t, ns, "cluster4 10.64.0.0/12 . 10.64.0.0/12")
	ns.Command("nft", "flush", "chain", "inet", "tenon", "postrouting")
	if _, complete, err := c.ClusterPools(); err != nil || complete {
		t.Errorf("flushed rules: complete %t, %v", complete, err)
	}
	setPools(t, c, "10.64.0.0/12")
	if !rule() {
		t.Error("no rule after a flush")
	}
}
