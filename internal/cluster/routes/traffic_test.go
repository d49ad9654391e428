package routes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
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

func dump(l *lab) string {
	var b strings.Builder
	for _, n := range l.nodes {
		fmt.Fprintln(&b, n.own.Name, n.Host.Command("sh", "-c",
			"ip -d address; ip route; ip -6 route; ip neigh; bridge fdb; nft list ruleset"))
	}
	return b.String()
}
