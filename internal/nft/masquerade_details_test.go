package nft_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft"
)

// held lists the elements of owners in ruleSets, as "SET TEXT OWNER".
func held(t *testing.T, c *nft.Conn, ruleSets ...*nft.RuleSet) (list []string) {
	t.Helper()
	for _, ruleSet := range ruleSets {
		entries, err := c.List(t.Context(), ruleSet)
		must(t, err)
		for _, h := range entries {
			list = append(list, fmt.Sprintf("%s %s %s", h.Set, h.Text, h.Comment))
		}
	}
	return list
}

func request(t *testing.T, tag string, m nft.Masq, addrs ...string) nft.Request {
	t.Helper()
	entries, err := m.Elements(prefixes(addrs...)...)
	must(t, err)
	return nft.Request{Owner: tag, Elements: entries}
}

// TestMasqueradeDetails checks, among other things, that a network replaces the networks it
// contains, because ranges of a set must not overlap.
func TestMasqueradeDetails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		how  nft.Masq
		want []string
	}{
		{"none", nft.Masq{}, []string{
			"masq4 10.1.2.3 a", "nomasq4 10.1.2.3 not to 10.1.2.0/24 a", "masq6 fd00::3 a",
			"nomasq6 fd00::3 not to fd00::/64 a",
		}},
		{"excluded networks of both families",
			nft.Masq{Exclude: prefixes("192.168.0.0/16", "fd01::/16", "10.1.3.0/24")}, []string{
				"masq4 10.1.2.3 a", "nomasq4 10.1.2.3 not to 10.1.2.0/24 a",
				"nomasq4 10.1.2.3 not to 10.1.3.0/24 a",
				"nomasq4 10.1.2.3 not to 192.168.0.0/16 a", "masq6 fd00::3 a",
				"nomasq6 fd00::3 not to fd00::/64 a", "nomasq6 fd00::3 not to fd01::/16 a",
			}},
		{"one within another",
			nft.Masq{Exclude: prefixes("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "fd00::/8",
				"10.0.0.0/8", "10.9.9.9/8")}, []string{
				"masq4 10.1.2.3 a", "nomasq4 10.1.2.3 not to 10.0.0.0/8 a", "masq6 fd00::3 a",
				"nomasq6 fd00::3 not to fd00::/8 a",
			}},
		{"everything", nft.Masq{Exclude: prefixes("0.0.0.0/0", "::/0")}, []string{
			"masq4 10.1.2.3 a", "nomasq4 10.1.2.3 not to 0.0.0.0/0 a", "masq6 fd00::3 a",
			"nomasq6 fd00::3 not to ::/0 a",
		}},
		{"same subnet", nft.Masq{SameSubnet: true},
			[]string{"masq4 10.1.2.3 a", "masq6 fd00::3 a"}},
		{"same subnet with a network of its own range",
			nft.Masq{SameSubnet: true, Exclude: prefixes("10.1.2.128/25")}, []string{
				"masq4 10.1.2.3 a", "nomasq4 10.1.2.3 not to 10.1.2.128/25 a", "masq6 fd00::3 a",
			}},
		{"a source", nft.Masq{SameSubnet: true, ToSource: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}, []string{
			"masq4 10.1.2.3 a", "snat4 10.1.2.3 as 192.0.2.9 a", "masq6 fd00::3 a",
		}},
		{"no invalid packets", nft.Masq{DropInvalid: true, Exclude: prefixes("fd00::/16")},
			[]string{
				"masq4 10.1.2.3 a", "nomasq4 10.1.2.3 not to 10.1.2.0/24 a", "masq6 fd00::3 a",
				"nomasq6 fd00::3 not to fd00::/16 a",
				"valid4 10.1.2.3 a", "anystate4 10.1.2.3 not to 10.1.2.0/24 a", "valid6 fd00::3 a",
				"anystate6 fd00::3 not to fd00::/16 a",
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns, c := setup(t)
			_, err := c.Apply(t.Context(),
				request(t, "other",
					nft.Masq{ToSource: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}, "10.9.2.3/24"))
			must(t, err)
			others := held(t, c, nft.Masquerading)
			mine := request(t, "a", row.how, "10.1.2.3/24", "fd00::3/64")
			undo, err := c.Apply(t.Context(), mine)
			must(t, err)
			var got []string
			for _, h := range held(t, c, nft.Masquerading, nft.Dropping) {
				if strings.HasSuffix(h, " a") {
					got = append(got, h)
				}
			}
			if diff := cmp.Diff(sorted(row.want), sorted(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			missing, err := lacks(t, c, mine)
			if err != nil || len(missing) > 0 {
				t.Errorf("missing: %v, %v", missing, err)
			}
			if has := strings.Contains(ns.Command("nft", "list", "ruleset"),
				"ct state invalid"); has != row.how.DropInvalid {
				t.Errorf("rules for invalid packets: %t", has)
			}
			must(t, undo(t.Context()))
			if diff := cmp.Diff(others, held(t, c, nft.Masquerading, nft.Dropping)); diff != "" {
				t.Errorf("after undo (-want +got):\n%s", diff)
			}
		})
	}
}

func sorted(list []string) string {
	return strings.Join(sortedLines(strings.Join(list, "\n")), "\n")
}

func TestDroppingReadsAsIntended(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	_, err := c.Apply(t.Context(), request(t, "a", nft.Masq{DropInvalid: true}, "10.1.2.3/24"))
	must(t, err)
	const want = `table inet tenon {
	chain dropinvalid {
		type filter hook forward priority filter; policy accept;
		ct state invalid ip saddr @valid4 ip saddr . ip daddr != @anystate4 drop
		ct state invalid ip6 saddr @valid6 ip6 saddr . ip6 daddr != @anystate6 drop
	}
}
`
	if diff := cmp.Diff(want, ns.Command("nft", "list", "chain", "inet", "tenon", "dropinvalid")); diff != "" {
		t.Errorf("chain (-want +got):\n%s", diff)
	}
}

// TestMasqueradeTakesOverDetails checks that the new owner of an address inherits none of the
// former owner's options.
func TestMasqueradeTakesOverDetails(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	old := nft.Masq{Exclude: prefixes("192.168.0.0/16"),
		ToSource: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}
	_, err := c.Apply(t.Context(), request(t, "old", old, "10.1.2.3/24", "10.1.2.4/24"))
	must(t, err)
	before := held(t, c, nft.Masquerading)
	undo, err := c.Apply(t.Context(), request(t, "new", nft.Masq{SameSubnet: true}, "10.1.2.3/24"))
	must(t, err)
	want := []string{
		"masq4 10.1.2.3 new", "masq4 10.1.2.4 old", "nomasq4 10.1.2.4 not to 10.1.2.0/24 old",
		"nomasq4 10.1.2.4 not to 192.168.0.0/16 old", "snat4 10.1.2.4 as 192.0.2.9 old",
	}
	if diff := cmp.Diff(sorted(want), sorted(held(t, c, nft.Masquerading))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, undo(t.Context()))
	if diff := cmp.Diff(sorted(before), sorted(held(t, c, nft.Masquerading))); diff != "" {
		t.Errorf("after undo (-want +got):\n%s", diff)
	}
}

// TestMasqueradeOneIsReplaced checks that masquerading an address replaces the skeleton of the
// previous release and keeps its elements.
func TestMasqueradeOneIsReplaced(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	ns.Command("nft", `table inet tenon {
		set masq4 { type ipv4_addr; size 32768; comment "masquerade 1"; elements = { 10.1.2.3 comment "old" }; }
		set nomasq4 { type ipv4_addr . ipv4_addr; flags interval; elements = { 10.1.2.3 . 10.1.2.0/24 comment "old" }; }
		set masq6 { type ipv6_addr; size 32768; elements = { fd00::3 comment "old" }; }
		set nomasq6 { type ipv6_addr . ipv6_addr; flags interval; elements = { fd00::3 . fd00::/64 comment "old" }; }
		chain postrouting {
			type nat hook postrouting priority srcnat; policy accept;
			ip daddr 224.0.0.0/4 return
			ip saddr . ip daddr @nomasq4 return
			ip saddr @masq4 masquerade
			ip6 daddr ff00::/8 return
			ip6 saddr . ip6 daddr @nomasq6 return
			ip6 saddr @masq6 masquerade
		}
	}`)
	before := generation(t, ns)
	masquerade(t, c, "new", "10.1.2.4/24")
	if after := generation(t, ns); after != before+1 {
		t.Errorf("%d transactions", after-before)
	}
	expect(t, c, "10.1.2.3 10.1.2.0/24 old", "10.1.2.4 10.1.2.0/24 new", "fd00::3 fd00::/64 old")
	got := ns.Command("nft", "list", "ruleset")
	fresh, other := setup(t)
	masquerade(t, other, "old", "10.1.2.3/24", "fd00::3/64")
	masquerade(t, other, "new", "10.1.2.4/24")
	if diff := cmp.Diff(sortedLines(fresh.Command("nft", "list", "ruleset")),
		sortedLines(got)); diff != "" {
		t.Errorf("(-fresh +replaced):\n%s", diff)
	}
}

// TestManyAddresses checks that one transaction can hold as many addresses as a host can have.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	requests := make([]nft.Request, 4000)
	for i := range requests {
		requests[i] = request(t, fmt.Sprintf("tenon:%032d", i), nft.Masq{DropInvalid: true},
			fmt.Sprintf("10.1.%d.%d/16", i/250, i%250), fmt.Sprintf("fd00::%x/64", i+1))
	}
	before := generation(t, ns)
	_, err := c.Apply(t.Context(), requests...)
	must(t, err)
	if after := generation(t, ns); after != before+1 {
		t.Errorf("%d transactions", after-before)
	}
	if n := len(held(t, c, nft.Masquerading, nft.Dropping)); n != 8*len(requests) {
		t.Errorf("%d elements", n)
	}
	missing, err := c.Missing(t.Context(), requests...)
	must(t, err)
	for i, m := range missing {
		if len(m) > 0 {
			t.Errorf("request %d lacks %v", i, m)
		}
	}
}
