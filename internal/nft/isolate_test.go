package nft_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

var (
	apart    = nft.Isolation{Interface: "br0", Inside: true}
	together = nft.Isolation{Interface: "br0"}
)

// house has the isolations of a host.
type house struct {
	*nft.Conn
	t  testing.TB
	ns *testnet.Namespace
}

func newHouse(t testing.TB) house {
	t.Helper()
	ns, c := setup(t)
	return house{c, t, ns}
}

func (h house) request(tag string, i nft.Isolation) nft.Request {
	h.t.Helper()
	if i.Inside {
		i.Port = "port-" + tag
	}
	entries, err := i.Elements(tag)
	must(h.t, err)
	return nft.Request{Owner: tag, Elements: entries}
}

func (h house) put(tag string, i nft.Isolation) (undo func()) {
	h.t.Helper()
	back, err := h.Apply(h.t.Context(), h.request(tag, i))
	must(h.t, err)
	return func() {
		h.t.Helper()
		must(h.t, back(context.WithoutCancel(h.t.Context())))
	}
}

func (h house) take(tag string) {
	h.t.Helper()
	for _, ruleSet := range []*nft.RuleSet{nft.Filtering, nft.PortIsolation} {
		_, err := h.Remove(h.t.Context(), ruleSet, is(tag), nil)
		must(h.t, err)
	}
}

// expect compares the elements that affect packets: isolated interfaces, pairs that may exchange
// packets, and isolated ports.
func (h house) expect(want ...string) {
	h.t.Helper()
	var got []string
	for _, ruleSet := range []*nft.RuleSet{nft.Filtering, nft.PortIsolation} {
		list, err := h.List(h.t.Context(), ruleSet)
		must(h.t, err)
		for _, x := range list {
			if _, ok := x.Isolated(); !ok {
				got = append(got, ruleSet.String()+" "+x.Set+" "+x.Text)
			}
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		h.t.Errorf("(-want +got):\n%s", diff)
	}
}

// The elements of br0 under either policy.
var (
	areTogether = []string{"filter isolated br0", "filter together br0 with br0"}
	areApart    = []string{"filter isolated br0"}
)

func withPorts(isolated []string, ports ...string) []string {
	list := slices.Clone(isolated)
	for _, p := range ports {
		list = append(list, "port isolation isolated port-"+p)
	}
	return list
}

func TestFilterReadsAsIntended(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("a", apart)
	h.put("b", nft.Isolation{Interface: "br1"})
	_, err := h.Apply(t.Context(),
		nft.Request{Owner: "c",
			Elements: nft.Admit(netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3"))})
	must(t, err)
	const rules = `
		type filter hook forward priority filter; policy accept;
		iifname @isolated oifname @isolated iifname . oifname != @together drop
		ip saddr @admitted4 accept
		ip daddr @admitted4 ct state established,related accept
		ip saddr . ip daddr @forward_cluster4 accept
		ip6 saddr @admitted6 accept
		ip6 daddr @admitted6 ct state established,related accept
		ip6 saddr . ip6 daddr @forward_cluster6 accept
`
	for chain, want := range map[string]string{
		"inet":   rules,
		"bridge": "\n\t\ttype filter hook forward priority filter; policy accept;\n\t\tiifname @isolated drop\n\t\toifname @isolated drop\n",
	} {
		_, got, _ := strings.Cut(h.ns.Command("nft", "list", "chain", chain, "tenon", "forward"),
			"forward {")
		got, _, _ = strings.Cut(got, "\t}")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", chain, diff)
		}
	}
	for set, want := range map[string]string{
		"inet isolated":   `"br0",`,
		"inet together":   `"br1" . "br1"`,
		"inet members":    `"br0" . "br0" . ca97:8112:ca1b:bdca:fac2:31b3:9a23:dc4d comment "a"`, // SHA-256 of a
		"inet admitted4":  `10.1.2.3 comment "c"`,
		"inet admitted6":  `fd00::3 comment "c"`,
		"bridge isolated": `"port-a" comment "a"`,
	} {
		family, name, _ := strings.Cut(set, " ")
		got := h.ns.Command("nft", "list", "set", family, "tenon", name)
		if !strings.Contains(got, want) {
			t.Errorf("%s: no %s in\n%s", set, want, got)
		}
	}
}

// TestIsolationUsers checks that an isolation exists from its first user to its last, in whatever
// order they leave.
func TestIsolationUsers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("a", together)
	h.put("b", together)
	h.put("c", together)()
	h.expect(areTogether...)
	h.take("a")
	h.expect(areTogether...)
	h.take("b")
	h.expect()
	h.put("a", apart)
	h.put("b", apart)
	h.put("c", apart)()
	h.expect(withPorts(areApart, "a", "b")...)
	h.take("a")
	h.expect(withPorts(areApart, "b")...)
	h.take("b")
	h.expect()
}

// TestIsolationTurns checks that the last policy applied to an interface is in force
// until the last user leaves, and that undo restores the previous state.
func TestIsolationTurns(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                    string
		first, second           nft.Isolation
		before, turned, without []string
	}{
		{"from together to apart", together, apart, areTogether, withPorts(areApart, "b"),
			areApart},
		{"from apart to together", apart, together, withPorts(areApart, "a"),
			withPorts(areTogether, "a"), withPorts(areTogether, "a")},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.put("a", row.first)
			undo := h.put("b", row.second)
			h.expect(row.turned...)
			undo()
			h.expect(row.before...)
			h.put("b", row.second)
			missing, err := lacks(t, h.Conn, h.request("a", row.first))
			must(t, err)
			if len(missing) != 1 || missing[0].Unwanted != row.first.Inside {
				t.Errorf("the first lacks %v", missing)
			}
			if missing, err := lacks(t, h.Conn, h.request("b", row.second)); len(missing) > 0 ||
				err != nil {
				t.Errorf("the second lacks %v, %v", missing, err)
			}
			before := generation(t, h.ns)
			h.put("b", row.second)
			if after := generation(t, h.ns); after != before {
				t.Errorf("applied again: generation %d, was %d", after, before)
			}
			h.take("b")
			h.expect(row.without...)
			h.put("a", row.first)
			h.expect(row.before...)
			h.take("a")
			h.expect()
		})
	}
}

// TestIsolationUndoKeepsShared checks that undo keeps elements that other owners now share.
func TestIsolationUndoKeepsShared(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	undo := h.put("a", apart)
	h.put("b", apart)
	undo()
	h.expect(withPorts(areApart, "b")...)
	h.take("b")
	h.put("a", together)
	undo = h.put("b", apart)
	h.take("a")
	undo()
	h.expect()
	h.put("a", apart)
	undo = h.put("b", together)
	h.take("a")
	undo()
	h.expect()
}

// TestIsolationOfMany checks that the last of many requests for an interface in one transaction
// decides.
func TestIsolationOfMany(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	both := []nft.Request{h.request("a", apart), h.request("b", together)}
	_, err := h.Apply(t.Context(), both...)
	must(t, err)
	h.expect(withPorts(areTogether, "a")...)
	_, err = h.Apply(t.Context(), both[1], both[0])
	must(t, err)
	h.expect(withPorts(areApart, "a")...)
}

// TestIsolationFlushed checks that flushing the rules ends the isolation: Missing reports it, and
// the next request creates the rules again.
func TestIsolationFlushed(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"inet", "bridge"} {
		h := newHouse(t)
		h.put("a", apart)
		h.ns.Command("nft", "flush", "table", family, "tenon")
		if missing, err := lacks(t, h.Conn, h.request("a", apart)); len(missing) == 0 ||
			err != nil {
			t.Errorf("%s: nothing is missing, %v", family, err)
		}
		h.put("a", apart)
		if missing, err := lacks(t, h.Conn, h.request("a", apart)); len(missing) > 0 || err != nil {
			t.Errorf("%s: missing %v, %v", family, missing, err)
		}
	}
}

// TestAdmittedTwice checks that the last owner to apply an address owns it, whichever owner leaves
// later.
func TestAdmittedTwice(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	entries := nft.Admit(netip.MustParseAddr("::ffff:10.1.2.3"))
	for _, tag := range []string{"a", "b"} {
		_, err := h.Apply(t.Context(), nft.Request{Owner: tag, Elements: entries})
		must(t, err)
	}
	if removed, err := h.Remove(t.Context(), nft.Filtering, is("a"), nil); len(removed) > 0 ||
		err != nil {
		t.Errorf("a removed %v, %v", removed, err)
	}
	removed, err := h.Remove(t.Context(), nft.Filtering, is("b"), nil)
	must(t, err)
	if len(removed) != 1 {
		t.Fatalf("b removed %v", removed)
	}
	if a, ok := removed[0].Admitted(); !ok || a != netip.MustParseAddr("10.1.2.3") {
		t.Errorf("address %s, %t", a, ok)
	}
	if _, ok := removed[0].Isolated(); ok {
		t.Error("an address counts as a member")
	}
}

func TestIsolationRefuses(t *testing.T) {
	t.Parallel()
	for _, i := range []nft.Isolation{{}, {Port: "port"}, {Interface: "a-name-of-16-byte"},
		{Interface: "br0", Port: "a-name-of-16-byte"}} {
		if _, err := i.Elements("a"); err == nil {
			t.Errorf("%+v accepted", i)
		}
	}
}
