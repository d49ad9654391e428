package kernel_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
)

var chain = iptables.Masquerade{Chain: "CNI-1", Comment: "one"}

// jumps selects the rules of both families that jump from POSTROUTING to a chain.
func jumps(chain string) kernel.IPTables {
	return kernel.IPTables{Table: "nat", Removal: iptables.Removal{In: "POSTROUTING", Target: chain}}
}

// TestMasqueradeIPTables creates, repeats, rolls back and removes, with both variants of iptables.
// It is not parallel because it changes PATH.
func TestMasqueradeIPTables(t *testing.T) {
	for _, kind := range []string{"-nft", "-legacy"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "-legacy" {
				testnet.LegacyIPTables(t)
			}
			b := setup(t)
			for _, tool := range []string{"iptables", "ip6tables"} {
				b.Host.Command(tool+kind, "-t", "nat", "-A", "POSTROUTING", "-o", "eth9", "-j", "MASQUERADE")
			}
			foreign := testnet.IPTables(b.Host, kind, "nat")
			same := func(what, want string) {
				t.Helper()
				if got := testnet.IPTables(b.Host, kind, "nat"); got != want {
					t.Errorf("%s: got\n%s, want\n%s", what, got, want)
				}
			}
			first, second := []netip.Prefix{prefix("10.1.2.3/24"), prefix("fd00::3/64")}, []netip.Prefix{prefix("10.1.2.4/24"), prefix("fd00::4/64")}
			must(t, b.host.Rules.MasqueradeIPTables(chain, first))
			one := testnet.IPTables(b.Host, kind, "nat")
			if strings.Count(one, "-j CNI-1") != 2 || strings.Count(one, "-A CNI-1 ") != 4 {
				t.Errorf("rules:\n%s", one)
			}
			must(t, b.tx.Rollback())
			same("rolled back", foreign)
			must(t, b.host.Rules.MasqueradeIPTables(chain, first))
			b.tx.Keep()
			must(t, b.host.Rules.MasqueradeIPTables(chain, first))
			same("once more", one)
			must(t, b.tx.Rollback())
			same("once more, rolled back", one)
			must(t, b.host.Rules.MasqueradeIPTables(chain, second))
			rules, err := b.host.Rules.OfIPTables(jumps("CNI-1"))
			if len(rules) != 4 || err != nil {
				t.Errorf("jumps %v, %v; want 4", rules, err)
			}
			some := jumps("")
			some.Match = func(r kernel.IPTablesRule) bool { return r.Source == addr("10.1.2.4") || r.Source == addr("fd00::4") }
			must(t, b.host.Rules.RemoveIPTables(some))
			same("second address removed", one)
			must(t, b.host.Rules.RemoveIPTables(jumps("CNI-1")))
			same("all removed", foreign)
			must(t, b.host.Rules.RemoveIPTables(jumps("CNI-1")))
			must(t, b.tx.Rollback())
			same("rolled back after the removal", foreign)
		})
	}
}

// TestEditIPTables creates, changes, rolls back, checks and removes, with both variants of
// iptables, in a table with other rules. It is not parallel because it changes PATH.
func TestEditIPTables(t *testing.T) {
	first := iptables.Edit{
		Chains: []string{"SHARED"}, Common: []string{"-I FORWARD -j SHARED", "-A SHARED -o eth8 -j RETURN"},
		Own:   []string{"OWN"},
		Rules: []string{`-A SHARED -i eth0 -m comment --comment "of one" -j OWN`, "-A OWN -s 10.1.2.3/32 -j ACCEPT", "-A OWN -j DROP"},
	}
	second := first
	second.Rules = []string{`-A SHARED -i eth1 -m comment --comment "of one" -j OWN`, "-A OWN -j DROP", "-A OWN -s 10.1.2.3/32 -j ACCEPT"}
	second.Drop = func(r kernel.IPTablesRule) bool { return r.Chain == "SHARED" && r.In == "eth7" }
	table := iptables.Table{Name: "filter"}
	for _, kind := range []string{"-nft", "-legacy"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "-legacy" {
				testnet.LegacyIPTables(t)
			}
			b := setup(t)
			rule := func(words string) { b.Host.Command("iptables"+kind, strings.Fields(words)...) }
			rule("-A FORWARD -i eth9 -j ACCEPT")
			state := func() []string { return strings.Split(testnet.IPTables(b.Host, kind, "filter"), "\n") }
			same := func(what string, want []string) {
				t.Helper()
				if diff := cmp.Diff(want, state()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			before := state()
			must(t, b.host.Rules.EditIPTables(table, first))
			must(t, b.tx.Rollback())
			same("rolled back", before)

			rule("-N SHARED")
			rule("-A SHARED -i eth7 -j ACCEPT")
			rule("-A SHARED -j ACCEPT")
			must(t, b.host.Rules.EditIPTables(table, first))
			b.tx.Keep()
			one := state()
			must(t, b.host.Rules.CheckIPTables(table, first.Rules))
			must(t, b.host.Rules.EditIPTables(table, first))
			same("once more", one)
			must(t, b.host.Rules.EditIPTables(table, second))
			want := []string{
				"-A FORWARD -j SHARED", "-A FORWARD -i eth9 -j ACCEPT", "-A OWN -j DROP", "-A OWN -s 10.1.2.3/32 -j ACCEPT",
				"-A SHARED -j ACCEPT", "-A SHARED -o eth8 -j RETURN", `-A SHARED -i eth1 -m comment --comment "of one" -j OWN`,
			}
			got := slices.DeleteFunc(state(), func(line string) bool { return !strings.HasPrefix(line, "-A") })
			slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			if err := b.host.Rules.CheckIPTables(table, first.Rules); !errors.Is(err, iptables.ErrMissing) || !strings.Contains(err.Error(), "-i eth0") {
				t.Errorf("check of a removed rule: %v", err)
			}
			must(t, b.tx.Rollback())
			same("changed, rolled back", one)

			must(t, b.host.Rules.RemoveIPTables(kernel.IPTables{Table: "filter", Removal: iptables.Removal{
				In: "SHARED", Match: func(r kernel.IPTablesRule) bool { return r.In == "eth7" || r.Comment == "of one" },
			}}))
			if got := strings.Join(state(), "\n"); strings.Contains(got, "OWN") || strings.Contains(got, "eth7") {
				t.Errorf("removed:\n%s", got)
			}
			last := kernel.IPTables{Table: "filter", Removal: iptables.Removal{
				In: "FORWARD", Target: "SHARED", Unless: func(r kernel.IPTablesRule) bool { return r.Target == "ACCEPT" },
			}}
			left := state()
			must(t, b.host.Rules.RemoveIPTables(last))
			same("somebody needs it", left)
			rule("-D SHARED -j ACCEPT")
			must(t, b.host.Rules.RemoveIPTables(last))
			same("all removed", before)
			must(t, b.host.Rules.RemoveIPTables(last))
		})
	}
}

// TestMasqueradeIPTablesRace: concurrent identical requests create one rule.
func TestMasqueradeIPTablesRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var wg sync.WaitGroup
	for range 8 {
		host := open(t, kernel.Begin(t.Context()), b.Host)
		wg.Go(func() {
			if err := host.Rules.MasqueradeIPTables(chain, []netip.Prefix{prefix("10.1.2.3/24")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if out := testnet.IPTables(b.Host, "", "nat"); strings.Count(out, "-A ") != 3 {
		t.Errorf("rules:\n%s", out)
	}
}

func TestGuardWithinTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, port := b.veth(t)
	must(t, b.host.Rules.Guard("first", port, inside.MAC))
	b.tx.Keep()
	before := b.snapshot(t)
	must(t, b.host.Rules.Guard("second", port, port.MAC))
	if held, err := b.host.Rules.Held(nft.Guarding); len(held) != 2 || held[0].Comment != "second" || err != nil {
		t.Errorf("guarded: %v, %v", held, err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
	held, err := b.host.Rules.RemoveIf(nft.GuardedPort("veth0"), nft.Guarding, func(tag string) bool { return tag == "first" })
	if len(held) != 2 || err != nil {
		t.Errorf("removed %v, %v", held, err)
	}
}

// BenchmarkRemoveNothing measures the cost for DEL of looking for rules of the upstream plugins.
func BenchmarkRemoveNothing(b *testing.B) {
	s := setup(b)
	never := func(string) bool { return false }
	must(b, s.host.Rules.Guard("other", kernel.Link{Name: "port"}, []byte{2, 0, 0, 0, 0, 1}))
	for name, remove := range map[string]func() error{
		"iptables": func() error { return s.host.Rules.RemoveIPTables(jumps("CNI-1")) },
		"nftables": func() error {
			return s.host.Rules.Prune(kernel.Pruning{Table: kernel.Table{Family: nft.INet, Name: "cni_plugins_masquerade"}, Base: "masq_checks"})
		},
		"guard": func() error {
			_, err := s.host.Rules.RemoveIf(nft.GuardedPort("absent"), nft.Guarding, never)
			return err
		},
		"guards of upstream bridge": func() error {
			return s.host.Rules.Prune(kernel.Pruning{Table: kernel.Table{Family: nft.Bridge, Name: "nat"}, Base: "PREROUTING", Chains: []string{"cni-br-iface-a-eth0"}})
		},
	} {
		b.Run(name, func(b *testing.B) {
			s.Host.Do(func() { // as in a plugin
				for b.Loop() {
					must(b, remove())
				}
			})
		})
	}
}

// TestMasqueradeIPTablesCalledOff: a deadline may kill iptables just after it has made its change.
func TestMasqueradeIPTablesCalledOff(t *testing.T) {
	real, err := exec.LookPath("iptables-restore")
	must(t, err)
	dir := t.TempDir()
	must(t, exefile.Write(dir+"/iptables-restore", []byte("#!/bin/sh\n"+real+" \"$@\"\nexec sleep 60\n")))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	b := setup(t)
	b.Host.Command("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "eth9", "-j", "MASQUERADE")
	before := b.snapshot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	b.begin(t, ctx)
	if err := b.host.Rules.MasqueradeIPTables(chain, []netip.Prefix{prefix("10.1.2.3/24")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	b.unchanged(t, before)
}

// TestIPTablesProcesses: masquerading starts one process per family, and removal none. An
// additional process reads the chain only if it exists.
func TestIPTablesProcesses(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	for _, tool := range []string{"iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save"} {
		path, err := exec.LookPath(tool)
		must(t, err)
		must(t, exefile.Write(filepath.Join(dir, tool), []byte("#!/bin/sh\necho "+tool+" >>"+log+"\nexec "+path+" \"$@\"\n")))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	b := setup(t)
	started := func(want ...string) {
		t.Helper()
		got, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		must(t, os.WriteFile(log, nil, 0o600))
		if got := strings.Fields(string(got)); !slices.Equal(got, want) {
			t.Errorf("started %v, want %v", got, want)
		}
	}
	must(t, b.host.Rules.MasqueradeIPTables(chain, []netip.Prefix{prefix("10.1.2.3/24"), prefix("fd00::3/64"), prefix("10.1.2.4/24")}))
	started("iptables-restore", "ip6tables-restore")
	must(t, b.host.Rules.MasqueradeIPTables(chain, []netip.Prefix{prefix("10.1.2.5/24")}))
	started("iptables-save", "iptables-restore")
	must(t, b.host.Rules.MasqueradeIPTables(chain, []netip.Prefix{prefix("10.1.2.5/24")}))
	started("iptables-save")
	must(t, b.host.Rules.RemoveIPTables(jumps("CNI-1")))
	must(t, b.tx.Rollback())
	started()
}
