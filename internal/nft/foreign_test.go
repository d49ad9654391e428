package nft_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestRules(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-nft"))
	ns, c := setup(t)
	ns.Command("nft", `add table inet masq
		add chain inet masq checks
		add rule inet masq checks ip saddr 10.1.2.3 ip daddr != 10.1.2.0/24 masquerade comment "four"
		add rule inet masq checks ip6 saddr fd00::3 masquerade comment "six"
		add table ip cni_hostport
		add chain ip cni_hostport hostports
		add rule ip cni_hostport hostports ip daddr 192.0.2.1 tcp dport 8080 dnat to 10.1.2.2:80 comment "cid1"
		add table ip6 cni_hostport
		add chain ip6 cni_hostport hostports
		add rule ip6 cni_hostport hostports udp dport 53 dnat to [fd00::2]:5353 comment "cid2"
		add table bridge nat
		add chain bridge nat target
		add chain bridge nat ports
		add rule bridge nat ports iifname "veth1" jump target comment "of a port"
		add rule bridge nat ports iifname != "veth2" ether saddr 02:00:00:00:00:01 drop`)
	for _, rule := range []string{
		"-N CHAIN",
		"-A POSTROUTING -s 10.1.2.3/32 -m comment --comment the_one -j CHAIN",
		"-A POSTROUTING -s 10.1.0.0/16 -d 10.9.0.0/16 -p tcp --dport 80 -g CHAIN",
		"-A POSTROUTING -s 10.128.0.0/9 -j CHAIN",
		"-A POSTROUTING ! -s 10.1.2.3 -j ACCEPT",
		"-A POSTROUTING -m addrtype --dst-type LOCAL -m mark --mark 0x1 -j MASQUERADE",
		"-A CHAIN -i br0 ! -o br0 -j ACCEPT",
		"-A CHAIN -d 10.1.2.3 -o br0 -j RETURN",
		"-A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.1.2.3:80",
	} {
		ns.Command("iptables-nft", append([]string{"-t", "nat"}, strings.Fields(rule)...)...)
	}
	ns.Command("ip6tables-nft", "-t", "nat", "-A", "POSTROUTING", "-s", "fd00::3/128", "-j",
		"MASQUERADE")
	ns.Command("ip6tables-nft", "-t", "nat", "-A", "POSTROUTING", "-d", "fd00::3/128", "-m",
		"conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	ns.Command("ip6tables-nft", "-t", "nat", "-A", "PREROUTING", "-p", "udp", "-j", "DNAT",
		"--to-destination", "[fd00::3]:80-90")
	addr := netip.MustParseAddr
	for _, row := range []struct {
		table nft.Table
		chain string
		want  []nft.Rule
	}{
		{nft.Table{Family: nft.INet, Name: "masq"}, "checks", []nft.Rule{
			{Comment: "four", Source: addr("10.1.2.3"), Others: 2},
			{Comment: "six", Source: addr("fd00::3"), Others: 1},
		}},
		{nft.Table{Family: nft.Bridge, Name: "nat"}, "ports",
			[]nft.Rule{{Comment: "of a port", Jump: "target", IIFName: "veth1"},
				{Verdict: "drop", Others: 2}}},
		{nft.Table{Family: nft.IPv4, Name: "nat"}, "POSTROUTING", []nft.Rule{
			{Comment: "the_one", Jump: "CHAIN", Source: addr("10.1.2.3")},
			{Jump: "CHAIN", Source: addr("10.1.0.0"), Dest: addr("10.9.0.0"), Others: 2,
				Protocol: 6, Port: 80},
			{Jump: "CHAIN", Source: addr("10.128.0.0")},
			{Verdict: "accept", Others: 1}, {Verdict: "MASQUERADE", Others: 2},
		}},
		{nft.Table{Family: nft.IPv4, Name: "nat"}, "CHAIN", []nft.Rule{
			{Verdict: "accept", IIFName: "br0", Others: 1},
			{Verdict: "return", Dest: addr("10.1.2.3"), OIFName: "br0"},
		}},
		{nft.Table{Family: nft.IPv6, Name: "nat"}, "POSTROUTING",
			[]nft.Rule{{Verdict: "MASQUERADE", Source: addr("fd00::3")},
				{Verdict: "accept", Dest: addr("fd00::3"), Others: 1}}},
		{nft.Table{Family: nft.IPv4, Name: "nat"}, "PREROUTING", []nft.Rule{
			{Verdict: "DNAT", Others: 2, Protocol: 6, Port: 8080,
				DNAT: netip.MustParseAddrPort("10.1.2.3:80")},
		}},
		{nft.Table{Family: nft.IPv6, Name: "nat"}, "PREROUTING",
			[]nft.Rule{{Verdict: "DNAT", Others: 1, Protocol: 17,
				DNAT: netip.MustParseAddrPort("[fd00::3]:80")}}},
		{nft.Table{Family: nft.IPv6, Name: "nat"}, "absent", nil},
		{nft.Table{Family: nft.INet, Name: "absent"}, "absent", nil},
	} {
		got, err := c.Rules(row.table, row.chain)
		must(t, err)
		if diff := cmp.Diff(row.want, got, cmpopts.IgnoreUnexported(nft.Rule{}),
			cmpopts.EquateComparable(netip.Addr{},
				netip.AddrPort{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", row.table.Name, row.chain, diff)
		}
	}
}

const pruned = `add table ip t
	add chain ip t base { type filter hook input priority 0; }
	add chain ip t other
	add chain ip t first
	add chain ip t second
	add rule ip t first jump second
	add rule ip t second drop
	add rule ip t base ip saddr 10.0.0.1 jump first comment "a"
	add rule ip t base ip saddr 10.0.0.2 jump first comment "b"
	add rule ip t base ip saddr 10.0.0.3 jump other comment "a"
	add rule ip t other accept`

func TestPrune(t *testing.T) {
	t.Parallel()
	table := nft.Table{Family: nft.IPv4, Name: "t"}
	comment := func(want ...string) func(nft.Rule) bool {
		return func(r nft.Rule) bool {
			return slices.Contains(want, r.Comment) && r.Jump == "first"
		}
	}
	for _, row := range []struct {
		name   string
		chains []string
		match  func(nft.Rule) bool
		gone   []string // lines of the ruleset
	}{
		{"no rule matches", nil, comment("c"), nil},
		{"rules only", nil, comment("a"), []string{`ip saddr 10.0.0.1 jump first comment "a"`}},
		{"a chain that is still used stays", []string{"first", "second"}, comment("a"),
			[]string{`ip saddr 10.0.0.1 jump first comment "a"`}},
		{"removing the last jump removes the chains", []string{"first", "second"},
			comment("a", "b"), []string{
				`ip saddr 10.0.0.1 jump first comment "a"`,
				`ip saddr 10.0.0.2 jump first comment "b"`,
				"chain first {", "chain second {", "jump second", "drop",
			}},
		{"chain that does not exist", []string{"absent", "second"}, comment("a", "b"), nil},
		{"a rule of the chains prevents the removal", []string{"first", "second"},
			comment("a", "b"), nil},
		{"second chain that does not exist", []string{"first", "absent"}, comment("a"),
			[]string{`ip saddr 10.0.0.1 jump first comment "a"`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns, c := setup(t)
			ns.Command("nft", pruned)
			lines := func() (list []string) {
				for line := range strings.Lines(ns.Command("nft", "list", "ruleset")) {
					if line = strings.TrimSpace(line); line != "" && line != "}" {
						list = append(list, line)
					}
				}
				return list
			}
			want := slices.DeleteFunc(lines(), func(line string) bool {
				return slices.Contains(row.gone, line)
			})
			before := generation(t, ns)
			p := nft.Pruning{Table: table, Base: "base", Chains: row.chains, Match: row.match}
			if row.name == "a rule of the chains prevents the removal" {
				p.Unless = func(r nft.Rule) bool { return r.Verdict == "drop" } // in the second chain
			}
			must(t, c.Prune(t.Context(), p))
			if diff := cmp.Diff(want, lines()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if after := generation(t, ns); after != before+uint32(min(len(row.gone), 1)) {
				t.Errorf("%d transactions", after-before)
			}
		})
	}
}

// TestPruneOfAChainInUse checks that a chain that another chain also jumps to cannot be removed.
func TestPruneOfAChainInUse(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	ns.Command("nft", pruned+"\nadd rule ip t other jump first")
	before := ns.Command("nft", "list", "ruleset")
	err := c.Prune(t.Context(), nft.Pruning{
		Table: nft.Table{Family: nft.IPv4, Name: "t"}, Base: "base", Chains: []string{"first"},
		Match: func(r nft.Rule) bool { return r.Jump == "first" },
	})
	if err == nil || !strings.Contains(err.Error(), "ip t") {
		t.Errorf("got %v, want an error that names the table", err)
	}
	if diff := cmp.Diff(before, ns.Command("nft", "list", "ruleset")); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestPruneRace prunes while another process removes rules of the same chain.
func TestPruneRace(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	var script strings.Builder
	script.WriteString(pruned)
	for i := range 200 {
		fmt.Fprintf(&script, "\nadd rule ip t base counter comment \"%d\"", i)
	}
	ns.Command("nft", script.String())
	var wg sync.WaitGroup
	for i := range 4 {
		one := open(t, ns)
		wg.Go(func() {
			for n := i; n < 200; n += 4 {
				if err := one.Prune(t.Context(), nft.Pruning{
					Table: nft.Table{Family: nft.IPv4, Name: "t"}, Base: "base",
					Match: func(r nft.Rule) bool {
						return r.Comment == fmt.Sprint(n) || r.Comment == fmt.Sprint(n^1)
					},
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rules, err := c.Rules(nft.Table{Family: nft.IPv4, Name: "t"}, "base")
	if len(rules) != 3 || err != nil {
		t.Errorf("%d rules left, %v; want 3", len(rules), err)
	}
}

// TestForeignRulesAreNotRead checks that Prune does not read the rules of other programs, even in
// the chain to search, if the upstream plugin has left nothing.
func TestForeignRulesAreNotRead(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	flood(t, ns, 20000)
	prune := func(chain string) (read int) {
		must(t, c.Prune(t.Context(), nft.Pruning{
			Table: nft.Table{Family: nft.Bridge, Name: "nat"}, Base: "PREROUTING",
			Chains: []string{chain},
			Match:  func(nft.Rule) bool { read++; return false },
		}))
		return read
	}
	if n := prune("cni-br-iface-a-eth0"); n != 0 {
		t.Errorf("%d rules read", n)
	}
	guard(t, c, "a", "port1", mac(1))
	unguard(t, c, "port1", is("a"))
	ns.Command("nft", "add chain bridge nat cni-br-iface-a-eth0")
	if n := prune("cni-br-iface-a-eth0"); n != 20000 {
		t.Errorf("with rules to remove, %d rules were read, want all", n)
	}
}

// TestLongChain asks for chains with names that follow from long container IDs: the longest name that the
// kernel allows, and a longer one, which no chain can have.
func TestLongChain(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	nat := nft.Table{Family: nft.Bridge, Name: "nat"}
	longest := strings.Repeat("x", 255)
	ns.Command("nft", "add table bridge nat; add chain bridge nat "+longest)
	for name, want := range map[string]bool{longest: true, longest + "x": false} {
		got, err := c.HasChain(nat, name)
		must(t, err)
		if got != want {
			t.Errorf("chain with a name of %d bytes: %v, want %v", len(name), got, want)
		}
	}
}

// BenchmarkPruneNothing measures the cost that DEL pays for each place where the upstream plugins
// could have left rules, with and without rules of other programs there.
func BenchmarkPruneNothing(b *testing.B) {
	for _, foreign := range []int{0, 20000} {
		b.Run(fmt.Sprint(foreign), func(b *testing.B) {
			ns, c := setup(b)
			flood(b, ns, foreign)
			for b.Loop() {
				must(b, c.Prune(b.Context(), nft.Pruning{
					Table: nft.Table{Family: nft.Bridge, Name: "nat"}, Base: "PREROUTING",
					Chains: []string{"cni-br-iface-a-eth0"},
					Match:  func(nft.Rule) bool { return true },
				}))
			}
		})
	}
}

// flood fills the chain in which the upstream plugin has its guards with rules of other programs.
func flood(t testing.TB, ns *testnet.Namespace, rules int) {
	t.Helper()
	var script strings.Builder
	script.WriteString("add table bridge nat\nadd chain bridge nat PREROUTING { type filter hook prerouting priority -300; }\n")
	for i := range rules {
		fmt.Fprintf(&script, "add rule bridge nat PREROUTING iifname \"port%d\" ether saddr 02:00:00:00:00:01 drop\n", i)
	}
	path := t.TempDir() + "/rules"
	must(t, os.WriteFile(path, []byte(script.String()), 0o600))
	ns.Command("nft", "-f", path)
}
