package sbr_test

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/sbr"
)

// chain calls the plugins of a network like a runtime: each in a process, with the previous
// plugin's result.
type chain struct {
	*testnet.Net
	t       *testing.T
	bin     string // CNI_PATH
	ifName  string
	plugins []string // configurations
	result  json.RawMessage
}

func newChain(r *plugintest.Runtime, t *testing.T, ifName string, plugins ...string) *chain {
	return &chain{Net: r.Net, t: t, bin: r.Collect().Path, ifName: ifName, plugins: plugins}
}

func (c *chain) call(verb cni.Command, container, conf string) json.RawMessage {
	c.t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(conf), &object); err != nil {
		c.t.Fatal(err)
	}
	object["name"], object["cniVersion"] = c.ifName, "1.1.0"
	if c.result != nil {
		object["prevResult"] = c.result
	}
	stdin, err := json.Marshal(object)
	if err != nil {
		c.t.Fatal(err)
	}
	var reply invoke.Reply
	err = c.Host.Run(func() (err error) {
		reply, err = plugin.Caller(nil, true).Call(c.t.Context(), invoke.Call{
			Path: filepath.Join(c.bin, object["type"].(string)), Stdin: stdin,
			Env: cni.Env{Command: verb, ContainerID: container, Netns: c.Container(container).
				Path(), IfName: c.ifName, Path: c.bin},
		})
		return err
	})
	if err != nil {
		c.t.Fatalf("%s of %s by %s: %v", verb, c.ifName, object["type"], err)
	}
	return reply.Stdout
}

func (c *chain) add(container string) {
	c.t.Helper()
	c.result = nil
	for _, conf := range c.plugins {
		c.result = c.call(cni.Add, container, conf)
	}
}

func (c *chain) check(container string) {
	c.t.Helper()
	for _, conf := range c.plugins {
		c.call(cni.Check, container, conf)
	}
}

func (c *chain) del(container string) {
	c.t.Helper()
	for _, conf := range slices.Backward(c.plugins) {
		c.call(cni.Del, container, conf)
	}
}

// The container has two networks. The host is the gateway of the first one, a router on the link
// the gateway of the second.
const (
	addresses1 = `"ipam":{"type":"static","addresses":[{"address":"10.1.0.2/24","gateway":"10.1.0.1"},{"address":"fd00:1::2/64","gateway":"fd00:1::1"}],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
	addresses2 = `"ipam":{"type":"static","addresses":[{"address":"10.2.0.2/24","gateway":"10.2.0.1"},{"address":"fd00:2::2/64","gateway":"fd00:2::1"}],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
)

// client creates a host behind the second network: its addresses are on the loopback interface of
// its router.
func client(n *testnet.Net) *testnet.Namespace {
	c := n.Container("client")
	n.Host.Batch("link add to-client type veth peer name eth0 netns "+c.Path(),
		"link set to-client master storage up")
	c.Command("sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")
	c.Batch(
		"link set lo up", "address add 198.51.100.1/32 dev lo",
		"address add 2001:db8:5::1/128 dev lo nodad",
		"address add 10.2.0.1/24 dev eth0", "address add fd00:2::1/64 dev eth0 nodad",
		"link set eth0 up",
		"route replace 10.2.0.0/24 dev eth0 src 198.51.100.1",
		"route replace fd00:2::/64 dev eth0 metric 1 src 2001:db8:5::1",
	)
	return c
}

// TestTwoInterfaces: with sbr, a host behind the second network reaches the container through it.
// Without sbr the replies leave through the first interface, whose gateway has no route back. CHECK
// of all plugins accepts the moved routes, and the first interface works as before.
func TestTwoInterfaces(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, sbr string
		want      bool
	}{
		{"without sbr", ``, false},
		{"with sbr", `{"type":"sbr"}`, true},
		{"with hints", `{"type":"sbr","addSourceHints":true}`, true},
		{"with gateways", `{"type":"sbr","gateways":["10.2.0.1","fd00:2::1"]}`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := plugintest.NewRuntime(t, sbr.Plugin, `{}`)
			pod := r.Net.Container("pod")
			eth0 := newChain(r, t, "eth0", `{"type":"ptp",`+addresses1+`}`)
			eth0.add("pod")
			net1 := newChain(r, t, "net1", `{"type":"bridge","bridge":"storage",`+addresses2+`}`)
			if row.sbr != "" {
				net1.plugins = append(net1.plugins, row.sbr)
			}
			var from *testnet.Namespace
			for i := range 2 { // the second attachment reuses addresses and tables
				net1.add("pod")
				if i == 0 {
					from = client(r.Net)
				}
				eth0.check("pod")
				net1.check("pod")
				for _, address := range []string{"10.2.0.2", "fd00:2::2"} {
					testnet.Reaches(t, from, netip.MustParseAddr(address), row.want)
				}
				for _, gateway := range []string{"10.1.0.1", "fd00:1::1"} {
					testnet.Reaches(t, pod, netip.MustParseAddr(gateway), true)
				}
				net1.del("pod")
				for _, family := range []string{"-4", "-6"} {
					if rules := pod.Command("ip", family, "rule"); strings.Contains(rules,
						"proto 116") {
						t.Errorf("rules after DEL:\n%s", rules)
					}
				}
			}
		})
	}
}

// TestRoutedLink: CHECK of ptp succeeds with sbr in the chain, and packets from the addresses use
// the tables.
func TestRoutedLink(t *testing.T) {
	t.Parallel()
	r := plugintest.NewRuntime(t, sbr.Plugin, `{}`)
	pod := r.Net.Container("pod")
	c := newChain(r, t, "eth0", `{"type":"ptp",`+addresses1+`}`, `{"type":"sbr"}`)
	c.add("pod")
	c.check("pod")
	for _, row := range []struct{ from, to, family, table string }{{"10.1.0.2", "10.1.0.1", "-4",
		"100"}, {"fd00:1::2", "fd00:1::1", "-6", "101"}} {
		testnet.Reaches(t, r.Host, netip.MustParseAddr(row.from), true)
		got := pod.Command("ip", row.family, "route", "get", "fibmatch", row.to, "from", row.from)
		if !strings.Contains(got, "table "+row.table) {
			t.Errorf("from %s: %s", row.from, got)
		}
	}
	c.del("pod")
	for _, family := range []string{"-4", "-6"} {
		if rules := pod.Command("ip", family, "rule"); strings.Contains(rules, "proto 116") {
			t.Errorf("rules after DEL:\n%s", rules)
		}
	}
}
