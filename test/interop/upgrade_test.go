package interop

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// earlier is an earlier version of Tenon. A clone without history has none: scripts/previous builds
// them from commits.
type earlier struct {
	command string // the absolute path of tenon
	dir     string // and of the directory of plugins
}

// fromEarlier runs a test for each earlier version that testdata/earlier lists.
func fromEarlier(t *testing.T, test func(*testing.T, earlier)) {
	testnet.Long(t)
	t.Parallel()
	list, err := os.ReadFile("testdata/earlier")
	must(t, err)
	for line := range strings.Lines(string(list)) {
		commit, _, _ := strings.Cut(line, " ")
		t.Run(commit, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.Abs(filepath.Join("../../bin/previous", commit))
			must(t, err)
			e := earlier{command: filepath.Join(dir, "tenon"), dir: filepath.Join(dir, "plugins")}
			testnet.Require(t, testnet.Optional(testnet.Tool(e.command)))
			test(t, e)
		})
	}
}

// TestUpgrade attaches with an earlier version and calls CHECK, DEL and GC of this one, and the
// other way round. Nothing may remain.
func TestUpgrade(t *testing.T) {
	rows := append(slices.Clone(takeovers), // and what Debian's plugins lack
		takeover{plugin: "dummy", members: dual, kernel: []kernel.Feature{kernel.FeatureDummy}},
		takeover{plugin: "tap", members: dual, kernel: []kernel.Feature{kernel.FeatureTun}})
	fromEarlier(t, func(t *testing.T, e earlier) {
		for _, row := range rows {
			row.from, row.to = outcome{}, outcome{}
			switch row.plugin {
			case "portmap": // the setting belongs to the interface and goes with it
				route := []string{"veth0/route_localnet"}
				row.from.stays, row.to.stays = route, route
			case "bandwidth": // the earlier CHECK requires filters with priority 1
				row.to.drift = true
			}
			for side, thisAdds := range map[string]bool{"upgrade": false, "downgrade": true} {
				t.Run(strings.TrimSuffix(row.plugin+", "+row.name, ", ")+", "+side, func(t *testing.T) {
					t.Parallel()
					testnet.Require(t, testnet.Kernel(row.kernel...))
					row.test(t, e.dir, thisAdds)
				})
			}
		}
	})
}

// TestUpgradeRepair attaches a container with an earlier version's command and flushes the rule
// set. This version's command then repairs the attachment from the record, checks it and detaches
// it.
func TestUpgradeRepair(t *testing.T) {
	fromEarlier(t, upgradeAndRepair)
}

func upgradeAndRepair(t *testing.T, e earlier) {
	l := newLab(t, e.dir)
	outside := l.Uplink()
	l.write(podNetwork, `{"cniVersion":"1.1.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.85.0.0/16"}],[{"subnet":"fd00:85::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}},
		{"type":"bandwidth","ingressRate":100000000,"ingressBurst":80000000,"egressRate":100000000,"egressBurst":80000000},
		{"type":"firewall","ingressPolicy":"same-bridge"},
		{"type":"tuning","sysctl":{"net.core.somaxconn":"500"},"mtu":1400}]}`)
	for _, name := range []string{"web", "other"} {
		l.container(name)
	}
	this := l.command
	l.command = e.command
	l.add("web", 8080)
	l.must("del", "pods", "web", "--id", "web") // leaves the shared objects
	before := l.snapshot()
	l.add("web", 8080)
	l.add("other", 8081)

	l.command, l.dir = this, plugins
	for _, name := range []string{"web", "other"} {
		l.must("check", "pods", name, "--id", name)
	}
	attached := l.snapshot()
	l.must("repair")
	if diff := withoutSkeleton(testnet.Diff(attached, l.snapshot())); diff != "" {
		t.Errorf("repair changed what CHECK accepted:\n%s", diff)
	}
	l.run("nft", "flush", "ruleset")
	l.must("repair")
	for _, name := range []string{"web", "other"} {
		l.must("check", "pods", name, "--id", name)
	}
	greeted(t, outside, "192.0.2.1:8080", true)
	greeted(t, outside, "192.0.2.1:8081", true)
	l.must("del", "pods", "web", "--id", "web")
	l.run("ip", "netns", "del", "other")
	l.must("gc", "pods", "--keep-none")
	l.run("ip", "netns", "del", "web")
	l.unchanged(before)
	l.nothingKept()
}
