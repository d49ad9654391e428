package nft_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft"
)

var quarantine = nft.AddressRules{
	Name: "quarantine", Hook: "forward", Priority: -10, Match: "source", Action: "drop",
}

func ruleSetOf(t testing.TB, a nft.AddressRules) *nft.RuleSet {
	t.Helper()
	rs, err := a.RuleSet()
	must(t, err)
	return rs
}

// holding returns the request of an owner for addresses in a rule set.
func holding(t testing.TB, rs *nft.RuleSet, owner string, addrs ...string) nft.Request {
	t.Helper()
	r := nft.Request{Owner: owner}
	for _, a := range addrs {
		elements, err := nft.Addresses(rs, netip.MustParseAddr(a))
		must(t, err)
		r.Elements = append(r.Elements, elements...)
	}
	return r
}

func apply(t testing.TB, c *nft.Conn, requests ...nft.Request) (undo func()) {
	t.Helper()
	back, err := c.Apply(t.Context(), requests...)
	must(t, err)
	return func() {
		t.Helper()
		must(t, back(t.Context()))
	}
}

func TestAddressRulesRefuse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*nft.AddressRules){
		"no name":                  func(a *nft.AddressRules) { a.Name = "" },
		"name of 21 bytes":         func(a *nft.AddressRules) { a.Name = strings.Repeat("a", 21) },
		"upper case":               func(a *nft.AddressRules) { a.Name = "Drop" },
		"underscore":               func(a *nft.AddressRules) { a.Name = "a_b" },
		"space":                    func(a *nft.AddressRules) { a.Name = "a b" },
		"no hook":                  func(a *nft.AddressRules) { a.Hook = "" },
		"hook of another family":   func(a *nft.AddressRules) { a.Hook = "egress" },
		"no match":                 func(a *nft.AddressRules) { a.Match = "" },
		"no action":                func(a *nft.AddressRules) { a.Action = "" },
		"mark of another action":   func(a *nft.AddressRules) { a.Mark = 1 },
		"masquerade while forward": func(a *nft.AddressRules) { a.Action = "masquerade" },
		"masquerade before conntrack": func(a *nft.AddressRules) {
			a.Action, a.Hook, a.Priority = "masquerade", "postrouting", -200
		},
	} {
		a := quarantine
		change(&a)
		if _, err := a.RuleSet(); err == nil {
			t.Errorf("%s: invalid rule set accepted", name)
		}
	}
	rs := ruleSetOf(t, quarantine)
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0")} {
		if _, err := nft.Addresses(rs, a); err == nil {
			t.Errorf("invalid address %q accepted", a)
		}
	}
}

func TestAddressRulesReadAsIntended(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	rs := ruleSetOf(t, quarantine)
	request := holding(t, rs, "owner a", "::ffff:10.1.1.1", "fd00::1")
	apply(t, c, request)
	const want = `table inet tenon {
	set x-quarantine-4 {
		type ipv4_addr
		size 32768
		comment "rules 1: forward -10 source drop"
		elements = { 10.1.1.1 comment "owner a" }
	}

	set x-quarantine-6 {
		type ipv6_addr
		size 32768
		elements = { fd00::1 comment "owner a" }
	}

	chain x-quarantine {
		type filter hook forward priority filter - 10; policy accept;
		ip saddr @x-quarantine-4 drop
		ip6 saddr @x-quarantine-6 drop
	}
}
`
	if diff := cmp.Diff(want, ns.Command("nft", "list", "ruleset")); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
	before := generation(t, ns)
	apply(t, c, request)()
	if after := generation(t, ns); after != before {
		t.Errorf("applied again: generation %d, was %d", after, before)
	}
}

// TestAddressRulesChange applies several definitions with the same name in turn: each replaces the
// chain of its predecessor and keeps the elements.
func TestAddressRulesChange(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	for i, row := range []struct {
		change      nft.AddressRules
		chain, rule string
	}{
		{
			nft.AddressRules{Hook: "forward", Match: "source", Action: "drop"},
			"type filter hook forward priority filter;", "ip saddr @x-q-4 drop",
		},
		{
			nft.AddressRules{Hook: "forward", Match: "destination", Action: "accept"},
			"type filter hook forward priority filter;", "ip daddr @x-q-4 accept",
		},
		{
			nft.AddressRules{Hook: "forward", Priority: 5, Match: "destination", Action: "accept"},
			"type filter hook forward priority filter + 5;", "ip daddr @x-q-4 accept",
		},
		{
			nft.AddressRules{Hook: "prerouting", Match: "source", Action: "mark", Mark: 7},
			"type filter hook prerouting priority filter;",
			"ip saddr @x-q-4 meta mark set 0x00000007",
		},
		{
			nft.AddressRules{Hook: "prerouting", Match: "source", Action: "mark", Mark: 8},
			"type filter hook prerouting priority filter;",
			"ip saddr @x-q-4 meta mark set 0x00000008",
		},
		{
			nft.AddressRules{Hook: "postrouting", Priority: 100, Match: "source",
				Action: "masquerade"},
			"type nat hook postrouting priority srcnat;", "ip saddr @x-q-4 masquerade",
		},
		{
			nft.AddressRules{Hook: "input", Match: "source", Action: "accept"},
			"type filter hook input priority filter;", "ip saddr @x-q-4 accept",
		},
		{
			nft.AddressRules{Hook: "output", Match: "destination", Action: "drop"},
			"type filter hook output priority filter;", "ip daddr @x-q-4 drop",
		},
	} {
		row.change.Name = "q"
		rs := ruleSetOf(t, row.change)
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()
		apply(t, c, holding(t, rs, addr, addr))
		chain := ns.Command("nft", "list", "chain", "inet", "tenon", "x-q")
		ipv6 := strings.NewReplacer("ip ", "ip6 ", "-4", "-6").Replace(row.rule)
		for _, want := range []string{row.chain, "\t" + row.rule + "\n", "\t" + ipv6 + "\n"} {
			if !strings.Contains(chain, want) {
				t.Errorf("no %q in\n%s", want, chain)
			}
		}
		if n := strings.Count(chain, " @x-q-"); n != 2 {
			t.Errorf("%d rules, want 2:\n%s", n, chain)
		}
		if list, err := c.List(t.Context(), rs); err != nil || len(list) != i+1 {
			t.Errorf("elements %v (%v), want %d", list, err, i+1)
		}
	}
}

func TestAddressRulesConflict(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	rs := ruleSetOf(t, quarantine)
	undo := apply(t, c, holding(t, rs, "a", "10.1.1.1", "fd00::1"))
	for name, requests := range map[string][]nft.Request{
		"existing":         {holding(t, rs, "b", "10.1.1.2", "10.1.1.1")},
		"existing of IPv6": {holding(t, rs, "b", "fd00::1")},
	} {
		_, err := c.Apply(t.Context(), requests...)
		var conflict *nft.ConflictError
		if !errors.As(err, &conflict) || conflict.Holder != "a" {
			t.Errorf("%s: error %v, want a conflict with a", name, err)
			continue
		}
		if to := conflict.To.String(); to != "10.1.1.1" && to != "fd00::1" {
			t.Errorf("%s: address %s", name, to)
		}
	}
	_, err := c.Apply(t.Context(),
		holding(t, rs, "c", "10.1.1.3"), holding(t, rs, "d", "10.1.1.3"),
		holding(t, rs, "e", "10.1.1.4"))
	if err == nil || err.Error() != "address 10.1.1.3 in rule set quarantine is already in use by c" {
		t.Errorf("error of one transaction: %v", err)
	}
	other := quarantine
	other.Name = "other"
	apply(t, c, holding(t, ruleSetOf(t, other), "b", "10.1.1.1")) // another rule set
	expectAll(t, c, map[string]string{
		"x-quarantine": "10.1.1.1 a, 10.1.1.3 c, 10.1.1.4 e, fd00::1 a", "x-other": "10.1.1.1 b",
	})
	undo()
	apply(t, c, holding(t, rs, "b", "10.1.1.1"))
	_, err = c.Remove(t.Context(), rs, func(owner string) bool { return owner != "b" }, nil)
	must(t, err)
	expectAll(t, c, map[string]string{"x-quarantine": "10.1.1.1 b", "x-other": "10.1.1.1 b"})
}

// expectAll compares the elements of all rule sets, with their owners.
func expectAll(t testing.TB, c *nft.Conn, want map[string]string) {
	t.Helper()
	all, err := c.All()
	must(t, err)
	got := map[string]string{}
	for name, list := range all {
		var lines []string
		for _, h := range list {
			lines = append(lines, h.Text+" "+h.Comment)
		}
		slices.Sort(lines)
		got[name] = strings.Join(lines, ", ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("elements (-want +got):\n%s", diff)
	}
}

func TestAddressRulesMissing(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	rs := ruleSetOf(t, quarantine)
	request := holding(t, rs, "a", "10.1.1.1", "fd00::1")
	for _, row := range []struct {
		command string
		missing int
	}{
		{"delete element inet tenon x-quarantine-4 { 10.1.1.1 }", 1},
		{"flush chain inet tenon x-quarantine", 2},
		{"flush table inet tenon", 2},
		{"delete table inet tenon", 2},
		{"flush chain inet tenon x-quarantine; delete chain inet tenon x-quarantine", 2},
	} {
		apply(t, c, request)
		if list, err := lacks(t, c, request); err != nil || len(list) != 0 {
			t.Errorf("before %s: %v, %v", row.command, list, err)
		}
		ns.Command("nft", row.command)
		if list, err := lacks(t, c, request); err != nil || len(list) != row.missing {
			t.Errorf("after %s: %v, %v", row.command, list, err)
		}
	}
}

// TestAddressRulesOfOthers lists and erases rule sets of other programs.
func TestAddressRulesOfOthers(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	expectAll(t, c, map[string]string{})
	ns.Command("nft", `add table inet tenon; add set inet tenon x-4 { type ipv4_addr; };
		add set inet tenon x-far-away-6 { type ipv6_addr; elements = { fd00::1 comment "a" }; };
		add set inet tenon far-4 { type ipv4_addr; elements = { 10.1.1.1 comment "a" }; }`)
	expectAll(t, c, map[string]string{"x-far-away": "fd00::1 a"})
	_, refused, err := c.Erase(t.Context(), func(owner string) bool { return owner != "a" })
	if err != nil || len(refused) != 1 || refused[0].Set != "x-far-away-6" {
		t.Errorf("refused %v, %v", refused, err)
	}
	erased, refused, err := c.Erase(t.Context(), is("a"))
	if err != nil || len(refused) != 0 || len(erased) != 1 {
		t.Errorf("erased %v, refused %v, %v", erased, refused, err)
	}
	expectAll(t, c, map[string]string{})
}
