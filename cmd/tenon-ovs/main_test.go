package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-ovs/internal/vswitch"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// under is the plugin under test.
var under = ovs.Define(vswitch.Dial)

// TestMain runs the test binary as the program if it has its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == ovs.Program {
		os.Exit(run())
	}
	plugintest.Main(m, definitions()...)
}

// definitions returns the plugin under test and the IPAM plugins.
func definitions() []plugin.Definition {
	list := []plugin.Definition{under}
	for _, d := range all.Plugins {
		if d.Role == plugin.RoleIPAM {
			list = append(list, d)
		}
	}
	return list
}

// serve starts Open vSwitch on a host, with the bridge of a configuration.
func serve(t testing.TB, n *plugintest.Net, conf map[string]any) (state func() string) {
	s := ovslab.Start(t, n.Host)
	conf["socket_file"] = s.Socket()
	if conf["createBridge"] == true {
		conf["datapathType"] = "netdev"
	} else {
		s.Bridge(conf["bridge"].(string))
	}
	return s.Rows
}

// suite returns the suite for all examples that need no DHCP server.
func suite() plugintest.Suite {
	s := plugintest.Suite{Plugin: under, Server: serve, Drifts: drifts}
	for _, e := range under.Examples() {
		if !strings.Contains(e.Config, `"dhcp"`) {
			s.Examples = append(s.Examples, e)
		}
	}
	return s
}

var drifts = []plugintest.Drift{
	drift("port gone", "", port, func(a plugintest.Attached) []string {
		return []string{"del-port", port(a)}
	}),
	drift("bridge gone", "", port, func(a plugintest.Attached) []string {
		return []string{"del-br", bridge(a)}
	}),
	drift("another VLAN", "vlan", port, func(a plugintest.Attached) []string {
		return []string{"set", "Port", port(a), "tag=101"}
	}),
	drift("not isolated", "isolated", port, func(a plugintest.Attached) []string {
		return []string{"set", "Port", port(a), "protected=false"}
	}),
	drift("another VLAN in the trunk", "trunk", port, func(a plugintest.Attached) []string {
		return []string{"add", "Port", port(a), "trunks", "43"}
	}),
	drift("access port", "trunk", port, func(a plugintest.Attached) []string {
		return []string{"set", "Port", port(a), "vlan_mode=access", "tag=42"}
	}),
	drift("port in another segment", "vxlanID", port, func(a plugintest.Attached) []string {
		return []string{"set", "Port", port(a), "tag=7"}
	}),
	drift("segment without tag", "vxlanID", bridge, func(a plugintest.Attached) []string {
		return []string{"remove", "Bridge", bridge(a), "external_ids", "cni-vni-42"}
	}),
	drift("tunnels gone", "vxlanRemotes", bridge, func(a plugintest.Attached) []string {
		return append([]string{"del-port"}, strings.Join(tunnels(a), " -- del-port "))
	}),
	drift("tunnel with another key", "vxlanRemotes", bridge, func(a plugintest.Attached) []string {
		return []string{"set", "Interface", tunnels(a)[0], "options:key=43"}
	}),
	{Name: "host-side veth down", Break: func(_ testing.TB, a plugintest.Attached) string {
		a.Host.Command("ip", "link", "set", port(a), "down")
		return port(a)
	}},
}

// drift is a change of the database by ovs-vsctl. CHECK must name the object.
func drift(
	name, key string, object func(plugintest.Attached) string,
	args func(plugintest.Attached) []string,
) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: key, Break: func(_ testing.TB, a plugintest.Attached) string {
		named := object(a)
		vsctl(a, strings.Fields(strings.Join(args(a), " "))...)
		return named
	}}
}

func vsctl(a plugintest.Attached, args ...string) string {
	return a.Host.Command("ovs-vsctl", append([]string{
		"--timeout=60", "--db=" + a.Conf["socket_file"].(string),
	}, args...)...)
}

func port(a plugintest.Attached) string   { return a.Result.Interfaces[0].Name }
func bridge(a plugintest.Attached) string { return a.Conf["bridge"].(string) }

func tunnels(a plugintest.Attached) []string {
	return strings.Fields(vsctl(a, "--bare", "--columns=name", "find", "Port", "external_ids:role=tunnel"))
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite()) }
