package firewall_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/firewall"
)

// repair repairs containers.
func (l *lab) repair(names ...string) {
	l.t.Helper()
	for _, name := range names {
		q := l.request(cni.Check, name, l.conf)
		stdin, err := json.Marshal(q.Conf)
		if err != nil {
			l.t.Fatal(err)
		}
		calls := []invoke.Call{{Path: "/nowhere/firewall", Env: q.Env, Stdin: stdin}}
		l.Host.Do(func() {
			outcomes, failed := repair.Run(l.t.Context(), []plugin.Definition{firewall.Plugin},
				calls)
			err = errors.Join(failed, outcomes[0].Err)
		})
		if err != nil {
			l.t.Errorf("repair of %s: %v", name, err)
		}
	}
}

// TestRepair: after a flush a repair restores all rules, and none twice (CVE-2025-54388).
func TestRepair(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := two(t, `,"backend":"`+backend+`"`+isolated)
			l.add("a", "b", "c")
			before := l.saved()
			l.Host.Command("nft", "flush", "ruleset")
			l.repair("a", "b", "c")
			l.repair("a", "b", "c")
			l.check("a", "b", "c")
			l.matrix("a: ", "b: ", "c: ")
			if after := l.saved(); len(after) != len(before) {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestRepairFirewalld: a reload removes the sources, and a repair restores them.
func TestRepairFirewalld(t *testing.T) {
	f := startFake(t)
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	l.add("a")
	f.set(func() { f.sources = nil })
	l.repair("a")
	f.expect(t, sourcesOfA...)
}
