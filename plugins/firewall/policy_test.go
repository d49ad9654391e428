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

// Rows of a matrix of two bridges with two containers each, and a node beyond the host.
var (
	openRows = []string{"a: b c d outside", "b: a c d outside", "c: a b d outside",
		"d: a b c outside", "outside: a b c d"}
	bridges = []string{
		"a: b outside", "b: a outside", "c: d outside", "d: c outside", "outside: a b c d",
	}
	isolatedRows = []string{
		"a: outside", "b: outside", "c: outside", "d: outside", "outside: a b c d",
	}
)

// two creates the two bridges with their containers.
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

// TestReachability: the containers that reach each other, over IPv4 and IPv6, with each policy and
// backend. Containers are admitted even on a host that drops unmatched packets.
func TestReachability(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{
		"open": openRows, "same-bridge": bridges, "isolated": isolatedRows,
	} {
		for backend, drop := range map[string]bool{
			"nftables": false, "iptables": true, "auto": true,
		} {
			t.Run(policy+" "+backend, func(t *testing.T) {
				t.Parallel()
				l := two(t, fmt.Sprintf(`,"backend":%q,"ingressPolicy":%q`, backend, policy))
				want := slices.Clone(want)
				if drop {
					l.Host.Command("iptables", "-P", "FORWARD", "DROP")
					l.Host.Command("ip6tables", "-P", "FORWARD", "DROP")
					l.matrix("a: ", "c: ", "outside: ")
					// only replies reach the containers, as with the upstream plugin
					want[len(want)-1] = "outside: "
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

// TestPolicyBesideOpen: only bridges with a policy are separated, as with the upstream plugin.
func TestPolicyBesideOpen(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{`,"backend":"nftables"`, `,"backend":"iptables"`} {
		l := two(t, backend)
		l.add("c", "d")
		l.conf += isolated
		l.add("a", "b")
		l.matrix("a: c d outside", "b: c d outside", "c: a b d outside", "d: a b c outside",
			"outside: a b c d")
	}
}

// TestPolicyIsRemovedWithItsLastUser: a policy ends exactly with its last attachment, with and
// without a previous result.
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
				if out := l.saved(); strings.Contains(out, "ISOLATION") ||
					strings.Contains(out, "10.9.") || strings.Contains(out, "fd00:9:") {
					t.Errorf("left:\n%s", out)
				}
				l.matrix(openRows...)
			})
		}
	}
}

// TestPolicyChanges: the policy of the last ADD decides about routed packets, even if its
// attachment is gone; the port of an isolated attachment stays closed. Rules of the earlier policy
// are removed.
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
			if strings.Contains(l.saved(),
				"-o br0 -m comment --comment \"CNI firewall plugin rules (ingressPolicy: isolated)\"") {
				t.Errorf("rules of the earlier policy:\n%s", l.saved())
			}
			l.conf = before // open does not change the isolation of other attachments
			l.add("d")
			l.matrix("a: ", "b: e", "e: b")
		})
	}
}

// TestIsolatedLinks: policies of routed networks. The plugin works behind all kinds of interface
// (CONV-06).
func TestIsolatedLinks(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{sameBridge, isolated} {
		for _, backend := range []string{`,"backend":"nftables"`, `,"backend":"iptables"`} {
			t.Run(strings.NewReplacer(`"`, "", ",", " ").Replace(policy+backend),
				func(t *testing.T) {
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

// TestIsolatedFrames: an isolated container exchanges no frame with the other ports of its bridge,
// not even a neighbour solicitation, whether they are isolated or not.
func TestIsolatedFrames(t *testing.T) {
	t.Parallel()
	l := two(t, isolated)
	l.add("a")
	a, b := l.Net.Container("a"), l.Net.Container("b")
	l.matrix("a: ", "b: ")
	for _, known := range []string{a.Command("ip", "neighbour", "show", "10.9.0.3"),
		b.Command("ip", "neighbour", "show", "10.9.0.2")} {
		if strings.Contains(known, "lladdr") {
			t.Errorf("neighbour is known: %s", known)
		}
	}
}

// TestFlush: CHECK fails if the isolation is gone, and ADD restores it (CVE-2025-54388,
// CVE-2025-54410).
func TestFlush(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		for _, flush := range []string{"flush ruleset", "flush table inet tenon",
			"flush table bridge tenon", "flush table ip filter"} {
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
