//go:build amd64

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// pluginDir names the directory of the plugins to break; by default the test builds the plugins of
// this tree.
var pluginDir = os.Getenv("TENON_PLUGINS")

// all adds slow faults and faults that differ little.
var all = os.Getenv("TENON_FAULTS") == "all"

// shortSample is the share of the usual changes that the sweep breaks in short mode, in which
// scripts/vm-tests runs it on slow virtual processors.
const shortSample = 6

func TestMain(m *testing.M) {
	if !runAsRuntime(os.Args) {
		testnet.Main(m)
	}
}

var dualStack = map[string]any{
	"ranges": []any{[]any{map[string]any{"subnet": "10.88.0.0/30"}}, []any{map[string]any{"subnet": "fd88::/126", "rangeEnd": "fd88::2"}}},
	"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
}

var scenarios = []scenario{
	{
		name: "bridge dual stack", plugin: "bridge", ipam: dualStack, host: true,
		conf: map[string]any{"cniVersion": "1.1.0", "bridge": "br0", "isGateway": true, "ipMasq": true},
	},
	{
		name: "bridge dual stack, delegate as a process", plugin: "bridge", ipam: dualStack, host: true, slow: true,
		conf: map[string]any{"cniVersion": "1.1.0", "bridge": "br0", "isGateway": true, "ipMasq": true},
		env:  []string{"TENON_EXEC=always"},
	},
	{
		name: "bridge with iptables and guard", plugin: "bridge", ipam: dualStack, host: true,
		conf: map[string]any{
			"cniVersion": "1.1.0", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", "macspoofchk": true,
		},
	},
	{
		name: "bridge without addresses", plugin: "bridge", host: true,
		conf: map[string]any{"cniVersion": "1.1.0", "bridge": "br0"},
	},
	{
		name: "ptp dual stack", plugin: "ptp", ipam: dualStack, host: true,
		conf: map[string]any{"cniVersion": "1.1.0", "ipMasq": true, "mtu": 1400},
	},
	{
		name: "bridge VLANs", plugin: "bridge", ipam: dualStack, host: true, needs: kernel.FeatureVLANFiltering, sample: 3,
		conf: map[string]any{
			"cniVersion": "1.1.0", "bridge": "br0", "isGateway": true, "vlan": 100, "vlanTrunk": []any{map[string]any{"minID": 200, "maxID": 210}},
		},
	},
	{
		name: "host-device", plugin: "host-device", ipam: dualStack, host: true,
		setup: []string{
			"link add ens1 type veth peer name wire", "link set wire up", "link set ens1 up",
			"address add 198.51.100.1/24 brd + dev ens1", "address add fd00:51::1/64 dev ens1",
		},
		conf: map[string]any{"cniVersion": "1.1.0", "device": "ens1"},
	},
	{
		// All changes are in the namespace of the container.
		name: "vlan", plugin: "vlan", ipam: dualStack, needs: kernel.FeatureVLAN, sample: 2,
		setup: []string{"link add eno1 type veth peer name far", "link set eno1 up"},
		conf:  map[string]any{"cniVersion": "1.1.0", "master": "eno1", "vlanId": 5, "dad": "off"},
	},
	{
		name: "dummy", plugin: "dummy", ipam: dualStack, needs: kernel.FeatureDummy, sample: 2,
		conf: map[string]any{"cniVersion": "1.1.0"},
	},
	{
		name: "host-local", plugin: "host-local", ipam: dualStack, host: true,
		conf: map[string]any{"cniVersion": "1.1.0"},
	},
	{
		// The state of lo ends with the container's namespace.
		name: "loopback", plugin: "loopback",
		conf: map[string]any{"cniVersion": "1.1.0"},
	},
}

func TestNothingIsLeft(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	plugins := builtPlugins(t)
	for _, s := range slices.Concat(scenarios, chained) {
		if s.slow && !all {
			continue
		}
		for _, verb := range []string{"ADD", "DEL"} {
			t.Run(s.name+" "+verb, func(t *testing.T) {
				t.Parallel()
				if s.needs != "" {
					testnet.Require(t, testnet.Kernel(s.needs))
				}
				if s.tool != "" {
					testnet.Require(t, testnet.Tool(s.tool))
				}
				effects, recoveries := []tracer.Effect{tracer.Kill, tracer.Terminate, tracer.Fail}, []recovery{del}
				if s.host {
					recoveries = append(recoveries, gc)
				}
				if all {
					effects = append(effects, tracer.Lose)
				}
				if all && s.host {
					recoveries = append(recoveries, delWithoutNamespace)
				}
				newRig(t, plugins, s, func(finding string) { t.Error(finding) }).sweep(verb, effects, recoveries)
			})
		}
	}
}

// builtPlugins returns a directory with the plugins of this tree, or the directory in
// TENON_PLUGINS.
func builtPlugins(t *testing.T) string {
	t.Helper()
	if pluginDir != "" {
		return pluginDir
	}
	_, plugins := build(t)
	return plugins
}

// build returns the path of a built tenon, and a directory with its plugins.
func build(t *testing.T) (tenon, plugins string) {
	t.Helper()
	dir := t.TempDir()
	tenon, plugins = filepath.Join(dir, "tenon"), filepath.Join(dir, "plugins")
	build := exec.Command("go", "build", "-o", tenon, "./cmd/tenon")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{build, exec.Command(tenon, "install", plugins)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return tenon, plugins
}

// The upstream plugins leave objects behind; the sweep must find them.
func TestSweepFindsWhatReferencePluginsLeave(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	const upstream = "/usr/lib/cni"
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "bridge")))
	s := scenario{plugin: "bridge", conf: map[string]any{"cniVersion": "1.0.0", "bridge": "br0"}}
	for _, row := range []struct {
		effect tracer.Effect
		want   string
	}{
		{tracer.Fail, "the failed ADD left"},
		{tracer.Terminate, "exit status"},
	} {
		t.Run(row.effect.String(), func(t *testing.T) {
			t.Parallel()
			var found []string
			r := newRig(t, upstream, s, func(finding string) { found = append(found, finding) })
			r.settle = time.Second // findings are expected here
			r.sweep("ADD", []tracer.Effect{row.effect}, []recovery{del})
			if !slices.ContainsFunc(found, func(finding string) bool { return strings.Contains(finding, row.want) }) {
				t.Errorf("findings: %q, want one with %q", found, row.want)
			}
		})
	}
}

// TestSettingsAreLookedAt: the sweep compares settings not after each fault, but finds each
// difference.
func TestSettingsAreLookedAt(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	var found []string
	s := scenario{plugin: "loopback", conf: map[string]any{"cniVersion": "1.0.0"}}
	r := newRig(t, builtPlugins(t), s, func(finding string) { found = append(found, finding) })
	r.settle = time.Second // the difference found here is permanent
	r.net.Host.Command("sysctl", "-qw", "net.ipv4.conf.all.arp_notify=1")
	r.expectClean("a fault")
	if found != nil {
		t.Errorf("after a fault: %q", found)
	}
	r.expectSettings("many faults")
	if len(found) != 1 || !strings.Contains(found[0], "many faults left") || !strings.Contains(found[0], "+ host sysctl ipv4/conf/all/arp_notify = 1") {
		t.Errorf("after many faults: %q", found)
	}
	r.expectSettings("nothing")
	if len(found) != 1 {
		t.Errorf("found again: %q", found)
	}
}
