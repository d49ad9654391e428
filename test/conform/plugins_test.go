package conform

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

func TestMain(m *testing.M) {
	judge.Main()
	testnet.Main(m)
}

// install returns a directory with the plugins of this tree, and the agent that plugin cluster needs.
// scripts/vm-tests installs them before it starts a virtual machine, which has no compiler.
func install(t *testing.T) (plugins string) {
	t.Helper()
	if plugins := os.Getenv("TENON_PLUGINS"); plugins != "" {
		return plugins
	}
	dir := t.TempDir()
	plugins = dir + "/plugins"
	for _, args := range [][]string{
		{"go", "-C", "../../cmd", "build", "-o", dir, "./tenon", "./tenon-dhcp"},
		{"go", "-C", "../../cmd/tenon-ovs", "build", "-o", dir + "/", "."},
		{"go", "-C", "../../cmd/tenon-cluster", "build", "-o", dir + "/", "."},
		{dir + "/tenon", "install", plugins},
		{"cp", dir + "/tenon-cluster", plugins},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return plugins
}

// needs are the requirements of the built-in configurations.
var needs = map[string][]testnet.Need{
	"bandwidth": {testnet.Kernel(kernel.FeatureIFB, kernel.FeatureShaping)},
	"bridge":    {testnet.Kernel(kernel.FeatureVLANFiltering)},
	"cluster":   {testnet.Tool("etcd")},
	"dhcp":      {testnet.Tool("dnsmasq")},
	"dummy":     {testnet.Kernel(kernel.FeatureDummy)},
	"ipvlan":    {testnet.Kernel(kernel.FeatureIPvlan)},
	"macvlan":   {testnet.Kernel(kernel.FeatureMacvlan)},
	"ovs":       {ovslab.Need},
	"tap":       {testnet.Kernel(kernel.FeatureTun)},
	"vlan":      {testnet.Kernel(kernel.FeatureVLAN)},
	"vrf":       {testnet.Kernel(kernel.FeatureVRF)},
}

// TestPlugins judges each plugin by profile strict. Its waivers must all be needed.
func TestPlugins(t *testing.T) {
	t.Parallel()
	testnet.Long(t)
	testnet.Require(t, testnet.Root)
	waivers, err := report.ReadWaivers("../../docs/conformance/waivers.json")
	if err != nil {
		t.Fatal(err)
	}
	paths, leftOut, err := judge.Find(t.Context(), []string{install(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("left out: %v", leftOut)
	const plugins = 20
	if len(paths) != plugins {
		t.Errorf("%d plugins, want %d: %v", len(paths), plugins, paths)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		var own, others []report.Waiver
		for _, w := range waivers {
			if w.Subject == name {
				own = append(own, w)
			} else {
				others = append(others, w)
			}
		}
		waivers = others
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, needs[name]...)
			o := judge.Options{Profile: report.Strict, Waivers: own, Jobs: 1}
			if name == "cluster" {
				o.Jobs = 0 // its scenarios wait most of the time, and the configuration of the judge says so
			}
			r := judge.Test(t, []string{path}, o)
			for _, c := range r.Subjects[0].Checks {
				if strings.HasPrefix(c.Reason, "CHECK does not notice: ") {
					t.Errorf("%s: %s", c.Scenario, c.Reason)
				}
			}
		})
	}
	for _, w := range waivers {
		t.Errorf("a waiver for %s, which is no plugin", w.Subject)
	}
}
