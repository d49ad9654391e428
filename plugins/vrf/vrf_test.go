package vrf_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/vrf"
)

// pod is a container with net1 and net2, both with 10.0.0.2/24, fd00:7::2/64 and default routes
// (the IPv6 ones with metrics 1001 and 1002). Their peers are eth0 of the containers peer1 and
// peer2, with the gateways 10.0.0.1 and fd00:7::1.
type pod struct {
	*plugintest.Runtime
	*plugintest.Namespace
	t *testing.T
}

// Members of configurations:
const (
	red  = `"vrfname":"red"`
	blue = `"vrfname":"blue"`
)

func newPod(t *testing.T, commands ...string) *pod {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVRF))
	r := plugintest.NewRuntime(t, vrf.Plugin, `{"cniVersion":"1.1.0","name":"net","type":"vrf"}`)
	p := &pod{Runtime: r, Namespace: r.Net.Container("pod"), t: t}
	noDAD(t, p.Namespace)
	// the kernel adds a rule, which stays
	list := []string{"link add once type vrf table 9", "link delete once"}
	for _, n := range []string{"1", "2"} {
		peer := r.Net.Container("peer" + n)
		noDAD(t, peer)
		list = append(list, "link add net"+n+" type veth peer name eth0 netns "+peer.Path(),
			"link set net"+n+" up",
			"address add 10.0.0.2/24 dev net"+n, "address add fd00:7::2/64 dev net"+n+" nodad")
	}
	p.Batch(list...)
	for _, n := range []string{"1", "2"} {
		r.Net.Container("peer"+n).
			Batch("link set lo up", "link set eth0 up", "address add 10.0.0.1/24 dev eth0",
				"address add fd00:7::1/64 dev eth0 nodad",
				"address add 198.51.100.1/32 dev lo", "address add 2001:db8:5::1/128 dev lo nodad")
	}
	p.Batch("route append default via 10.0.0.1 dev net1",
		"route add default via fd00:7::1 metric 1001 dev net1",
		"route append default via 10.0.0.1 dev net2", "route add default via fd00:7::1 metric "+
			"1002 dev net2")
	for _, c := range commands {
		p.Command("ip", strings.Fields(c)...)
	}
	return p
}

// noDAD makes new interfaces use their link-local addresses at once.
func noDAD(t *testing.T, n *plugintest.Namespace) {
	t.Helper()
	n.Do(func() {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"),
			0); err != nil {
			t.Fatal(err)
		}
	})
}

// call returns a request for an interface; members are added to the plugin's configuration.
func (p *pod) call(verb cni.Command, ifName, members string) plugintest.Request {
	p.t.Helper()
	q := plugintest.Request{
		Env: cni.Env{Command: verb, ContainerID: "pod", Netns: p.Path(), IfName: ifName,
			Path: p.Collect().Path},
		Conf: maps.Clone(p.Conf),
	}
	if err := json.Unmarshal([]byte("{"+members+"}"), &q.Conf); err != nil {
		p.t.Fatal(err)
	}
	if verb != cni.Del {
		q.Conf["prevResult"] = json.RawMessage(fmt.Sprintf(`{"interfaces":[{"name":%q,"sandbox":%q}],
			"ips":[{"address":"10.0.0.2/24","interface":0},{"address":"fd00:7::2/64","interface":0}],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","gw":"fd00:7::1"}]}`, ifName, p.Path()))
	}
	return q
}

// add runs ADD and CHECK.
func (p *pod) add(ifName, members string) json.RawMessage {
	p.t.Helper()
	out := p.Must(p.call(cni.Add, ifName, members))
	p.Must(p.call(cni.Check, ifName, members))
	return out
}

func (p *pod) del(ifName, members string) {
	p.t.Helper()
	p.Must(p.call(cni.Del, ifName, members))
}

// refused makes a call that must fail.
func (p *pod) refused(verb cni.Command, ifName, members, says string) {
	p.t.Helper()
	err := p.Refused(p.call(verb, ifName, members), cni.CodeInvalidConfig)
	if err == nil || !strings.Contains(err.Error(), says) {
		p.t.Errorf("%v, want %q", err, says)
	}
}

// members returns the table and the members of a VRF that is up; nil if it does not exist.
func (p *pod) members(name string) (table int, members []string) {
	p.t.Helper()
	var links []struct {
		IfName, Master string
		Flags          []string
		LinkInfo       struct {
			InfoData struct{ Table int } `json:"info_data"`
		}
	}
	if err := json.Unmarshal([]byte(p.Command("ip", "-j", "-d", "link")), &links); err != nil {
		p.t.Fatal(err)
	}
	for _, l := range links {
		if l.Master == name {
			members = append(members, l.IfName)
		}
		if l.IfName == name {
			if table = l.LinkInfo.InfoData.Table; !slices.Contains(l.Flags, "UP") {
				p.t.Errorf("%s is down", name)
			}
		}
	}
	return table, members
}

// in compares a VRF's members and table.
func (p *pod) in(name string, table int, members ...string) {
	p.t.Helper()
	gotTable, got := p.members(name)
	if diff := cmp.Diff(members, got); gotTable != table || diff != "" {
		p.t.Errorf("%s has table %d, want %d; members %s", name, gotTable, table, diff)
	}
}

// routes returns the unicast routes of an interface in a table, as ip prints them.
func (p *pod) routes(ifName, table string) []string {
	p.t.Helper()
	var list []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(p.Command("ip",
			strings.Fields(family+" -o route show type unicast table "+table)...)) {
			if strings.Contains(line, "dev "+ifName+" ") {
				list = append(list,
					strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "pref medium")))
			}
		}
	}
	slices.Sort(list)
	return list
}

// addresses returns the global addresses of an interface.
func (p *pod) addresses(ifName string) []string {
	p.t.Helper()
	var list []string
	for line := range strings.Lines(p.Command("ip", "-o", "address", "show", "dev", ifName, "scope",
		"global")) {
		list = append(list, strings.Fields(line)[3])
	}
	return list
}

// TestRoutes: all kinds of routes move to the table of the VRF, with sources and metrics: also
// routes of an IPAM plugin without source or gateway, and the IPv6 default route with all its next
// hops. The routes of another interface stay, and the result does not change. DEL moves the routes
// back.
func TestRoutes(t *testing.T) {
	t.Parallel()
	p := newPod(t,
		"route add 10.1.0.0/16 via 10.0.0.9 dev net1 src 10.0.0.2",
		"route add 10.2.0.0/16 via 10.0.0.9 dev net1 metric 100",
		"route add 10.3.0.0/16 dev net1 scope link proto static",
		"route add 10.4.0.0/16 dev net1 mtu 1300",
		"route add 10.5.0.0/16 nexthop via 10.0.0.8 dev net1 weight 2 nexthop via 10.0.0.9 dev net1",
		"-6 route add fd01::/32 via fd00:7::9 dev net1 src fd00:7::2 metric 100",
		"-6 route add fd02::/32 dev net1",
		"-6 route append default via fd00:7::9 metric 1001 dev net1", "route add 10.6.0.0/16 dev "+
			"net1 table 77")
	before, main, net2 := p.State(), p.routes("net1", "main"), p.routes("net2", "main")
	if n := len(main); n < 10 {
		t.Fatalf("%d routes: %q", n, main)
	}
	out := p.add("net1", red)
	p.in("red", 1, "net1")
	if diff := cmp.Diff(main, p.routes("net1", "1")); diff != "" {
		t.Errorf("routes of net1 (-main +VRF):\n%s", diff)
	}
	if left := p.routes("net1", "main"); left != nil {
		t.Errorf("routes left in the main table: %q", left)
	}
	if got := p.Command("ip", "route", "show", "table", "77"); !strings.HasPrefix(got,
		"10.6.0.0/16 dev net1 scope link") {
		t.Errorf("table 77: %s", got)
	}
	if diff := cmp.Diff(net2, p.routes("net2", "main")); diff != "" {
		t.Errorf("routes of net2:\n%s", diff)
	}
	var got, want struct{ Interfaces, IPs, Routes any }
	prev := p.call(cni.Add, "net1", red).Conf["prevResult"].(json.RawMessage)
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(prev, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result:\n%s", diff)
	}
	p.del("net1", red)
	p.Unchanged(before)
}

// TestSharedPaths: if an IPv6 route has next hops on two interfaces, ADD and DEL move only those of
// one interface.
func TestSharedPaths(t *testing.T) {
	t.Parallel()
	p := newPod(t, "-6 route append default via fd00:7::1 metric 2000 dev net1",
		"-6 route append default via fd00:7::1 metric 2000 dev net2", "-6 route append default "+
			"via fd00:7::9 metric 2000 dev net2")
	paths := func(table string) (net1, net2 int) {
		all := p.Command("ip", "-6", "-o", "route", "show", "default", "metric", "2000", "table",
			table)
		return strings.Count(all, "dev net1"), strings.Count(all, "dev net2")
	}
	check := func(table string, want1, want2 int) {
		t.Helper()
		if net1, net2 := paths(table); net1 != want1 || net2 != want2 {
			t.Errorf("table %s: %d paths through net1, %d through net2; want %d, %d", table, net1,
				net2, want1, want2)
		}
	}
	check("main", 1, 2)
	p.add("net1", red)
	check("main", 0, 2)
	check("1", 1, 0)
	p.add("net2", red)
	check("main", 0, 0)
	check("1", 1, 2)
	p.del("net1", red)
	check("main", 1, 0)
	check("1", 0, 2)
	p.del("net2", red)
	check("main", 1, 2)
}

// TestAddresses: IPv6 addresses, including link-local ones, are present and usable when ADD
// returns, and present after DEL, although the link uses duplicate address detection.
func TestAddresses(t *testing.T) {
	t.Parallel()
	p := newPod(t, "-6 address add fe80::77/64 dev net1 nodad",
		"-6 address add fd00:8::2/64 dev net1 nodad")
	p.Command("sysctl", "-qw", "net.ipv6.conf.net1.accept_dad=1")
	show := func() string {
		return p.Command("ip", strings.Fields("-6 -o address show dev net1")...)
	}
	before := show()
	p.add("net1", red)
	if diff := cmp.Diff(before, show()); diff != "" {
		t.Errorf("after ADD:\n%s", diff)
	}
	p.del("net1", red)
	if diff := cmp.Diff(before, show()); diff != "" {
		t.Errorf("after DEL:\n%s", diff)
	}
}

// TestTwoInterfaces: in one VRF or in two, each interface keeps its addresses, even if they are
// equal. The VRF is deleted after its last member.
func TestTwoInterfaces(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, first, second string
		tables              [2]int
	}{
		{"one VRF", red, red, [2]int{1, 1}},
		{"two VRFs, two tables", red, blue, [2]int{1, 2}},
		{"one VRF, its table given", red + `,"table":7`, red + `,"table":7`, [2]int{7, 7}},
		{"one VRF, its table given first", red + `,"table":7`, red, [2]int{7, 7}},
		{"two VRFs, one table given", red + `,"table":7`, blue + `,"table":7`, [2]int{7, 7}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			before := p.State()
			p.add("net1", row.first)
			p.add("net2", row.second)
			p.Must(p.call(cni.Check, "net1", row.first))
			for _, ifName := range []string{"net1", "net2"} {
				if diff := cmp.Diff([]string{"10.0.0.2/24", "fd00:7::2/64"},
					p.addresses(ifName)); diff != "" {
					t.Errorf("addresses of %s:\n%s", ifName, diff)
				}
			}
			if strings.Contains(row.second, "blue") {
				p.in("red", row.tables[0], "net1")
				p.in("blue", row.tables[1], "net2")
			} else {
				p.in("red", row.tables[0], "net1", "net2")
			}
			p.del("net1", row.first)
			if strings.Contains(row.second, "blue") {
				p.in("red", 0)
			} else {
				p.in("red", row.tables[0], "net2")
			}
			p.Must(p.call(cni.Check, "net2", row.second))
			p.del("net2", row.second)
			p.Unchanged(before)
		})
	}
}

// TestRefused: ADD refuses invalid configurations and interfaces with a reason, and changes
// nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	p := newPod(t, "link add br0 type bridge", "link add in-bridge type veth peer name other",
		"link set in-bridge master br0")
	p.add("net1", red+`,"table":7`)
	before := p.State()
	for _, row := range []struct{ name, ifName, members, says string }{
		{"no name", "net2", ``, "configuration is expected to have a valid vrf name"},
		{"no name of an interface", "net2", `"vrfname":"a/b"`,
			"configuration is expected to have a valid vrf name"},
		{"another table", "net2", red + `,"table":8`,
			"already exist with different routing table 7"},
		{"no VRF", "net2", `"vrfname":"br0"`, "Netlink br0 is not a VRF"},
		{"port of a bridge", "in-bridge", blue,
			"interface in-bridge has already a master set: br0"},
		{"member of another VRF", "net1", blue, "interface net1 has already a master set: red"},
	} {
		t.Run(row.name, func(t *testing.T) {
			(&pod{p.Runtime, p.Namespace, t}).refused(cni.Add, row.ifName, row.members, row.says)
		})
	}
	p.refused(cni.Check, "net1", ``, "configuration is expected to have a valid vrf name")
	for _, verb := range []cni.Command{cni.Add, cni.Check} {
		q := p.call(verb, "net2", blue)
		delete(q.Conf, "prevResult")
		p.Refused(q, cni.CodeInvalidConfig)
	}
	p.Unchanged(before)
}

// TestDel: DEL succeeds if its objects are already gone, and keeps the objects of other
// attachments.
func TestDel(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		prepare []string // after ADD
		members string
		after   []string // VRFs
	}{
		{"interface gone", []string{"link delete net1"}, red, nil},
		{"VRF gone", []string{"link delete red"}, red, nil},
		{"another member, interface gone", []string{"link set net2 master red", "link delete net1"},
			red, []string{"red"}},
		{"no vrfname", nil, ``, nil},
		{"no vrfname, interface gone", []string{"link delete net1"}, ``, []string{"red"}},
		{"no longer a member", []string{"link set net1 nomaster"}, red, nil},
		{"in another VRF", []string{"link add other type vrf table 8",
			"link set net1 master other"}, red, []string{"other"}},
		{"no VRF", []string{"link delete red", "link add red type bridge"}, red, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			p.add("net1", red)
			for _, c := range row.prepare {
				p.Command("ip", strings.Fields(c)...)
			}
			for range 2 {
				p.del("net1", row.members)
				var vrfs []string
				for line := range strings.Lines(p.Command("ip", "-br", "link", "show", "type",
					"vrf")) {
					vrfs = append(vrfs, strings.Fields(line)[0])
				}
				if diff := cmp.Diff(row.after, vrfs); diff != "" {
					t.Errorf("VRFs:\n%s", diff)
				}
			}
		})
	}
}

// TestAtOnce: concurrent ADDs in one container create one VRF, or choose two tables.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	for _, second := range []string{red, blue} {
		p := newPod(t)
		before := p.State()
		both := func(verb cni.Command) {
			var wg sync.WaitGroup
			for ifName, members := range map[string]string{"net1": red, "net2": second} {
				q := p.call(verb, ifName, members)
				wg.Go(func() {
					if _, err := p.Runtime.Do(t.Context(), q); err != nil {
						t.Errorf("%s of %s: %v", verb, ifName, err)
					}
				})
			}
			wg.Wait()
		}
		both(cni.Add)
		both(cni.Check)
		redTable, inRed := p.members("red")
		blueTable, inBlue := p.members("blue")
		if second == red && len(inRed) != 2 || second == blue &&
			(len(inRed) != 1 || len(inBlue) != 1 || redTable == blueTable) {
			t.Errorf("red, table %d: %v; blue, table %d: %v", redTable, inRed, blueTable, inBlue)
		}
		both(cni.Del)
		p.Unchanged(before)
	}
}

// TestRollback: if ADD cannot move a route, it also deletes the new VRF.
func TestRollback(t *testing.T) {
	t.Parallel()
	// the source is then in the table of the VRF
	p := newPod(t, "address add 10.9.9.9/32 dev net1",
		"route add 10.6.0.0/16 dev net1 src 10.9.9.9 table 77")
	before := p.State()
	_, err := p.Runtime.Do(t.Context(), p.call(cni.Add, "net1", red))
	if err == nil || !strings.Contains(err.Error(), "10.6.0.0/16") {
		t.Errorf("%v, want an error that names the route", err)
	}
	p.Unchanged(before)
}

// TestVersions: the plugin supports upstream's versions, 0.3.1 and newer.
func TestVersions(t *testing.T) {
	t.Parallel()
	if got := vrf.Plugin.Versions; slices.Min(got) != cni.V031 || slices.Max(got) != cni.V110 ||
		len(got) != 4 {
		t.Error(got)
	}
}
