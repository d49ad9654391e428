package vrf_test

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/vrf"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin:   vrf.Plugin,
	Examples: examples(),
	Drifts: []plugintest.Drift{
		drift("VRF gone", "Link not found", "link delete red"),
		drift("VRF down", "red", "link set red down"),
		drift("not a member", "failed to find eth0 associated to vrf red",
			"link set eth0 nomaster"),
		drift("another VRF of that name", "eth0", "link delete red",
			"link add red type vrf table 7"),
		drift("not a VRF", "red", "link delete red", "link add red type bridge"),
		drift("default route gone", "0.0.0.0/0", "route delete default vrf red"),
		drift("IPv6 default route gone", "::/0", "-6 route delete default vrf red"),
		drift("default route elsewhere", "0.0.0.0/0", "route delete default vrf red",
			"route add default dev eth0 table 77"),
		drift("network gone", "10.88.", "-4 route flush vrf red scope link"),
	},
}

// examples returns the examples of the page with the minimal configuration first, which the drifts
// need.
func examples() []plugin.Example {
	e := vrf.Plugin.Examples()
	last := len(e) - 1
	return append([]plugin.Example{e[last]}, e[:last]...)
}

// drift runs ip in the container. CHECK must name the object.
func drift(name, object string, commands ...string) plugintest.Drift {
	return plugintest.Drift{Name: name, Break: func(_ testing.TB, a plugintest.Attached) string {
		for _, c := range commands {
			a.Container.Command("ip", strings.Fields(c)...)
		}
		return object
	}}
}

func TestSuite(t *testing.T) {
	testnet.Require(t, testnet.Kernel(kernel.FeatureVRF))
	plugintest.Run(t, suite)
}

func FuzzServe(f *testing.F) {
	testnet.Require(f, testnet.Kernel(kernel.FeatureVRF))
	plugintest.Fuzz(f, suite)
}
