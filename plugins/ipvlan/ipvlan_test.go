package ipvlan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/ipvlan"
)

// runtime creates a host with an interface uplink to another host; members are added to the
// plugin's configuration.
func runtime(t *testing.T, members string) (r *plugintest.Runtime, outside *plugintest.Namespace) {
	t.Helper()
	testnet.Require(t, ipvlans)
	return anyRuntime(t, members)
}

// anyRuntime is runtime for tests that create no ipvlan, so any kernel will do.
func anyRuntime(
	t *testing.T, members string,
) (r *plugintest.Runtime, outside *plugintest.Namespace) {
	t.Helper()
	r = plugintest.NewRuntime(t, ipvlan.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"ipvlan","master":"uplink","dad":"off"`+members+
			`}`)
	return r, r.Uplink()
}

// ipam has addresses of the uplink's networks.
const ipam = `,"ipam":{"type":"host-local","ranges":[
	[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","gateway":"192.0.2.2"}],
	[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::10","gateway":"2001:db8::2"}]],
	"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"198.51.100.0/24","priority":7,"mtu":1300,"advmss":1200}]}`

// merge adds members, a JSON object without its braces, to the configuration of a request.
func merge(t *testing.T, q *plugintest.Request, members string) {
	t.Helper()
	if err := json.Unmarshal([]byte("{"+members+"}"), &q.Conf); err != nil {
		t.Fatal(err)
	}
}

const chainedResult = `"cniVersion":"1.1.0","interfaces":[{"name":"uplink"}],"ips":[{"address":"192.0.2.50/24"}]`

// refusals are configurations that ADD refuses before its first change.
var refusals = []struct {
	name, members string
	configuration bool
	says          string
}{
	{"unknown mode", `"mode":"bridge"`, true, `mode: "bridge"`},
	{"mode in capitals", `"mode":"L3S"`, true, `mode: "L3S"`},
	{"negative MTU", `"mtu":-1`, true, "mtu: -1"},
	{"unknown dad", `"dad":"maybe"`, true, "maybe"},
	{"no addresses", `"ipam":null`, false, "ipvlan needs ipam"},
	{"no addresses in the previous result",
		`"ipam":null,"prevResult":{"interfaces":[{"name":"uplink"}]}`, false,
		"addresses in prevResult"},
	{"no interface in the previous result", `"master":"","prevResult":{"cniVersion":"1.1.0"}`,
		false, "prevResult has 0 interfaces"},
	{"two interfaces in the previous result",
		`"master":"","prevResult":{"interfaces":[{"name":"uplink"},{"name":"b"}]}`, false,
		"prevResult has 2 interfaces"},
	{"interface of the previous result does not exist",
		`"master":"","prevResult":{"interfaces":[{"name":"gone"}]}`, false, `"gone"`},
	{"no such parent", `"master":"absent"`, false, `"absent": not found in the host`},
	{"no such parent in the container", `"linkInContainer":true`, false,
		`"uplink": not found in the container`},
	{"no default route", `"master":""`, false,
		"no default route interface found: the host has no default route"},
	{"no default route in the container", `"master":"","linkInContainer":true`, false,
		"no default route interface found: the container (linkInContainer) has no default route"},
}

// TestRefused: STATUS refuses the same configurations, except for a missing parent. DEL accepts all
// of them.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, row := range refusals {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, _ := anyRuntime(t, ipam)
			r.Container("c")
			before := r.State()
			q := r.Request(cni.Add, "c")
			merge(t, &q, row.members)
			plugintest.Says(t, r.Refused(q, cni.CodeInvalidConfig), row.says)
			if row.configuration {
				q.Command = cni.Status
				plugintest.Says(t, r.Refused(q, cni.CodeInvalidConfig), row.says)
			}
			q.Command = cni.Del
			r.Must(q)
			r.Unchanged(before)
		})
	}
}

// TestStatus: STATUS fails if the host has no parent of the configured name. It ignores parents in
// the container and parents that an earlier plugin in the chain may create.
func TestStatus(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	for _, row := range refusals {
		if !row.configuration {
			q := r.Request(cni.Status, "c")
			merge(t, &q, row.members)
			if row.name == "no such parent" {
				plugintest.Says(t, r.Refused(q, cni.CodeNotAvailable), row.says)
				continue
			}
			r.Must(q)
		}
	}
}

// TestMaster: the parent is found by name, by the default route and by the previous result, in host
// and container. The ipvlan has the mode, the parent's MAC address, and the MTU; the kernel checks
// its limits. ADD does not wait for the other host.
func TestMaster(t *testing.T) {
	t.Parallel()
	const byName = `"master":"uplink"`
	type row struct {
		name, members string
		inside        bool
		mode          ipvlan.Mode
	}
	rows := []row{{"mode l2", byName, false, ipvlan.L2}, {"mode l3", byName, false, ipvlan.L3},
		{"mode l3s", byName, true, ipvlan.L3S}}
	for _, inside := range []bool{false, true} {
		for name, members := range map[string]string{
			"name": byName, "default route": `"master":""`,
			"previous result": `"master":"","prevResult":{"interfaces":[{"name":"uplink"}]}`,
		} {
			rows = append(rows, row{fmt.Sprintf("linkInContainer %t, %s", inside, name), members,
				inside, ""})
		}
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, fmt.Sprintf(`,"linkInContainer":%t,"mode":%q,"mtu":1400`, row.inside,
				row.mode)+ipam)
			where := r.Host
			if row.inside {
				where = r.Container("c")
				r.Host.Command("ip", "link", "set", "uplink", "netns", where.Path())
			}
			where.Batch("link set uplink up", "route add default dev uplink metric 40")
			q := r.Request(cni.Add, "c")
			merge(t, &q, row.members)
			q.Conf["prevResult"] = r.Must(q)
			q.Command = cni.Check
			r.Must(q)
			kind := string(row.mode)
			if kind == "" {
				kind = "l2"
			}
			have := r.Container("c").Command("ip", "-d", "link", "show", "dev", "eth0")
			for _, want := range []string{"ipvlan  mode " + kind + " bridge", "mtu 1400", ",UP"} {
				if !strings.Contains(have, want) {
					t.Errorf("no %q in %s", want, have)
				}
			}
		})
	}
}

// TestChained: without ipam the result has only the ipvlan, with addresses, routes and parent of
// the previous result, and the DNS settings of the configuration.
func TestChained(t *testing.T) {
	t.Parallel()
	r, outside := runtime(t, "")
	delete(r.Conf, "master")
	q := r.Request(cni.Add, "c")
	merge(t, &q, `"prevResult":{`+chainedResult+
		`,"routes":[{"dst":"198.51.100.0/24","gw":"192.0.2.2"}],"dns":{"domain":"before"}}`)
	out := r.Must(q)
	got, err := cni.DecodeResultStrict(out, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &cni.Result{
		Interfaces: []cni.Interface{{Name: "eth0",
			MAC: strings.Fields(r.Host.Command("ip", "-br", "link", "show", "dev",
				"uplink"))[2],
			Sandbox: r.Container("c").Path()}},
		IPs: []cni.IP{{Address: netip.MustParsePrefix("192.0.2.50/24"), Interface: cni.Some(0)}},
		Routes: []cni.Route{{Dst: netip.MustParsePrefix("198.51.100.0/24"),
			GW: netip.MustParseAddr("192.0.2.2")}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
		cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	testnet.Reaches(t, outside, netip.MustParseAddr("192.0.2.50"), true)
	q.Conf["prevResult"] = out
	for _, verb := range []cni.Command{cni.Check, cni.Del} {
		q.Command = verb
		r.Must(q)
	}
}

// TestChainedWithIPAM: with ipam the previous addresses are not configured, but stay in the result
// (PL-ADD-06).
func TestChainedWithIPAM(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	q := r.Request(cni.Add, "c")
	merge(t, &q, `"master":"","prevResult":{`+chainedResult+`}`)
	got, err := cni.DecodeResultStrict(r.Must(q), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Interfaces) != 2 || len(got.IPs) != 3 || got.IPs[1].Interface != cni.Some(1) {
		t.Errorf("%+v", got)
	}
	if out := r.Container("c").
		Command("ip", "-4", "address", "show", "dev", "eth0"); strings.Contains(out,
		"192.0.2.50") || !strings.Contains(out, "192.0.2.10/24") {
		t.Error(out)
	}
}

// TestDel: DEL releases the address without the parent, the default route or an interface in
// prevResult.
func TestDel(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*plugintest.Request){
		"no master, no result": func(q *plugintest.Request) {
			delete(q.Conf, "master")
			delete(q.Conf, "prevResult")
		},
		"several interfaces": func(q *plugintest.Request) {
			delete(q.Conf, "master")
			q.Conf["prevResult"] = json.RawMessage(
				`{"cniVersion":"1.1.0","interfaces":[{"name":"a"},{"name":"b"}]}`)
		},
		"no netns":    func(q *plugintest.Request) { q.Netns = "" },
		"wrong types": func(q *plugintest.Request) { q.Conf["master"], q.Conf["mode"] = 5, 6 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, ipam)
			r.Add("c")
			r.Host.Command("ip", "link", "delete", "uplink")
			q := r.Request(cni.Del, "c")
			change(&q)
			r.Must(q)
			r.Must(q)
			if left, _ := filepath.Glob(filepath.Join(r.Dir, "net", "[12]*")); len(left) > 0 {
				t.Errorf("reservations left: %v", left)
			}
		})
	}
}

// TestNameClash: the error contains the name and the namespace; ADD leaves no link and no
// reservation.
func TestNameClash(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	r.Container("c").Command("ip", "link", "add", "eth0", "type", "bridge")
	before := r.State()
	err := r.Refused(r.Request(cni.Add, "c"), plugin.CodeInUse)
	plugintest.Says(t, err, `"eth0" exists`)
	plugintest.Says(t, err, r.Container("c").Path())
	r.Unchanged(before)
}

// TestRoutes: ADD applies all attributes of a route, and the default route of a second network gets
// its own metric.
func TestRoutes(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	r.Add("c")
	q := r.Request(cni.Add, "c")
	q.IfName = "eth1.100"
	q.Conf["ipam"] = json.RawMessage(
		`{"type":"static","addresses":[{"address":"192.0.2.60/24","gateway":"192.0.2.2"}],"routes":[{"dst":"0.0.0.0/0"}]}`)
	r.Must(q)
	c := r.Container("c")
	if out := c.Command("ip", "route", "show", "198.51.100.0/24"); !strings.Contains(out,
		"via 192.0.2.2 dev eth0 metric 7 mtu 1300 advmss 1200") {
		t.Errorf("route %s", out)
	}
	if diff := cmp.Diff(
		"default via 192.0.2.2 dev eth0 \ndefault via 192.0.2.2 dev eth1.100 metric 1 \n",
		c.Command("ip", "route", "show", "default")); diff != "" {
		t.Error(diff)
	}
	if got := strings.TrimSpace(c.Command("cat",
		"/proc/sys/net/ipv4/conf/eth1.100/arp_notify")); got != "1" {
		t.Errorf("arp_notify is %s", got)
	}
	r.Check("c")
}

// TestPing: as soon as ADD has returned, containers reach each other and the other host; in the
// layer 3 modes the other host needs a route by way of the host. Sockets can bind the addresses
// with every value of dad.
func TestPing(t *testing.T) {
	t.Parallel()
	const routed = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.96.0.0/24"}],[{"subnet":"fd00:96::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
	for _, row := range []struct{ mode, dad, ipam string }{{"l2", "off", ipam},
		{"l2", "wait", ipam}, {"l2", "optimistic", ipam}, {"l3", "off", routed}, {"l3s",
			"optimistic", routed}} {
		t.Run(row.mode+" "+row.dad, func(t *testing.T) {
			t.Parallel()
			r, outside := runtime(t, row.ipam)
			r.Conf["mode"], r.Conf["dad"] = row.mode, row.dad
			outside.Batch("route add 10.96.0.0/24 via 192.0.2.1",
				"route add fd00:96::/64 via 2001:db8::1")
			a, b := r.Add("a"), r.Add("b")
			for i, ip := range a.IPs {
				bind(t, r.Container("a"), ip.Address.Addr())
				if row.dad == "optimistic" && testnet.OptimisticDAD() == nil && row.mode == "l2" &&
					i > 0 {
					continue // it sends no neighbour solicitations yet (RFC 4429, section 3.2)
				}
				testnet.Reaches(t, r.Container("a"), b.IPs[i].Address.Addr(), true)
				testnet.Reaches(t, outside, ip.Address.Addr(), true)
				testnet.Reaches(t, r.Container("b"), []netip.Addr{netip.MustParseAddr("192.0.2.2"),
					netip.MustParseAddr("2001:db8::2")}[i], true)
			}
		})
	}
}

func bind(t *testing.T, ns *plugintest.Namespace, address netip.Addr) {
	t.Helper()
	err := ns.Run(func() error {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 0)))
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNewNeighbour: other hosts that have cached a macvlan's MAC address for the container's
// addresses learn the parent's MAC address within a second.
func TestNewNeighbour(t *testing.T) {
	t.Parallel()
	for _, dad := range []string{"optimistic", "wait", "off"} {
		t.Run(dad, func(t *testing.T) {
			t.Parallel()
			r, outside := runtime(t, ipam)
			r.Conf["dad"] = dad
			before := r.Container("before")
			r.Host.Command("ip", "link", "add", "link", "uplink", "name", "eth0", "netns",
				before.Path(), "type", "macvlan", "mode", "bridge")
			before.Batch("address add 192.0.2.10/24 dev eth0",
				"address add 2001:db8::10/64 dev eth0 nodad", "link set eth0 up")
			addresses := []netip.Addr{netip.MustParseAddr("192.0.2.10"),
				netip.MustParseAddr("2001:db8::10")}
			for _, a := range addresses {
				testnet.Reaches(t, outside, a, true)
			}
			before.Command("ip", "link", "delete", "eth0")
			// ARP ignores changes of younger entries (locktime, arp(7))
			time.Sleep(1100 * time.Millisecond)
			mac := r.Add("after").Interfaces[0].MAC
			for _, a := range addresses {
				testnet.LearnsMAC(t, outside, a, mac)
			}
		})
	}
}

// TestParentIsDown: ADD does not wait for answers on a parent that is down.
func TestParentIsDown(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	delete(r.Conf, "dad")
	r.Host.Command("ip", "link", "set", "uplink", "down")
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	if _, err := r.Do(ctx, r.Request(cni.Add, "c")); err != nil {
		t.Error(err)
	}
}

// TestOneModePerParent: the kernel gives all interfaces of a parent the mode of the newest; CHECK
// of the older ones fails.
func TestOneModePerParent(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	r.Add("a")
	q := r.Request(cni.Add, "b")
	q.Conf["mode"] = "l3"
	r.Must(q)
	plugintest.Says(t, r.Refused(r.Request(cni.Check, "a"), cni.CodeInternal),
		"Container IPVlan mode l3 does not match expected value: l2")
}

// TestTakeover: Tenon checks and deletes attachments of the upstream plugin, and the reverse.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const upstream = "/usr/lib/cni"
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "ipvlan")))
	for _, tenonAdds := range []bool{true, false} {
		t.Run(fmt.Sprintf("Tenon adds %t", tenonAdds), func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, ipam)
			// upstream requires a gateway in each route
			delete(r.Conf["ipam"].(map[string]any), "routes")
			r.Conf["cniVersion"] = "1.0.0" // the newest version of Debian's upstream plugins
			if diff := r.Mixed(upstream, tenonAdds); strings.Contains(diff, "eth0") ||
				strings.Contains(diff, "192.0.2.1") {
				t.Error(diff)
			}
		})
	}
}
