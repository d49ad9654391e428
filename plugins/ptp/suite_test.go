package ptp_test

import (
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/ptp"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin: ptp.Plugin,
	Drifts: []plugintest.Drift{
		host("host-side veth down", hostEnd, func(end, _, _ string) []string {
			return []string{"link", "set", end, "down"}
		}),
		host("host-side veth with another MAC", hostEnd, func(end, _, _ string) []string {
			return []string{"link", "set", end, "address", "02:00:00:00:00:01"}
		}),
		host("gateway address gone", gateway, func(end, gateway, _ string) []string {
			return []string{"address", "delete", gateway, "dev", end}
		}),
		host("host's route gone", container, func(end, _, container string) []string {
			return []string{"route", "delete", container, "dev", end}
		}),
		{Name: "route to the gateway gone",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Container.Command("ip", "route", "delete", gateway(a), "dev", a.IfName)
				return gateway(a)
			}},
		{Name: "metric of a route changed",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Container.Command("ip", "route", "delete", "192.168.0.0/16")
				a.Container.Command("ip", "route", "add", "192.168.0.0/16", "via",
					a.Result.IPs[0].Gateway.String(), "metric", "8", "mtu", "1300", "advmss", "1200")
				return "metric 7"
			}},
		{Name: "not masqueraded", Key: "ipMasq",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				address := a.Result.IPs[0].Address.Addr().String()
				a.Host.Command("nft", "delete", "element", "inet", "tenon", "masq4", "{", address, "}")
				return address
			}},
	},
}

// host is a drift by a call of ip on the host. CHECK must name the object.
func host(
	name string, object func(plugintest.Attached) string,
	args func(end, gateway, container string) []string,
) plugintest.Drift {
	return plugintest.Drift{Name: name, Break: func(_ testing.TB, a plugintest.Attached) string {
		a.Host.Command("ip", args(hostEnd(a), gateway(a), container(a))...)
		return object(a)
	}}
}

func hostEnd(a plugintest.Attached) string { return a.Result.Interfaces[0].Name }
func gateway(a plugintest.Attached) string { return a.Result.IPs[0].Gateway.String() + "/32" }
func container(a plugintest.Attached) string {
	return a.Result.IPs[0].Address.Addr().String() + "/32"
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
