package vlan_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/vlan"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var vlans = testnet.Kernel(kernel.FeatureVLAN)

// suite returns the suite for the examples with linkInContainer, or for the rest.
func suite(inContainer bool) plugintest.Suite {
	s := plugintest.Suite{Plugin: vlan.Plugin}
	for _, e := range vlan.Plugin.Examples() {
		if strings.Contains(e.Config, "linkInContainer") == inContainer {
			s.Examples = append(s.Examples, e)
		}
	}
	return s
}

func TestSuite(t *testing.T) {
	testnet.Require(t, vlans)
	s := suite(false)
	s.Setup = func(_ testing.TB, n *plugintest.Net) { n.Host.Wire("eno1", "eno2") }
	// Without optimistic addresses in the kernel each ADD would wait one or two seconds.
	s.Rewrite = func(conf map[string]any, _ string) { conf["dad"] = "off" }
	s.Distinguish = numbered()
	s.Drifts = []plugintest.Drift{
		replaced("interface of another VLAN", "link eno1 type vlan id 6", "VLAN 5, found 6"),
		replaced("interface on another parent", "link eno2 type vlan id 5", "on eno1"),
		replaced("interface of another kind", "type dummy", "not of type vlan"),
		{Name: "another MTU", Key: "mtu", Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("ip", "link", "set", a.IfName, "mtu", "1390")
			return "Error: Tuning configured MTU of " + a.IfName + " is 1400, current value is 1390"
		}},
		{Name: "metric of a route changed", Key: "mtu",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Container.Command("ip", "route", "delete", "10.9.0.0/16")
				a.Container.Command("ip", "route", "add", "10.9.0.0/16", "via", "10.1.2.1",
					"metric", "8", "mtu", "1300")
				return "metric 7"
			}},
	}
	plugintest.Run(t, s)
}

// TestSuiteInContainer runs the suite with a parent in the container, which earlier plugins have
// put there.
func TestSuiteInContainer(t *testing.T) {
	testnet.Require(t, vlans, testnet.Kernel(kernel.FeatureDummy))
	s := suite(true)
	s.Before = func(_ testing.TB, _ *plugintest.Net, c *plugintest.Namespace) *cni.Result {
		c.Batch("link add port0 type dummy", "link set port0 up")
		return &cni.Result{
			Interfaces: []cni.Interface{{Name: "port0", Sandbox: c.Path()}},
			DNS:        cni.DNS{Nameservers: []string{"192.0.2.53"}},
		}
	}
	plugintest.Run(t, s)
}

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: vlan.Plugin}) }

// numbered gives each container its own VLAN, even if it reuses the number of an earlier one,
// because the kernel deletes the links of a namespace some time after the namespace.
func numbered() func(*plugintest.Request, int) {
	var mu sync.Mutex
	ids := map[string]int{}
	return func(q *plugintest.Request, _ int) {
		mu.Lock()
		defer mu.Unlock()
		if ids[q.ContainerID] == 0 {
			ids[q.ContainerID] = 1000 + len(ids)
		}
		q.Conf["vlanId"] = ids[q.ContainerID]
	}
}

// replaced is a drift in which another link with the same configuration has replaced the interface.
func replaced(name, link, says string) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: "mtu",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			parent, kind, ok := strings.Cut(link, "type")
			if !ok {
				panic(link)
			}
			a.Container.Command("ip", "link", "delete", a.IfName)
			a.Host.Batch(fmt.Sprintf("link add %s name %s netns %s address %s type %s",
				parent, a.IfName, a.Container.Path(), a.Result.Interfaces[0].MAC, kind))
			a.Container.Command("ip", "link", "set", a.IfName, "mtu", "1400", "up")
			for _, ip := range a.Result.IPs {
				a.Container.Command("ip", "address", "add", ip.Address.String(), "dev", a.IfName)
			}
			a.Container.Batch("route add 10.9.0.0/16 via 10.1.2.1 metric 7 mtu 1300",
				"route add ::/0 via fd00:1:2::1")
			return says
		}}
}
