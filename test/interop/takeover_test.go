package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
)

// takeover is a plugin that both implementations have, with its network.
type takeover struct {
	plugin  string
	name    string // of the row, if the plugin has several
	members string // of the configuration
	kernel  []kernel.Feature
	dataDir bool // the plugin keeps files in dataDir
	oneWay  bool // upstream's DEL fails after Tenon's ADD

	from, to outcome // Tenon takes over from upstream, or the reverse
}

// outcome lists the objects that DEL leaves behind: each line of the difference contains one of
// these texts, and each text is in a line.
type outcome struct {
	drift     bool     // CHECK of the implementation that takes over fails, so the test does not call it
	collected []string // Tenon's GC removes these
	stays     []string // GC does not: they end with the interface or the container
}

const (
	dual    = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.85.0.0/24"}],[{"subnet":"fd00:85::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}`
	mapping = `,"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`
)

// Objects that upstream does not know: elements with the owner in their comment, and files with
// previous values.
var (
	elements = []string{"nft set inet tenon"}
	file     = "file "
)

var takeovers = []takeover{
	{plugin: "bridge", members: `,"isGateway":true` + dual},
	{plugin: "bridge", name: "masquerading by iptables", members: `,"isGateway":true,"ipMasq":true,"ipMasqBackend":"iptables"` + dual},
	{plugin: "bridge", name: "masquerading", members: `,"isGateway":true,"ipMasq":true` + dual, oneWay: true},
	{plugin: "ptp", members: dual},
	{plugin: "ptp", name: "masquerading by iptables", members: `,"ipMasq":true,"ipMasqBackend":"iptables"` + dual},
	{plugin: "ptp", name: "masquerading", members: `,"ipMasq":true` + dual, oneWay: true},
	{plugin: "macvlan", members: `,"master":"eno1"` + dual, kernel: []kernel.Feature{kernel.FeatureMacvlan}},
	{plugin: "ipvlan", members: `,"master":"eno1"` + dual, kernel: []kernel.Feature{kernel.FeatureIPvlan}},
	{plugin: "vlan", members: `,"master":"eno1","vlanId":5` + dual, kernel: []kernel.Feature{kernel.FeatureVLAN}},
	{plugin: "host-device", members: `,"device":"eno1"` + dual, dataDir: true,
		from: outcome{stays: []string{`- host link eno1 ifalias "eno1"`}}, // upstream leaves it
		to:   outcome{collected: []string{file}}},
	{plugin: "loopback"},
	{plugin: "host-local", members: dual},
	{plugin: "static", members: `,"ipam":{"type":"static","addresses":[{"address":"10.85.0.7/24","gateway":"10.85.0.1"},{"address":"fd00:85::7/64"}]}`},
	{plugin: "portmap", members: mapping,
		from: outcome{stays: []string{"veth0/route_localnet"}},
		to:   outcome{drift: true, collected: []string{elements[0], "nft map inet tenon"}, stays: []string{"veth0/route_localnet"}}},
	{plugin: "portmap", name: "iptables", members: `,"backend":"iptables"` + mapping,
		from: outcome{stays: []string{"veth0/route_localnet"}},
		to:   outcome{drift: true, collected: elements, stays: []string{"veth0/route_localnet"}}},
	{plugin: "bandwidth", members: `,"ingressRate":1000000,"ingressBurst":80000,"egressRate":1000000,"egressBurst":80000`,
		kernel: []kernel.Feature{kernel.FeatureIFB, kernel.FeatureShaping},
		to:     outcome{stays: []string{"host filter dev veth0", "host qdisc ", `host link veth0 qdisc "tbf"`}}},
	{plugin: "tuning", members: `,"mac":"02:00:00:aa:bb:cc","mtu":1400,"promisc":true,"sysctl":{"net.core.somaxconn":"5"}`, dataDir: true,
		from: outcome{stays: []string{"c sysctl core/somaxconn"}}, // upstream does not store it
		to:   outcome{collected: []string{"c sysctl core/somaxconn", file}}},
	{plugin: "firewall", to: outcome{drift: true, collected: elements}},
	{plugin: "firewall", name: "iptables", members: `,"backend":"iptables"`, to: outcome{collected: elements}},
	{plugin: "sbr", from: outcome{stays: []string{"c route "}}, to: outcome{stays: []string{"c route "}}},
	// Upstream loses addresses and routes of the container when it moves the interface.
	{plugin: "vrf", members: `,"vrfname":"blue"`, kernel: []kernel.Feature{kernel.FeatureVRF},
		from: outcome{drift: true, stays: []string{"- c route "}}, to: outcome{stays: []string{"- c route ", "- c addr "}}},
}

// TestTakeover: Tenon's plugin checks and deletes the attachments of the upstream plugin, and the
// reverse. Only the objects in the table remain.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, row := range takeovers {
		for side, tenonAdds := range map[string]bool{"from upstream": false, "to upstream": true} {
			if row.oneWay && tenonAdds {
				continue
			}
			t.Run(strings.TrimSuffix(row.plugin+", "+row.name, ", ")+", "+side, func(t *testing.T) {
				t.Parallel()
				testnet.Require(t, testnet.Tool(filepath.Join(upstream, row.plugin)), testnet.Kernel(row.kernel...))
				row.test(t, upstream, tenonAdds)
			})
		}
	}
}

// test attaches with Tenon or with the plugins in dir, as tenonAdds says, and detaches with the
// other.
func (row takeover) test(t *testing.T, dir string, tenonAdds bool) {
	r := row.runtime(t)
	call := func(tenon bool, verb cni.Command, container string, prev json.RawMessage) json.RawMessage {
		t.Helper()
		q := r.Request(verb, container)
		if prev != nil {
			q.Conf["prevResult"] = prev
		}
		if tenon {
			return r.Must(q)
		}
		return r.Foreign(dir, q)
	}
	for i, tenon := range []bool{true, false} { // leaves the shared objects
		warm := fmt.Sprintf("warm-%d", i)
		call(tenon, cni.Del, warm, call(tenon, cni.Add, warm, nil))
		r.Remove(warm)
	}
	r.Container("c")
	before := r.State()
	want := row.from
	if tenonAdds {
		want = row.to
	}
	result := call(tenonAdds, cni.Add, "c", nil)
	if !want.drift {
		call(!tenonAdds, cni.Check, "c", result)
	}
	call(!tenonAdds, cni.Del, "c", result)
	want.compare(t, "DEL", testnet.Diff(before, r.State()))
	want.collected = nil
	r.Conf["cniVersion"] = "1.1.0" // the first version with GC
	r.Must(r.Collect())
	want.compare(t, "GC", testnet.Diff(before, r.State()))
}

// compare fails the test if a verb left other objects behind.
func (o outcome) compare(t *testing.T, verb, diff string) {
	t.Helper()
	texts := slices.Concat(o.collected, o.stays)
	for line := range strings.Lines(diff) {
		expected := func(text string) bool { return strings.Contains(line, text) }
		if withoutSkeleton(line) != "" && !slices.ContainsFunc(texts, expected) {
			t.Errorf("%s has left: %s", verb, line)
		}
	}
	for _, text := range texts {
		if !strings.Contains(diff, text) {
			t.Errorf("%s has left nothing with %q:\n%s", verb, text, diff)
		}
	}
}

// runtime returns a host with the network, in the newest version that Debian's plugins support.
func (row takeover) runtime(t *testing.T) *plugintest.Runtime {
	t.Helper()
	i := slices.IndexFunc(all.Plugins, func(p plugin.Definition) bool { return p.Name == row.plugin })
	r := plugintest.NewRuntime(t, all.Plugins[i], fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":%q%s}`, row.plugin, row.members))
	r.Host.Wire("eno1")
	if row.dataDir {
		r.Conf["dataDir"] = filepath.Join(r.Dir, "data")
	}
	return r
}

// TestTakeoverOfAll: the table has every plugin that both implementations have.
func TestTakeoverOfAll(t *testing.T) {
	t.Parallel()
	for _, p := range all.Plugins {
		_, err := os.Stat(filepath.Join(upstream, p.Name))
		listed := slices.ContainsFunc(takeovers, func(row takeover) bool { return row.plugin == p.Name })
		if listed != (err == nil) && p.Name != "dhcp" { // package chain tests it, with servers
			t.Errorf("%s: in the table: %t, in %s: %v", p.Name, listed, upstream, err)
		}
	}
}
