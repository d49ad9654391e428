package routes_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestAnyPodToAnyPod: containers on three nodes reach each other in each mode and family, with
// packets of the size of the MTU, and under their own addresses although ipMasq is on.
func TestAnyPodToAnyPod(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		mode  routes.Mode
		under underlay
		split bool
		mtu   int
		paths string // of n1 to n2 and n3
	}{
		{"host-gw", routes.ModeHostGW, dual, false, 1500, "host-gw host-gw host-gw host-gw"},
		{"host-gw over IPv6", routes.ModeHostGW, only6, false, 1500, "host-gw host-gw host-gw host-gw"},
		{"VXLAN", routes.ModeVXLAN, dual, false, 1450, "vxlan vxlan vxlan vxlan"},
		{"VXLAN over IPv4", routes.ModeVXLAN, only4, true, 1450, "vxlan vxlan vxlan vxlan"},
		{"VXLAN over IPv6", routes.ModeVXLAN, only6, true, 1430, "vxlan vxlan vxlan vxlan"},
		{"auto", routes.ModeAuto, dual, true, 1450, "host-gw host-gw vxlan vxlan"},
		{"auto over IPv4", routes.ModeAuto, only4, false, 1450, "host-gw vxlan host-gw vxlan"},
		{"auto over IPv6", routes.ModeAuto, only6, true, 1430, "host-gw host-gw vxlan vxlan"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, row.mode, row.under, row.split)
			l.apply()
			pods := l.pods()
			l.apply() // the first container gave the bridge an address
			report := l.nodes[0].report
			if report.MTU != row.mtu || report.Underlay != 1500 {
				t.Errorf("MTU %d of %d, want %d", report.MTU, report.Underlay, row.mtu)
			}
			var modes []string
			for _, p := range report.Paths {
				modes = append(modes, string(p.Mode))
			}
			if got := strings.Join(modes, " "); got != row.paths {
				t.Errorf("paths %s, want %s", got, row.paths)
			}
			l.full(pods)
			for _, n := range l.nodes {
				if r := n.apply(); r.Changes != 0 {
					t.Errorf("%s: %d changes the second time", n.own.Name, r.Changes)
				}
			}
			if t.Failed() {
				t.Log(dump(l))
			}
		})
	}
}

// TestIPTables: the backend iptables keeps the source as well, for containers that are attached
// after the pools are known.
func TestIPTables(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT, kernel.FeatureBridge,
		kernel.FeatureVXLAN, kernel.FeatureIPv6), testnet.Tool("iptables"), testnet.Tool("nft"))
	l := &lab{t: t, net: testnet.New(t), mode: routes.ModeAuto, backend: "iptables"}
	l.build(dual, true)
	l.apply()
	pods := l.pods()
	l.apply()
	for _, n := range l.nodes {
		if out := n.Host.Command("iptables", "-t", "nat", "-S"); !strings.Contains(out, "MASQUERADE") {
			t.Fatalf("iptables does not masquerade:\n%s", out)
		}
	}
	l.full(pods)
}

// TestSharedBlock: containers with addresses of one block on different nodes, which consider each
// other neighbours on their bridges, reach each other.
func TestSharedBlock(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT, kernel.FeatureBridge,
		kernel.FeatureVXLAN, kernel.FeatureIPv6), testnet.Tool("nft"))
	for _, mode := range []routes.Mode{routes.ModeVXLAN, routes.ModeAuto} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := &lab{t: t, net: testnet.New(t), mode: mode, shared: true}
			l.build(dual, true)
			l.apply()
			pods := l.pods()
			l.apply()
			l.full(pods)
			first := l.nodes[0]
			if n := first.apply().Changes; n != 0 {
				t.Errorf("%d changes the second time", n)
			}
			first.remove()
			for _, family := range []string{"-4", "-6"} {
				if got := first.Host.Command("ip", family, "neigh", "show", "proxy"); got != "" {
					t.Errorf("left: %s", got)
				}
			}
		})
	}
}

// TestFirewall: with a policy that drops forwarded packets, containers reach each other across
// nodes, once the pools are known, and nothing outside of them opens connections to them.
func TestFirewall(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"policy", "pools"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			l := newLab(t, routes.ModeAuto, dual, true)
			if first == "pools" {
				l.apply()
			}
			pods := map[*node][]netip.Addr{}
			for _, n := range l.nodes {
				pods[n] = n.pod("pod")
				admit(t, n, pods[n])
				n.Host.Command("nft", "chain", "inet", "tenon", "forward", "{ policy drop; }")
			}
			source, target := l.nodes[0].Container("pod"), pods[l.nodes[2]][0]
			if first == "policy" {
				testnet.Reaches(t, source, target, false)
			}
			l.apply()
			for from := range pods {
				for to, addrs := range pods {
					for _, a := range addrs {
						if from != to {
							testnet.Reaches(t, from.Container("pod"), a, true)
						}
					}
				}
			}
			l.outside.Command("ip", "route", "add", "10.64.1.0/26", "via", "192.0.2.1")
			testnet.Reaches(t, l.outside, pods[l.nodes[0]][0], false)
			l.nodes[0].Host.Command("nft", "chain", "inet", "tenon", "forward", "{ policy accept; }")
			testnet.Reaches(t, l.outside, pods[l.nodes[0]][0], true)
		})
	}
}

// admit does what plugin firewall does with its backend nftables.
func admit(t *testing.T, n *node, addrs []netip.Addr) {
	t.Helper()
	n.Host.Do(func() {
		host, closeAll, err := kernel.OpenHost(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll()
		if err := host.Rules.Apply("admit", "owner", kernel.Admit(addrs...)); err != nil {
			t.Fatal(err)
		}
	})
}

func dump(l *lab) string {
	var b strings.Builder
	for _, n := range l.nodes {
		fmt.Fprintln(&b, n.own.Name, n.Host.Command("sh", "-c",
			"ip -d address; ip route; ip -6 route; ip neigh; bridge fdb; nft list ruleset"))
	}
	return b.String()
}
