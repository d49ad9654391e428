package vlan_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/vlan"
)

// runtime creates a host with interface eno1 (MTU 1500) and a network; members are added to the
// plugin's configuration.
func runtime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	testnet.Require(t, vlans)
	return anyRuntime(t, members)
}

// anyRuntime is runtime for tests that create no VLAN, so any kernel will do.
func anyRuntime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	r := plugintest.NewRuntime(t, vlan.Plugin, `{"cniVersion":"1.1.0","name":"net","type":"vlan"`+
		members+`}`)
	r.Host.Wire("eno1")
	return r
}

// Members of configurations:
const (
	vlan5    = `,"master":"eno1","vlanId":5`
	ipam4    = `,"ipam":{"type":"host-local","subnet":"10.1.2.0/24"}`
	ipamDual = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:7::/64"}]],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
)

// static returns a member ipam with these addresses, followed by more members.
func static(addresses, more string) string {
	return `,"ipam":{"type":"static","addresses":[` + addresses + `]` + more + `}`
}

// places are the locations of the parent; several tests run with both.
var places = map[string]string{"host": "", "container": `,"linkInContainer":true`}

// in creates the parent in the namespace where the configuration expects it.
func in(r *plugintest.Runtime, place string) *plugintest.Namespace {
	if place == "host" {
		return r.Host
	}
	r.Container("c").Wire("eno1")
	return r.Container("c")
}

// shown is the part of the output of ip that the tests compare.
type shown struct {
	IfName, Address string
	MTU             int
	LinkInfo        struct {
		Kind string `json:"info_kind"`
		Data struct {
			ID       int
			Protocol string
		} `json:"info_data"`
	}
}

func show(t *testing.T, ns *plugintest.Namespace, name string) shown {
	t.Helper()
	var links []shown
	if err := json.Unmarshal([]byte(ns.Command("ip", "-j", "-d", "link", "show", "dev", name)),
		&links); err != nil {
		t.Fatal(err)
	}
	return links[0]
}

// TestResult: the result has one interface with the parent's MAC address, the configured or the
// parent's MTU, the routes of IPAM, and the DNS settings of the configuration instead of IPAM's.
func TestResult(t *testing.T) {
	t.Parallel()
	const ipam = `"dns":{"nameservers":["10.1.2.53"]},"routes":[{"dst":"10.9.0.0/16"}]`
	for place, members := range places {
		for mtu, want := range map[string]int{"": 1500, `,"mtu":0`: 1500, `,"mtu":1400`: 1400,
			`,"mtu":1500`: 1500} {
			t.Run(place+mtu, func(t *testing.T) {
				t.Parallel()
				r := runtime(t,
					vlan5+members+mtu+static(`{"address":"10.1.2.2/24","gateway":"10.1.2.1"}`,
						","+ipam)+`,"dns":{"domain":"example"}`)
				parent := show(t, in(r, place), "eno1")
				c := r.Container("c")
				r.Add("c")
				r.Check("c")
				l := show(t, c, "eth0")
				if l.LinkInfo.Kind != "vlan" || l.LinkInfo.Data.ID != 5 ||
					l.LinkInfo.Data.Protocol != "802.1Q" || l.MTU != want {
					t.Errorf("interface is %+v, want VLAN 5 with MTU %d", l, want)
				}
				r.Del("c")
				r.Del("c")
				if left := c.Try("ip", "link", "show", "dev", "eth0"); left == nil {
					t.Error("DEL left the interface")
				}
				got := map[string]any{}
				if err := json.Unmarshal(r.Must(r.Request(cni.Add, "c")), &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(map[string]any{
					"cniVersion": "1.1.0",
					"interfaces": []any{map[string]any{"name": "eth0", "mac": parent.Address,
						"sandbox": c.Path()}},
					"ips": []any{map[string]any{"address": "10.1.2.2/24", "gateway": "10.1.2.1",
						"interface": 0.0}},
					"routes": []any{map[string]any{"dst": "10.9.0.0/16"}},
					"dns":    map[string]any{"domain": "example"},
				}, got); diff != "" {
					t.Errorf("result (-want +got): %s", diff)
				}
			})
		}
	}
}

// TestRefused: ADD creates nothing for these configurations, and DEL succeeds.
func TestRefused(t *testing.T) {
	t.Parallel()
	for place, members := range places {
		for _, row := range []struct{ name, members, says string }{
			{"no master", `,"vlanId":5` + ipam4, `"master" field is required`},
			{"no such master", `,"master":"absent","vlanId":5` + ipam4, `"absent"`},
			{"MTU above the parent's", vlan5 + `,"mtu":1600` + ipam4,
				"invalid MTU 1600, must be [0, master MTU(1500)]"},
			{"negative MTU", vlan5 + `,"mtu":-100` + ipam4,
				"invalid MTU -100, must be [0, master MTU(1500)]"},
			{"negative ID", `,"master":"eno1","vlanId":-1` + ipam4,
				"invalid VLAN ID -1 (must be between 0 and 4095 inclusive)"},
			{"ID above the last", `,"master":"eno1","vlanId":4095` + ipam4,
				"vlanId: the highest VLAN ID is 4094"},
			{"unknown duplicate detection", vlan5 + `,"dad":"maybe"` + ipam4, `dad: "maybe"`},
		} {
			t.Run(place+", "+row.name, func(t *testing.T) {
				t.Parallel()
				r := anyRuntime(t, members+row.members)
				in(r, place)
				r.Container("c")
				before := r.State()
				plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig),
					row.says)
				r.Must(r.Request(cni.Del, "c"))
				r.Unchanged(before)
			})
		}
	}
}

// TestIDs: the first and the last ID can be used at once, even in one container.
func TestIDs(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"master":"eno1"`+ipam4) // 0 is the default
	r.Add("a")
	r.Conf["vlanId"] = 4094
	r.Add("b")
	r.Check("b")
	if id := show(t, r.Container("b"), "eth0").LinkInfo.Data.ID; id != 4094 {
		t.Errorf("VLAN %d, want 4094", id)
	}
}

// TestTaken: ADD of a VLAN that is in use reports the holder; DEL of the holder frees the VLAN.
func TestTaken(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members, says string
		take                func(*plugintest.Runtime)
	}{
		{"another container", "",
			"VLAN 5 of eno1 exists already: container first (network net, eth0)",
			func(r *plugintest.Runtime) {
				r.Add("first")
			}},
		{"an interface of the host", "",
			"VLAN 5 of eno1 exists already: interface storage in the same namespace",
			func(r *plugintest.Runtime) {
				r.Host.Command("ip", "link", "add", "storage", "link", "eno1", "type", "vlan", "id",
					"5")
			}},
		{"an interface moved into another namespace", "",
			"VLAN 5 of eno1 exists already: interface net1 in another network namespace",
			func(r *plugintest.Runtime) {
				r.Host.Command("ip", "link", "add", "net1", "link", "eno1", "type", "vlan", "id",
					"5")
				r.Host.Command("ip", "link", "set", "net1", "netns", r.Container("first").Path())
			}},
		{"an interface of the container", `,"linkInContainer":true`,
			"VLAN 5 of eno1 exists already: interface own in the same namespace",
			func(r *plugintest.Runtime) {
				in(r, "container").
					Command("ip", "link", "add", "own", "link", "eno1", "type", "vlan", "id", "5")
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, vlan5+row.members+ipam4)
			// not the holder of VLAN 5
			r.Host.Command("ip", "link", "add", "storage7", "link", "eno1", "type", "vlan", "id",
				"7")
			row.take(r)
			r.Container("c")
			before := r.State()
			plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), session.CodeInUse), row.says)
			r.Unchanged(before)
			r.Must(r.Request(cni.Del, "c"))
			r.Unchanged(before)
		})
	}
	t.Run("after DEL", func(t *testing.T) {
		t.Parallel()
		r := runtime(t, vlan5+ipam4)
		r.Add("first")
		r.Del("first")
		r.Add("second")
		r.Check("second")
	})
}

// TestDel: DEL releases the address without the parent, and for configurations that ADD refuses
//
func TestDel(t *testing.T) {
	t.Parallel()
	for place, members := range places {
		for _, row := range []struct {
			name   string
			change func(parent *plugintest.Namespace, q *plugintest.Request)
		}{
			{"parent gone", func(parent *plugintest.Namespace, _ *plugintest.Request) {
				parent.Command("ip", "link", "delete", "eno1")
			}},
			{"parent renamed", func(parent *plugintest.Namespace, _ *plugintest.Request) {
				parent.Batch("link set eno1 down", "link set eno1 name eno2")
			}},
			{"master not named", func(_ *plugintest.Namespace, q *plugintest.Request) {
				delete(q.Conf, "master")
			}},
			{"MTU above the parent's", func(_ *plugintest.Namespace, q *plugintest.Request) {
				q.Conf["mtu"] = 9000
			}},
			{"MTU too small for the addresses",
				func(_ *plugintest.Namespace, q *plugintest.Request) {
					q.Conf["mtu"] = -100
				}},
			{"invalid ID", func(_ *plugintest.Namespace, q *plugintest.Request) {
				q.Conf["vlanId"] = 5000
			}},
			{"parent and namespace gone",
				func(parent *plugintest.Namespace, q *plugintest.Request) {
					parent.Command("ip", "link", "delete", "eno1")
					q.Netns = "/run/netns/absent"
				}},
		} {
			t.Run(place+", "+row.name, func(t *testing.T) {
				t.Parallel()
				r := runtime(t, vlan5+members+ipam4)
				parent := in(r, place)
				ip := r.Add("c").IPs[0].Address.Addr().String()
				q := r.Request(cni.Del, "c")
				row.change(parent, &q)
				r.Must(q)
				r.Must(q)
				if out := r.Container("c").
					Command("ip", "-br", "link"); q.Netns != "/run/netns/absent" &&
					strings.Contains(out, "eth0") {
					t.Errorf("container has\n%s", out)
				}
				if _, err := os.Stat(filepath.Join(r.Dir, "net", ip)); err == nil {
					t.Error("address is not released")
				}
			})
		}
	}
	t.Run("never added, without ipam", func(t *testing.T) {
		t.Parallel()
		r := runtime(t, vlan5+`,"ipam":{}`)
		r.Must(r.Request(cni.Del, "c"))
	})
}

// TestWithoutIPAM: ADD without ipam brings the interface up, and the result has the interface alone.
func TestWithoutIPAM(t *testing.T) {
	t.Parallel()
	for _, ipam := range []string{"", `,"ipam":{}`} {
		r := runtime(t, vlan5+ipam)
		r.Container("c")
		before := r.State()
		result := r.Add("c")
		if len(result.Interfaces) != 1 || len(result.IPs)+len(result.Routes) > 0 {
			t.Errorf("result %+v", result)
		}
		if out := r.Container("c").Command("ip", "link", "show", "up"); !strings.Contains(out, "eth0") {
			t.Errorf("the interface is down: %s", out)
		}
		r.Check("c")
		status := r.Request(cni.Status, "c")
		r.Must(status)
		r.Del("c")
		r.Unchanged(before)
	}
}

// lab creates hosts, each with a network and an interface eno1 that leads to a common switch for
// all VLANs.
func lab(t *testing.T, members ...string) []*plugintest.Runtime {
	t.Helper()
	testnet.Require(t, vlans)
	var hosts []*plugintest.Runtime
	for i, m := range members {
		r := plugintest.NewRuntime(t, vlan.Plugin,
			`{"cniVersion":"1.1.0","name":"net","type":"vlan"`+m+`}`)
		hosts = append(hosts, r)
		wire := hosts[0].Container("switch")
		if i == 0 {
			wire.Command("ip", "link", "add", "br0", "up", "type", "bridge")
		}
		port := fmt.Sprintf("port%d", i)
		r.Host.Command("ip", "link", "add", "eno1", "type", "veth", "peer", "name", port, "netns",
			wire.Path())
		r.Host.Command("ip", "link", "set", "eno1", "up")
		wire.Command("ip", "link", "set", port, "master", "br0", "up")
	}
	return hosts
}

// at returns a network with these addresses for the container.
func at(id, last int, more string) string {
	return fmt.Sprintf(`,"master":"eno1","vlanId":%d%s`, id, more) +
		static(fmt.Sprintf(`{"address":"10.1.2.%d/24"},{"address":"fd00:7::%d/64"}`, last, last),
			"")
}

// TestTraffic: containers of one VLAN on two hosts reach each other with tagged frames, and no
// other containers.
func TestTraffic(t *testing.T) {
	t.Parallel()
	hosts := lab(t, at(5, 1, ""), at(5, 2, ""), at(6, 3, ""))
	hosts[0].Add("a")
	hosts[1].Add("b")
	hosts[2].Add("other")
	hosts[0].Container("switch").
		Batch("link add br0.5 link br0 up type vlan id 5", "address add 10.1.2.5/24 dev br0.5")
	for _, prefix := range []string{"10.1.2.", "fd00:7::"} {
		testnet.Reaches(t, hosts[0].Container("a"), netip.MustParseAddr(prefix+"2"), true)
		testnet.Reaches(t, hosts[1].Container("b"), netip.MustParseAddr(prefix+"1"), true)
		testnet.Reaches(t, hosts[0].Container("a"), netip.MustParseAddr(prefix+"3"), false)
		testnet.Reaches(t, hosts[2].Container("other"), netip.MustParseAddr(prefix+"1"), false)
	}
	// this interface receives only tagged frames
	testnet.Reaches(t, hosts[0].Container("a"), netip.MustParseAddr("10.1.2.5"), true)
}

// TestNewNeighbour: after an address has moved to a container on another host, neighbours learn its
// MAC address at once.
func TestNewNeighbour(t *testing.T) {
	t.Parallel()
	hosts := lab(t, at(5, 1, `,"dad":"off"`), at(5, 77, `,"dad":"off"`), at(5, 77, `,"dad":"off"`))
	neighbour := hosts[0].Container("a")
	hosts[0].Add("a")
	for _, ip := range hosts[1].Add("before").IPs {
		testnet.Reaches(t, neighbour, ip.Address.Addr(), true)
	}
	hosts[1].Del("before")
	time.Sleep(1100 * time.Millisecond) // ARP ignores changes of younger entries (locktime, arp(7))
	after := hosts[2].Add("after")
	for _, ip := range after.IPs {
		testnet.LearnsMAC(t, neighbour, ip.Address.Addr(), after.Interfaces[0].MAC)
	}
}

// TestDuplicates: with "wait", ADD reports an IPv6 address that another host has. With every value
// of dad, the addresses that ADD returns can be used at once, even without a gateway.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	t.Run("found", func(t *testing.T) {
		t.Parallel()
		hosts := lab(t, at(5, 1, `,"dad":"off"`), at(5, 1, `,"dad":"wait"`))
		hosts[0].Add("a")
		hosts[1].Container("b")
		before := hosts[1].State()
		plugintest.Says(t, hosts[1].Refused(hosts[1].Request(cni.Add, "b"), cni.CodeInternal),
			"fd00:7::1")
		hosts[1].Unchanged(before)
	})
	for _, way := range []string{"", `,"dad":"optimistic"`, `,"dad":"wait"`, `,"dad":"off"`} {
		t.Run("usable"+way, func(t *testing.T) {
			t.Parallel()
			hosts := lab(t, at(5, 1, `,"dad":"off"`), at(5, 2, way))
			hosts[0].Add("a")
			hosts[1].Add("b")
			hosts[1].Check("b")
			testnet.Reaches(t, hosts[1].Container("b"), netip.MustParseAddr("fd00:7::1"), true)
		})
	}
}

// TestRoutes: ADD applies and CHECK compares all attributes of a route, and a default route does
// not replace the default route of another network or join it.
func TestRoutes(t *testing.T) {
	t.Parallel()
	r := runtime(t, vlan5+static(`{"address":"10.1.2.2/24","gateway":"10.1.2.1"}`,
		`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","mtu":1300,"advmss":1200,"priority":7},{"dst":"10.8.0.0/16","table":99,"scope":253}]`))
	c := r.Container("c")
	c.Wire("net0")
	c.Batch("address add 10.5.0.2/24 dev net0", "route add default via 10.5.0.1")
	result := r.Add("c")
	r.Check("c")
	if got := result.Routes[0].Priority; got != 1 {
		t.Errorf("result has priority %d of the second default route, want 1", got)
	}
	var got []string
	for line := range strings.Lines(c.Command("ip", "-4", "route", "show", "table", "all", "dev",
		"eth0")) {
		if line = strings.Join(strings.Fields(line), " "); strings.HasPrefix(line, "default") ||
			strings.HasPrefix(line, "10.8") || strings.HasPrefix(line, "10.9") {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		"10.8.0.0/16 table 99 scope link",
		"10.9.0.0/16 via 10.1.2.1 metric 7 mtu 1300 advmss 1200",
		"default via 10.1.2.1 metric 1",
	}, got); diff != "" {
		t.Error(diff)
	}
	if out := c.Command("ip", "route", "get", "203.0.113.1"); !strings.Contains(out, "dev net0") {
		t.Errorf("the first default route has lost its precedence: %s", out)
	}
	c.Command("ip", "route", "replace", "10.9.0.0/16", "via", "10.1.2.1", "dev", "eth0", "metric",
		"7", "mtu", "1300")
	plugintest.Says(t, r.Refused(r.Request(cni.Check, "c"), cni.CodeInternal), "10.9.0.0/16")
	r.Del("c")
	r.Conf["secondDefaultRoute"] = "refuse"
	plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig), "default route")
}

// TestNames: ADD accepts an interface name with a dot and writes its IPv6 sysctls; it also accepts
// a name that the host has. It refuses a name that the container has.
func TestNames(t *testing.T) {
	t.Parallel()
	for place, members := range places {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, vlan5+members+ipamDual)
			in(r, place)
			r.Host.Batch("link add eth0 type bridge", "link add eno1.5 type bridge")
			for _, name := range []string{"eth0", "eno1.5", "a.b.c"} {
				q := r.Request(cni.Add, "c")
				q.IfName = name
				q.Conf["prevResult"] = nil
				prev := r.Must(q)
				if got := strings.TrimSpace(r.Container("c").
					Command("cat", "/proc/sys/net/ipv6/conf/"+name+
						"/keep_addr_on_down")); got != "1" {
					t.Errorf("%s: keep_addr_on_down is %s", name, got)
				}
				plugintest.Says(t, r.Refused(q, plugin.CodeInUse),
					fmt.Sprintf("link %q exists in %s", name, r.Container("c").Path()))
				q.Conf["prevResult"] = prev
				for _, verb := range []cni.Command{cni.Check, cni.Del, cni.Del} {
					q.Command = verb
					r.Must(q)
				}
			}
		})
	}
}

// TestStatus: STATUS checks the kernel and calls IPAM. The test also runs on kernels without VLANs.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := plugintest.NewRuntime(t, vlan.Plugin, `{"cniVersion":"1.1.0","name":"net","type":"vlan"`+
		vlan5+ipam4+`}`)
	if vlans() != nil {
		plugintest.Says(t, r.Refused(r.Request(cni.Status, "c"), cni.CodeNotAvailable), "8021q")
		return
	}
	plugintest.Says(t, r.Refused(r.Request(cni.Status, "c"), cni.CodeNotAvailable),
		`"eno1": not found in the host`)
	r.Host.Batch("link add eno1 type veth peer name far")
	r.Must(r.Request(cni.Status, "c"))
	r.Conf["ipam"].(map[string]any)["rangeEnd"] = "10.9.9.9"
	if _, err := r.Do(t.Context(), r.Request(cni.Status, "c")); err == nil ||
		!strings.Contains(err.Error(), "10.9.9.9") {
		t.Errorf("STATUS did not call IPAM: %v", err)
	}
}
