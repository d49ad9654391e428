package bridge_test

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/bridge"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

// suite returns the suite for the examples with VLANs, which need a kernel with VLAN filtering, or
// for the others.
func suite(withVLANs bool, drifts []plugintest.Drift) plugintest.Suite {
	s := plugintest.Suite{Plugin: bridge.Plugin, Drifts: drifts}
	for _, e := range bridge.Plugin.Examples() {
		if strings.Contains(e.Config, `"vlan`) == withVLANs {
			s.Examples = append(s.Examples, e)
		}
	}
	return s
}

// drifts apply to examples without VLANs.
var drifts = []plugintest.Drift{
	host("bridge gone", "", func(br, _ string) []string { return []string{"link", "delete", br} },
		bridgeName),
	host("bridge renamed", "", func(br, _ string) []string {
		return []string{"link", "set", br, "name", "renamed"}
	}, bridgeName),
	host("bridge with another MAC", "", func(br, _ string) []string {
		return []string{"link", "set", br, "address", "02:00:00:00:00:01"}
	}, bridgeName),
	host("port left the bridge", "", func(_, port string) []string {
		return []string{"link", "set", port, "nomaster"}
	}, portName),
	host("port down", "", func(_, port string) []string {
		return []string{"link", "set", port, "down"}
	}, portName),
	host("port with another MAC", "", func(_, port string) []string {
		return []string{"link", "set", port, "address", "02:00:00:00:00:01"}
	}, portName),
	gatewayAddress,
	{Name: "not masqueraded", Key: "ipMasq",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			address := a.Result.IPs[0].Address.Addr().String()
			a.Host.Command("nft", "delete", "element", "inet", "tenon", "masq4", "{", address, "}")
			return address
		}},
	{Name: "not masqueraded by iptables", Key: "ipMasqBackend",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("iptables", "-t", "nat", "-F", "POSTROUTING")
			return a.Result.IPs[0].Address.Addr().String()
		}},
	{Name: "port not guarded", Key: "macspoofchk",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("nft", "flush set bridge tenon guarded; flush set bridge tenon macs")
			return portName(a)
		}},
	{Name: "port guarded for another address", Key: "macspoofchk",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("nft",
				"flush set bridge tenon macs; add element bridge tenon macs { "+portName(a)+" . 02:00:00:00:00:01 }")
			return portName(a)
		}},
}

var gatewayAddress = plugintest.Drift{Name: "gateway address gone", Key: "isDefaultGateway",
	Break: func(_ testing.TB, a plugintest.Attached) string {
		a.Host.Command("ip", "address", "flush", "dev", gatewayName(a))
		return gatewayName(a)
	}}

// vlanDrifts apply to examples with VLANs.
var vlanDrifts = []plugintest.Drift{
	gatewayAddress,
	host("bridge does not filter", "", func(br, _ string) []string {
		return []string{"link", "set", br, "type", "bridge", "vlan_filtering", "0"}
	}, bridgeName),
	vlan("port is in the default VLAN again", "vlan", portName, "add", "1"),
	vlan("port is not in its VLAN", "vlan", portName, "del", "100"),
	vlan("port sends frames of its VLAN with a tag", "vlan", portName, "add", "100", "pvid"),
	vlan("port has no PVID", "vlan", portName, "add", "100", "untagged"),
	vlan("port is not in a VLAN of the trunk", "vlanTrunk", portName, "del", "205"),
	vlan("port is in a VLAN that is not the trunk's", "vlanTrunk", portName, "add", "300"),
	vlan("port of the gateway is not in its VLAN", "isDefaultGateway", gatewayPort, "del", "100"),
	gatewayLink("gateway gone", gatewayName, "delete"),
	gatewayLink("gateway down", gatewayName, "set", "down"),
	gatewayLink("gateway with another MAC", gatewayName, "set", "address", "02:00:00:00:00:01"),
	gatewayLink("port of the gateway down", gatewayPort, "set", "down"),
	gatewayLink("port of the gateway left the bridge", gatewayPort, "set", "nomaster"),
}

// vlan is a drift by a call of bridge vlan. CHECK must name the port.
func vlan(
	name, key string, port func(plugintest.Attached) string, verb, id string, flags ...string,
) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: key,
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("bridge", append([]string{
				"vlan", verb, "dev", port(a), "vid", id,
			}, flags...)...)
			return port(a)
		}}
}

// gatewayLink is a drift of one end of the veth pair that is a VLAN's gateway.
func gatewayLink(
	name string, end func(plugintest.Attached) string, verb string, args ...string,
) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: "isDefaultGateway",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			object := end(a)
			a.Host.Command("ip", append([]string{"link", verb, object}, args...)...)
			return object
		}}
}

// host is a drift by a call of ip on the host. CHECK must name the bridge or the port.
func host(
	name, key string, args func(bridge, port string) []string,
	object func(plugintest.Attached) string,
) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: key,
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Host.Command("ip", args(bridgeName(a), portName(a))...)
			return object(a)
		}}
}

func bridgeName(a plugintest.Attached) string { return a.Result.Interfaces[0].Name }
func portName(a plugintest.Attached) string   { return a.Result.Interfaces[1].Name }

// gatewayName returns the bridge, or with a VLAN its gateway interface.
func gatewayName(a plugintest.Attached) string {
	if len(a.Result.Interfaces) > 3 {
		return a.Result.Interfaces[3].Name
	}
	return bridgeName(a)
}

func gatewayPort(a plugintest.Attached) string { return otherEnd(a.Host, gatewayName(a)) }

func TestSuite(t *testing.T) { plugintest.Run(t, suite(false, drifts)) }

func TestSuiteOfVLANs(t *testing.T) {
	testnet.Require(t, vlanFiltering)
	plugintest.Run(t, suite(true, vlanDrifts))
}

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: bridge.Plugin}) }
