package vrf_test

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/vrf"
)

// TestTraffic: two interfaces with the same addresses, in different VRFs, both answer through their
// own default routes. Without VRFs one of them cannot.
func TestTraffic(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.add("net1", red)
	p.add("net2", blue)
	for _, name := range []string{"peer1", "peer2"} {
		peer := p.Net.Container(name)
		for range 2 { // first as a neighbour, then through the gateway
			for _, address := range []string{"10.0.0.2", "fd00:7::2"} {
				testnet.Reaches(t, peer, netip.MustParseAddr(address), true)
			}
			peer.Batch("route replace 10.0.0.0/24 dev eth0 src 198.51.100.1",
				"route replace fd00:7::/64 dev eth0 metric 1 src 2001:db8:5::1")
		}
	}
}

// chain calls the plugins of a network like a runtime, each with the previous plugin's result.
type chain struct {
	*plugintest.Runtime
	t       *testing.T
	plugins []string // configurations
	result  json.RawMessage
}

func (c *chain) call(verb cni.Command) {
	c.t.Helper()
	list := slices.Clone(c.plugins)
	if verb == cni.Del {
		slices.Reverse(list)
	}
	bin := c.Collect().Path
	for _, text := range list {
		conf := map[string]any{}
		if err := json.Unmarshal([]byte(text), &conf); err != nil {
			c.t.Fatal(err)
		}
		conf["name"], conf["cniVersion"] = "net", "1.1.0"
		if c.result != nil {
			conf["prevResult"] = c.result
		}
		if ipam, ok := conf["ipam"].(map[string]any); ok {
			ipam["dataDir"] = c.Dir
		}
		stdin, err := json.Marshal(conf)
		if err != nil {
			c.t.Fatal(err)
		}
		var reply invoke.Reply
		err = c.Host.Run(func() (err error) {
			reply, err = plugin.Caller(nil, true).Call(c.t.Context(), invoke.Call{
				Path: filepath.Join(bin, conf["type"].(string)), Stdin: stdin,
				Env: cni.Env{Command: verb, ContainerID: "pod", Netns: c.Net.Container("pod").
					Path(), IfName: "eth0", Path: bin},
			})
			return err
		})
		if err != nil {
			c.t.Fatalf("%s by %s: %v", verb, conf["type"], err)
		}
		if verb == cni.Add {
			c.result = reply.Stdout
		}
	}
}

// TestChain: after ptp or bridge with host-local, CHECK of all plugins accepts the moved routes,
// the routes of the IPAM plugin are in the table of the VRF, and the host reaches the container.
// DEL leaves nothing behind.
func TestChain(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVRF))
	const ipam = `"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00:1::/64"}]],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"10.9.0.0/16","mtu":1300,"priority":7},{"dst":"10.8.0.0/16","scope":253}]}}`
	for _, main := range []string{`{"type":"ptp",` + ipam,
		`{"type":"bridge","bridge":"br0","isGateway":true,` + ipam} {
		c := &chain{Runtime: plugintest.NewRuntime(t, vrf.Plugin, `{"cniVersion":"1.1.0"}`), t: t,
			plugins: []string{main, `{"type":"vrf","vrfname":"red"}`}}
		pod := c.Net.Container("pod")
		var before string
		for range 2 { // the second time the bridge and the rule set exist
			c.result = nil
			c.call(cni.Add)
			c.call(cni.Check)
			for _, address := range []string{"10.1.0.2", "fd00:1::2"} {
				if strings.Contains(string(c.result), address+"/") {
					testnet.Reaches(t, c.Host, netip.MustParseAddr(address), true)
				}
			}
			routes := pod.Command("ip", "route", "show", "vrf", "red") +
				pod.Command("ip", "-6", "route", "show", "vrf", "red")
			for _, want := range []string{"default via 10.1.0.1", "default via fd00:1::1",
				"10.9.0.0/16 via 10.1.0.1 dev eth0 metric 7 mtu 1300", "10.8.0.0/16 dev eth0"} {
				if !strings.Contains(routes, want) {
					t.Errorf("no route %s:\n%s", want, routes)
				}
			}
			if left := pod.Command("ip", "route"); left != "" {
				t.Errorf("routes in the main table:\n%s", left)
			}
			c.call(cni.Del)
			if before != "" {
				c.Unchanged(before)
			}
			before = c.State()
		}
	}
}
