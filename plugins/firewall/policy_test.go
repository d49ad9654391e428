package firewall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

const (
	isolated   = `,"ingressPolicy":"isolated"`
	sameBridge = `,"ingressPolicy":"same-bridge"`
)

// Of two bridges with two containers each, and a machine beyond the host, who answers whom.
var (
	everybody = []string{"a: b c d outside", "b: a c d outside", "c: a b d outside", "d: a b c outside", "outside: a b c d"}
	bridges   = []string{"a: b outside", "b: a outside", "c: d outside", "d: c outside", "outside: a b c d"}
	nobody    = []string{"a: outside", "b: outside", "c: outside", "d: outside", "outside: a b c d"}
)

// two makes them.
func two(t testing.TB, conf string) *lab {
	t.Helper()
	l := newLab(t, conf, "br0", "br1")
	l.plug("a", "br0", 0, 2)
	l.plug("b", "br0", 0, 3)
	l.plug("c", "br1", 1, 2)
	l.plug("d", "br1", 1, 3)
	l.outside()
	return l
}

// TestReachability is R-34, firewall.md 7: who reaches whom, over IPv4 and IPv6, with each policy and backend. Where the host
// drops what nothing accepts, the containers are let through all the same.
func TestReachability(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{"open": everybody, "same-bridge": bridges, "isolated": nobody} {
		for backend, drop := range map[string]bool{"nftables": false, "iptables": true, "auto": true} {
			t.Run(policy+" "+backend, func(t *testing.T) {
				t.Parallel()
				l := two(t, fmt.Sprintf(`,"backend":%q,"ingressPolicy":%q`, backend, policy))
				want := slices.Clone(want)
				if drop {
					l.Host.Command("iptables", "-P", "FORWARD", "DROP")
					l.Host.Command("ip6tables", "-P", "FORWARD", "DROP")
					l.matrix("a: ", "c: ", "outside: ")
					want[len(want)-1] = "outside: " // only replies come in, as with the reference plugin
				}
				l.add("a", "b", "c", "d")
				l.check("a", "b", "c", "d")
				l.matrix(want...)
				l.bridgesToIP("1")
				l.matrix(want...)
			})
		}
	}
}

// Only bridges that have a policy are kept apart, as with the reference plugin.
func TestPolicyBesideOpen(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{`,"backend":"nftables"`, `,"backend":"iptables"`} {
		l := two(t, backend)
		l.add("c", "d")
		l.conf += isolated
		l.add("a", "b")
		l.matrix("a: c d outside", "b: c d outside", "c: a b d outside", "d: a b c outside", "outside: a b c d")
	}
}

// TestPolicyIsRemovedWithItsLastUser is R-34: neither earlier nor later, with and without a previous result.
func TestPolicyIsRemovedWithItsLastUser(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{sameBridge, isolated} {
		for _, backend := range []string{"nftables", "iptables"} {
			t.Run(backend+strings.ReplaceAll(policy, `"`, ""), func(t *testing.T) {
				t.Parallel()
				l := two(t, fmt.Sprintf(`,"backend":%q`, backend)+policy)
				l.add("a", "b", "c")
				l.del("c")
				l.add("c")
				l.del("a")
				l.check("b", "c")
				l.matrix("b: ", "c: ")
				gone := l.request(cni.Del, "b", l.conf)
				delete(gone.Conf, "prevResult")
				l.Must(gone)
				l.del("c", "c")
				if left := l.isolation(); left != nil {
					t.Errorf("left in %v", left)
				}
				if out := l.saved(); strings.Contains(out, "ISOLATION") || strings.Contains(out, "10.9.") || strings.Contains(out, "fd00:9:") {
					t.Errorf("left:\n%s", out)
				}
				l.matrix(everybody...)
			})
		}
	}
}

// TestPolicyChanges: the policy of the last ADD is that of what is routed, also when its attachment is gone; the port of
// an isolated attachment stays closed. Rules of the policy before do not stay (firewall.md 4).
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := two(t, fmt.Sprintf(`,"backend":%q`, backend)+isolated)
			before := strings.TrimSuffix(l.conf, isolated)
			l.plug("e", "br0", 0, 4)
			l.add("a", "b", "c")
			l.conf = before + sameBridge
			l.add("d", "e")
			l.matrix("a: ", "b: ", "c: ", "d: ", "e: ")
			l.del("b", "c")
			l.add("b", "c")
			l.matrix("a: ", "b: e", "e: b", "c: d", "d: c")
			l.check("b", "c", "d", "e")
			l.conf = before + isolated
			l.checkFails("a", "br0")
			if strings.Contains(l.saved(), "-o br0 -m comment --comment \"CNI firewall plugin rules (ingressPolicy: isolated)\"") {
				t.Errorf("rules of the policy before:\n%s", l.saved())
			}
			l.conf = before // open says nothing about what others have isolated
			l.add("d")
			l.matrix("a: ", "b: e", "e: b")
		})
	}
}

// TestIsolatedLinks is R-34 for networks that are routed: the plugin goes behind all kinds of interface (CONV-06).
func TestIsolatedLinks(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{sameBridge, isolated} {
		for _, backend := range []string{`,"backend":"nftables"`, `,"backend":"iptables"`} {
			t.Run(strings.NewReplacer(`"`, "", ",", " ").Replace(policy+backend), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, policy+backend)
				l.outside()
				for _, name := range []string{"a", "b", "c"} {
					l.link(name)
				}
				l.matrix("a: b c outside", "b: a c outside", "c: a b outside", "outside: a b c")
				l.add("a", "b")
				l.check("a", "b")
				l.matrix("a: c outside", "b: c outside", "c: a b outside", "outside: a b c")
				l.del("a")
				l.matrix("a: b c outside", "b: a c outside")
			})
		}
	}
}

// An isolated container gets nothing from the other ports of its bridge and they get nothing from it, not even a question for
// its address, and whether they are isolated or not.
func TestIsolatedFrames(t *testing.T) {
	t.Parallel()
	l := two(t, isolated)
	l.add("a")
	a, b := l.Net.Container("a"), l.Net.Container("b")
	l.matrix("a: ", "b: ")
	for _, known := range []string{a.Command("ip", "neighbour", "show", "10.9.0.3"), b.Command("ip", "neighbour", "show", "10.9.0.2")} {
		if strings.Contains(known, "lladdr") {
			t.Errorf("neighbour is known: %s", known)
		}
	}
}

// TestFlush is CVE-2025-54388, CVE-2025-54410 and R-06: CHECK notices that the isolation is gone, and ADD puts it back.
func TestFlush(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		for _, flush := range []string{"flush ruleset", "flush table inet tenon", "flush table bridge tenon", "flush table ip filter"} {
			if backend == "nftables" && strings.HasSuffix(flush, "filter") {
				continue
			}
			t.Run(backend+" "+flush, func(t *testing.T) {
				t.Parallel()
				l := two(t, fmt.Sprintf(`,"backend":%q`, backend)+isolated)
				l.Host.Command("iptables", "-N", "OTHER")
				l.add("a", "b", "c")
				l.Host.Command("nft", flush)
				l.checkFails("a", "")
				l.add("a", "b", "c")
				l.check("a", "b", "c")
				l.matrix("a: ", "b: ", "c: ")
				l.Host.Command("nft", flush)
				l.del("a", "b", "c")
				if left := l.isolation(); left != nil {
					t.Errorf("left in %v", left)
				}
			})
		}
	}
}
