package bridge_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/bridge"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

var suite = plugintest.Suite{
	Plugin: bridge.Plugin,
	Drifts: []plugintest.Drift{
		host("bridge gone", "", func(br, _ string) []string { return []string{"link", "delete", br} }, bridgeName),
		host("bridge renamed", "", func(br, _ string) []string { return []string{"link", "set", br, "name", "renamed"} }, bridgeName),
		host("bridge with another MAC", "", func(br, _ string) []string { return []string{"link", "set", br, "address", "02:00:00:00:00:01"} }, bridgeName),
		host("port left the bridge", "", func(_, port string) []string { return []string{"link", "set", port, "nomaster"} }, portName),
		host("port down", "", func(_, port string) []string { return []string{"link", "set", port, "down"} }, portName),
		host("port with another MAC", "", func(_, port string) []string { return []string{"link", "set", port, "address", "02:00:00:00:00:01"} }, portName),
		host("gateway address gone", "isDefaultGateway", func(br, _ string) []string { return []string{"address", "flush", "dev", br} }, bridgeName),
		{Name: "not masqueraded", Key: "ipMasq", Break: func(_ testing.TB, a plugintest.Attached) string {
			address := a.Result.IPs[0].Address.Addr().String()
			a.Host.Command("nft", "delete", "element", "inet", "tenon", "masq4", "{", address, "}")
			return address
		}},
		{Name: "not masqueraded by iptables", Key: "ipMasqBackend", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("iptables", "-t", "nat", "-F", "POSTROUTING")
			return a.Result.IPs[0].Address.Addr().String()
		}},
		{Name: "port not guarded", Key: "macspoofchk", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("nft", "flush set bridge tenon guarded; flush set bridge tenon macs")
			return portName(a)
		}},
		{Name: "port guarded for another address", Key: "macspoofchk", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("nft", "flush set bridge tenon macs; add element bridge tenon macs { "+portName(a)+" . 02:00:00:00:00:01 }")
			return portName(a)
		}},
		{Name: "reservation gone", Key: "ipam", Break: func(t testing.TB, a plugintest.Attached) string {
			for _, ip := range a.Result.IPs {
				if err := os.Remove(filepath.Join(a.Dir, a.Conf["name"].(string), ip.Address.Addr().String())); err != nil {
					t.Fatal(err)
				}
			}
			return a.Container.Name
		}},
	},
}

// host is a drift by a call of ip in the host. CHECK has to name the bridge or the port.
func host(name, key string, args func(bridge, port string) []string, object func(plugintest.Attached) string) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: key, Break: func(_ testing.TB, a plugintest.Attached) string {
		a.Host.Command("ip", args(bridgeName(a), portName(a))...)
		return object(a)
	}}
}

func bridgeName(a plugintest.Attached) string { return a.Result.Interfaces[0].Name }
func portName(a plugintest.Attached) string   { return a.Result.Interfaces[1].Name }

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
