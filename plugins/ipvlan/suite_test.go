package ipvlan_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/ipvlan"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var ipvlans = testnet.Kernel(kernel.FeatureIPvlan)

// parent creates the interface that the examples name; it has the default route of the host.
func parent(_ testing.TB, n *plugintest.Net) { addParent(n.Host) }

func addParent(ns *plugintest.Namespace) {
	ns.Wire("eth1")
	ns.Command("ip", "route", "add", "default", "dev", "eth1")
}

// examples returns the examples with ipam, or the chained ones.
func examples(withIPAM bool) (list []plugin.Example) {
	for _, e := range ipvlan.Plugin.Examples() {
		if strings.Contains(e.Config, `"ipam"`) == withIPAM {
			list = append(list, e)
		}
	}
	return list
}

var suite = plugintest.Suite{
	Plugin:   ipvlan.Plugin,
	Setup:    parent,
	Examples: examples(true),
	Rewrite:  swift,
	Drifts: []plugintest.Drift{
		{Name: "another mode", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("ip", "link", "set", "eth0", "type", "ipvlan", "mode", "l3")
			return "Container IPVlan mode l3 does not match expected value: l2"
		}},
		{Name: "another kind", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Batch("link delete eth0", "link add eth0 up type bridge")
			return "expected a ipvlan, found a bridge"
		}},
		// the kernel copies it from the parent
		{Name: "another MAC", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("ip", "link", "set", "eth1", "address", "02:00:00:00:00:01")
			return "eth0"
		}},
		{Name: "parent renamed", Key: "master",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Batch("link set eth1 down", "link set eth1 name renamed",
					"link set renamed up")
				return `"eth1"`
			}},
	},
}

// swift switches duplicate address detection off, because without optimistic addresses in the
// kernel each ADD would wait one or two seconds.
func swift(conf map[string]any, _ string) {
	if testnet.OptimisticDAD() != nil {
		conf["dad"] = "off"
	}
}

// TestSuite runs the suite with and without master.
func TestSuite(t *testing.T) {
	testnet.Require(t, ipvlans)
	plugintest.Run(t, suite)
}

// TestSuiteInContainer runs the suite with linkInContainer: earlier plugins have created the parent
// in the container.
func TestSuiteInContainer(t *testing.T) {
	testnet.Require(t, ipvlans)
	inside := suite
	inside.Examples, inside.Setup, inside.Drifts = inside.Examples[:1], nil, nil
	inside.Before = func(_ testing.TB, _ *plugintest.Net, c *plugintest.Namespace) *cni.Result {
		addParent(c)
		return &cni.Result{Interfaces: []cni.Interface{{Name: "eth1", Sandbox: c.Path()}}}
	}
	inside.Rewrite = func(conf map[string]any, dir string) {
		swift(conf, dir)
		conf["linkInContainer"] = true
	}
	plugintest.Run(t, inside)
}

// TestSuiteChained runs the suite without ipam: the previous result has the parent and the
// addresses.
func TestSuiteChained(t *testing.T) {
	testnet.Require(t, ipvlans)
	plugintest.Run(t, plugintest.Suite{
		Plugin: ipvlan.Plugin, Examples: examples(false), Rewrite: swift, Setup: parent,
		TakesOver: true,
		Before: func(_ testing.TB, _ *plugintest.Net, c *plugintest.Namespace) *cni.Result {
			return before(c.Number + 2)
		},
	})
}

// before returns the result of plugins that have chosen eth1 of the host and addresses for the
// container.
func before(number int) *cni.Result {
	return &cni.Result{
		Interfaces: []cni.Interface{{Name: "eth1"}},
		IPs: []cni.IP{
			{Address: netip.MustParsePrefix(fmt.Sprintf("10.99.0.%d/24", number)),
				Gateway: netip.MustParseAddr("10.99.0.1")},
			{Address: netip.MustParsePrefix(fmt.Sprintf("fd00:99::%x/64", number))},
		},
		Routes: []cni.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("fd00:7::/64"), GW: netip.MustParseAddr("fd00:99::ffff")}},
	}
}

func FuzzServe(f *testing.F) {
	plugintest.Fuzz(f, plugintest.Suite{Plugin: ipvlan.Plugin, Setup: parent})
}
