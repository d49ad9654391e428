package macvlan_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/macvlan"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var macvlans = testnet.Kernel(kernel.FeatureMacvlan)

// parent creates the interface that the examples name; it has the default route of the host.
func parent(_ testing.TB, n *plugintest.Net) { addParent(n.Host) }

func addParent(ns *plugintest.Namespace) {
	ns.Wire("eth1")
	ns.Command("ip", "route", "add", "default", "dev", "eth1")
}

var suite = plugintest.Suite{
	Plugin: macvlan.Plugin,
	Setup:  parent,
	// The plugin needs no previous result. The suite's default would create interfaces that the
	// kernel deletes only some time after the namespace; until then their MAC addresses are in use
	// on the parent.
	Before: func(testing.TB, *plugintest.Net, *plugintest.Namespace) *cni.Result { return nil },
	Distinguish: func(q *plugintest.Request, n int) {
		// two interfaces of a parent that are up cannot have the same MAC address
		if q.Conf["mac"] != nil {
			q.Conf["mac"] = fmt.Sprintf("02:00:5e:00:53:%02x", n+1)
		}
	},
	Drifts: []plugintest.Drift{
		{Name: "another mode", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("ip", "link", "set", "eth0", "type", "macvlan", "mode", "private")
			return "container macvlan mode private does not match expected value: bridge"
		}},
		{Name: "another kind", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Batch("link delete eth0", "link add eth0 up type bridge")
			return "expected a macvlan, found a bridge"
		}},
		{Name: "parent renamed", Key: "master",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Batch("link set eth1 down", "link set eth1 name renamed",
					"link set renamed up")
				return `"eth1"`
			}},
	},
}

// TestSuite runs the suite without linkInContainer: in every version, with and without addresses
// and master.
func TestSuite(t *testing.T) {
	testnet.Require(t, macvlans)
	plugintest.Run(t, suite)
}

// TestSuiteInContainer runs the suite with linkInContainer: earlier plugins have created the parent
// and the default route in the container.
func TestSuiteInContainer(t *testing.T) {
	testnet.Long(t)
	testnet.Require(t, macvlans)
	inside := suite
	inside.Setup, inside.Drifts = nil, nil
	inside.Before = func(_ testing.TB, _ *plugintest.Net, c *plugintest.Namespace) *cni.Result {
		addParent(c)
		return &cni.Result{Interfaces: []cni.Interface{{Name: "eth1", Sandbox: c.Path()}}}
	}
	inside.Rewrite = func(conf map[string]any, _ string) { conf["linkInContainer"] = true }
	plugintest.Run(t, inside)
}

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
