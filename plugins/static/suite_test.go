package static_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/static"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin:     static.Plugin,
	Repeatable: true,
	Distinguish: func(q *plugintest.Request, n int) {
		q.Conf["runtimeConfig"] = map[string]any{"ips": []string{
			fmt.Sprintf("10.30.0.%d/24", 20+n), fmt.Sprintf("fd00:30::%x/64", 20+n),
		}}
	},
	Drifts: []plugintest.Drift{
		{Name: "another address configured",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				configured(a)["address"] = "10.30.0.99/24"
				return "10.30.0.99"
			}},
		{Name: "another gateway configured",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				configured(a)["gateway"] = "10.30.0.99"
				return "10.30.0.99"
			}},
	},
}

// configured returns the first address of the configuration.
func configured(a plugintest.Attached) map[string]any {
	return a.Conf["ipam"].(map[string]any)["addresses"].([]any)[0].(map[string]any)
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
