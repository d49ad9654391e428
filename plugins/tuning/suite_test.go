package tuning_test

import (
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/tuning"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin:  tuning.Plugin,
	Rewrite: func(conf map[string]any, dir string) { conf["dataDir"] = dir },
	Drifts: []plugintest.Drift{
		link("mac", "mac", "address", "02:00:00:00:00:01"),
		link("mtu", "mtu", "mtu", "1300"),
		link("promisc", "promisc", "promisc", "off"),
		link("allmulti", "allmulti", "allmulticast", "off"),
		link("txQLen", "txQLen", "txqueuelen", "7"),
		{Name: "interface gone", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("ip", "link", "delete", a.IfName)
			return a.IfName
		}},
		{Name: "sysctl", Key: "sysctl", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("sysctl", "-qw", "net.core.somaxconn=77")
			return "net/core/somaxconn"
		}},
		{Name: "sysctl of the interface", Key: "sysctl",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Container.Command("sysctl", "-qw", "net.ipv4.conf."+a.IfName+".arp_notify=0")
				return a.IfName + "/arp_notify"
			}},
	},
}

// link is a drift of an attribute of the container's interface, which CHECK must name.
func link(object, key string, set ...string) plugintest.Drift {
	return plugintest.Drift{Name: key, Key: key,
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("ip", append([]string{"link", "set", a.IfName}, set...)...)
			return object
		}}
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
