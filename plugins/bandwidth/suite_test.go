package bandwidth_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/bandwidth"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin: bandwidth.Plugin,
	Drifts: []plugintest.Drift{
		drift("tbf of the host-side veth gone", hostEnd, "tc", "qdisc", "delete", "dev", "HOST",
			"root"),
		drift("tbf of the host-side veth with another rate", otherRate, "tc", "qdisc", "change",
			"dev", "HOST", "root", "handle", "1:", "tbf", "rate", "9mbit", "burst", "200000",
			"latency", "25ms"),
		// upstream compares nothing then
		drift("another qdisc in its place", hostEnd, "tc", "qdisc", "replace", "dev", "HOST",
			"root", "handle", "7:", "pfifo"),
		drift("tbf of the ifb gone", ifb, "tc", "qdisc", "delete", "dev", "IFB", "root"),
		drift("ifb gone", ifb, "ip", "link", "delete", "IFB"),
		drift("ifb down", ifb, "ip", "link", "set", "IFB", "down"),
		drift("filter gone", hostEnd, "tc", "filter", "delete", "dev", "HOST", "parent", "ffff:"),
		drift("ingress qdisc gone", hostEnd, "tc", "qdisc", "delete", "dev", "HOST", "ingress"),
	},
}

func otherRate(plugintest.Attached) string { return "Rate doesn't match" }
func hostEnd(a plugintest.Attached) string { return a.Result.Interfaces[0].Name }
func ifb(a plugintest.Attached) string {
	return a.Result.Interfaces[len(a.Result.Interfaces)-1].Name
}

// drift is a drift by a command in the host. CHECK must name the object.
func drift(
	name string, object func(plugintest.Attached) string, command ...string,
) plugintest.Drift {
	return plugintest.Drift{Name: name, Break: func(_ testing.TB, a plugintest.Attached) string {
		args := make([]string, len(command))
		for i, arg := range command {
			switch arg {
			case "HOST":
				arg = hostEnd(a)
			case "IFB":
				arg = ifb(a)
			}
			args[i] = arg
		}
		a.Host.Command(args[0], args[1:]...)
		return object(a)
	}}
}

func TestSuite(t *testing.T) {
	require(t)
	plugintest.Run(t, suite)
}

func FuzzServe(f *testing.F) {
	require(f)
	plugintest.Fuzz(f, suite)
}

func require(t testing.TB) {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureIFB, kernel.FeatureShaping), testnet.Tool("tc"))
}
