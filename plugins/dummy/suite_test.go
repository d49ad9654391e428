package dummy_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/dummy"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var dummies = testnet.Kernel(kernel.FeatureDummy)

func TestSuite(t *testing.T) {
	testnet.Require(t, dummies)
	plugintest.Run(t, plugintest.Suite{Plugin: dummy.Plugin, Drifts: []plugintest.Drift{
		{Name: "interface of another kind",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Container.Command("ip", "link", "delete", a.IfName)
				a.Container.Batch("link add "+a.IfName+" type veth peer name other",
					"link set "+a.IfName+" up", "link set other up")
				return "a dummy, found a veth"
			}},
	}})
}

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: dummy.Plugin}) }
