package sbr_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/sbr"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin:   sbr.Plugin,
	Examples: examples(),
	Distinguish: func(q *plugintest.Request, n int) {
		if q.Conf["gateways"] != nil { // gateways must be in the networks of the container
			q.Conf["gateways"] = []any{fmt.Sprintf("10.88.%d.1", n),
				fmt.Sprintf("fd00:88:0:%x::1", n)}
		}
	},
	Drifts: []plugintest.Drift{
		drift("rule gone", "ADDRESS", "rule delete from ADDRESS"),
		drift("rule leads elsewhere", "table 77", "rule add from ADDRESS lookup 77"),
		drift("IPv6 rule gone", "fd00:88:", "-6 rule delete lookup 101"),
		drift("default route gone", "0.0.0.0/0 table 100", "route delete default table 100"),
		drift("IPv6 default route gone", "::/0 table 101", "-6 route delete default table 101"),
		drift("network gone", "table 100", "route delete NETWORK table 100"),
	},
}

// examples returns the examples of the page with the minimal configuration first, which the drifts
// need.
func examples() []plugin.Example {
	e := sbr.Plugin.Examples()
	last := len(e) - 1
	return append([]plugin.Example{e[last]}, e[:last]...)
}

// drift runs ip in the container, with the first address and network inserted. CHECK must name the
// object.
func drift(name, object, command string) plugintest.Drift {
	return plugintest.Drift{Name: name, Break: func(_ testing.TB, a plugintest.Attached) string {
		address := a.Result.IPs[0].Address
		r := strings.NewReplacer("ADDRESS", address.Addr().String(), "NETWORK", address.Masked().
			String())
		a.Container.Command("ip", strings.Fields(r.Replace(command))...)
		return r.Replace(object)
	}}
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
