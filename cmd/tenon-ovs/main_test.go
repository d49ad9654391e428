package main

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-ovs/internal/vswitch"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// under is the plugin under test.
var under = ovs.Define(vswitch.Dial)

func TestMain(m *testing.M) { plugintest.Main(m, delegates(under)...) }

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
	s := plugintest.Suite{Plugin: under, Server: serve}
	for _, e := range under.Examples() {
		if !strings.Contains(e.Config, `"dhcp"`) {
			s.Examples = append(s.Examples, e)
		}
	}
	return s
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite()) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: plugin.Definition(under)}) }
