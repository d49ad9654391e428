package firewall_test

import (
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/firewall"
)

func TestSuite(t *testing.T) {
	drift := func(name string, command ...string) plugintest.Drift {
		return plugintest.Drift{Name: name,
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Command(command[0], command[1:]...)
				return "tenon"
			}}
	}
	plugintest.Run(t, plugintest.Suite{
		Plugin: firewall.Plugin,
		Drifts: []plugintest.Drift{
			drift("rules flushed", "nft", "flush", "table", "inet", "tenon"),
			drift("address not admitted", "nft", "flush", "set", "inet", "tenon", "admitted6"),
			drift("not isolated", "nft", "flush", "set", "inet", "tenon", "isolated"),
		},
	})
}

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: firewall.Plugin}) }
