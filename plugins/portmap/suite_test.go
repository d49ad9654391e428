package portmap_test

import (
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/portmap"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin: portmap.Plugin,
	Before: func(t testing.TB, n *plugintest.Net, c *plugintest.Namespace) *cni.Result {
		result := plugintest.Veth(t, n, c)
		end := result.Interfaces[0].Name
		// shared between containers, so it stays
		n.Host.Command("sysctl", "-qw", "net.ipv4.conf."+end+".route_localnet=1")
		return result
	},
	Distinguish: func(q *plugintest.Request, n int) { // by host ports
		runtime, _ := q.Conf["runtimeConfig"].(map[string]any)
		list, _ := runtime["portMappings"].([]any)
		for _, m := range list {
			if m, ok := m.(map[string]any); ok {
				if port, ok := m["hostPort"].(float64); ok {
					m["hostPort"] = port + float64(200*n)
				}
			}
		}
	},
	Drifts: []plugintest.Drift{
		{Name: "mapping gone", Key: "masqAll",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Command("nft", "flush", "map", "inet", "tenon", "dnat4")
				return "8080"
			}},
		{Name: "rules flushed", Key: "masqAll",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Command("nft", "flush", "chain", "inet", "tenon", "hostports_dnat")
				return "tenon"
			}},
		{Name: "conditions flushed", Key: "conditionsV4",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				for _, chain := range gateChains(a.Host) {
					a.Host.Command("nft", "flush", "chain", "inet", "tenon", chain)
				}
				return "gates"
			}},
		{Name: "hairpin gone", Key: "snat",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Command("nft", "flush", "set", "inet", "tenon", "hairpin6")
				return "hairpin6"
			}},
	},
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
