package mark

import (
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m, Plugin) }

func TestSuite(t *testing.T) {
	plugintest.Run(t, plugintest.Suite{
		Plugin:  Plugin,
		Rewrite: func(conf map[string]any, dir string) { conf["dataDir"] = dir },
		Drifts: []plugintest.Drift{{Name: "mark gone",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				link := a.Result.Interfaces[0].Name
				a.Host.Command("ip", "link", "set", "dev", link, "alias", "")
				return link
			}}},
	})
}
