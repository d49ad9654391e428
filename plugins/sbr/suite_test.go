package sbr_test

import (
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/sbr"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

var suite = plugintest.Suite{
	Plugin: sbr.Plugin,
	Drifts: []plugintest.Drift{
		drift("rule gone", "10.88.", "rule", "delete", "from", "10.88.0.0/16"),
	},
}

func drift(name, object string, command ...string) plugintest.Drift {
	return plugintest.Drift{Name: name, Break: func(_ testing.TB, a plugintest.Attached) string {
		a.Container.Command("ip", command...)
		return object
	}}
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
