package sbr_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/sbr"
)

// pod is a container with two interfaces: eth0, see [plugintest.Veth], and net1, which the plugin
// is called for.
type pod struct {
	*plugintest.Runtime
	*plugintest.Namespace
	t *testing.T
}

// The usual addresses of net1:
const (
	address4 = `{"address":"192.168.1.209/24","gateway":"192.168.1.1","interface":1}`
	address6 = `{"address":"fd00:7::9/64","gateway":"fd00:7::1","interface":1}`
)

// newPod creates a container whose net1 has addresses and routes; members are added to the plugin's
// configuration.
func newPod(t *testing.T, members string, commands ...string) *pod {
	t.Helper()
	r := plugintest.NewRuntime(t, sbr.Plugin, `{"cniVersion":"1.1.0","name":"net","type":"sbr"`+
		members+`}`)
	p := &pod{Runtime: r, Namespace: r.Container("c"), t: t}
	p.ip(
		"link add net1 type veth peer name net1-peer", "link set net1-peer up", "link set net1 up",
		"address add 192.168.1.209/24 dev net1", "address add fd00:7::9/64 dev net1 nodad",
	)
	p.ip(commands...)
	return p
}

func (p *pod) ip(commands ...string) {
	p.t.Helper()
	for _, c := range commands {
		p.Command("ip", strings.Fields(c)...)
	}
}

// call returns a request for net1 with these addresses in the previous result; without addresses
// there is no previous result.
func (p *pod) call(verb cni.Command, addresses ...string) plugintest.Request {
	q := p.Request(verb, "c")
	q.IfName = "net1"
	delete(q.Conf, "prevResult")
	if addresses != nil {
		q.Conf["prevResult"] = json.RawMessage(`{"interfaces":[
			{"name":"veth7"},{"name":"net1","sandbox":"` + p.Path() + `"},{"name":"eth0","sandbox":"` + p.Path() + `"}],
			"ips":[` + strings.Join(addresses, ",") + `]}`)
	}
	return q
}

// add runs ADD and CHECK.
func (p *pod) add(addresses ...string) {
	p.t.Helper()
	p.Must(p.call(cni.Add, addresses...))
	p.Must(p.call(cni.Check, addresses...))
}

func (p *pod) add4() { p.t.Helper(); p.add(address4) }

// lists of ip.

var noise = regexp.MustCompile(` (pref medium|linkdown)`)

func (p *pod) list(args string) []string {
	p.t.Helper()
	var list []string
	for line := range strings.Lines(p.Command("ip", strings.Fields(args)...)) {
		list = append(list,
			strings.TrimSpace(noise.ReplaceAllString(strings.ReplaceAll(line, "\t", " "), "")))
	}
	return list
}

// rules returns the rules except for the kernel's initial ones.
func (p *pod) rules(family string) []string {
	p.t.Helper()
	return slices.DeleteFunc(p.list(family+" rule"), func(line string) bool {
		return strings.Contains(line, "from all")
	})
}

// routes returns the routes of net1 in a table.
func (p *pod) routes(family, table string) []string {
	p.t.Helper()
	all := p.list(family + " route show table all dev net1 type unicast")
	var list []string
	for _, line := range all {
		in := "main"
		if _, rest, ok := strings.Cut(line, " table "); ok {
			in, _, _ = strings.Cut(rest, " ")
			line = strings.Replace(line, " table "+in, "", 1)
		}
		if in == table && (table != "main" || !strings.HasPrefix(line, "fe80::")) {
			list = append(list, line)
		}
	}
	return list
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)),
		slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// eth0 returns the routes of the other interface.
func (p *pod) eth0() []string {
	p.t.Helper()
	return append(p.list("-4 route show dev eth0"), p.list("-6 route show dev eth0")...)
}

// TestOneAddress: all routes of net1 move, the default route uses its gateway, the routes of eth0
// stay, and there is one rule. DEL removes the rule without a previous result.
func TestOneAddress(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "route add 10.77.0.0/16 via 192.168.1.254 metric 7 mtu 1300")
	eth0, before := p.eth0(), p.State()
	p.add4()
	equal(t, "rules", p.rules("-4"), "32765: from 192.168.1.209 lookup 100 proto 116")
	equal(t, "IPv6 rules", p.rules("-6"))
	equal(t, "table", p.routes("-4", "100"),
		"default via 192.168.1.1 proto 116",
		"192.168.1.0/24 proto kernel scope link src 192.168.1.209",
		"10.77.0.0/16 via 192.168.1.254 metric 7 mtu 1300",
	)
	equal(t, "main table", p.routes("-4", "main"))
	equal(t, "IPv6, without an address in the result", p.routes("-6", "main"),
		"fd00:7::/64 proto kernel metric 256")
	equal(t, "eth0", p.eth0(), eth0...)
	p.Must(p.call(cni.Del))
	p.Unchanged(before)
}

// TestDefaultIsThere: an existing default route of net1 moves, and ADD adds no other one.
func TestDefaultIsThere(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "route append default via 192.168.1.1 dev net1",
		"-6 route add default via fd00:7::1 metric 2000")
	before := p.State()
	p.add(address4, address6)
	equal(t, "table", p.routes("-4", "100"), "default via 192.168.1.1",
		"192.168.1.0/24 proto kernel scope link src 192.168.1.209")
	equal(t, "IPv6 table", p.routes("-6", "101"),
		"default via fd00:7::1 metric 2000", "fd00:7::/64 proto kernel metric 256",
		"fe80::/64 proto 116 metric 256")
	equal(t, "main table", append(p.routes("-4", "main"), p.routes("-6", "main")...))
	p.Must(p.call(cni.Del))
	p.Unchanged(before)
}

// TestTwoAddresses: each address has a table, which also has the routes that belong to no address;
// the last rule takes precedence. The second address has interface index -1 in the result.
func TestTwoAddresses(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "address add 192.168.101.209/24 dev net1",
		"route add 10.77.0.0/16 dev net1 scope link",
		"route add 10.78.0.0/16 via 192.168.101.254", "-6 route flush dev net1 table main")
	before := p.State()
	p.add(address4, `{"address":"192.168.101.209/24","gateway":"192.168.101.1","interface":-1}`,
		`{"address":"10.88.0.2/16","gateway":"10.88.0.1","interface":2}`) // of another interface
	if diff := cmp.Diff([]string{
		"32764: from 192.168.101.209 lookup 101 proto 116",
		"32765: from 192.168.1.209 lookup 100 proto 116",
	}, p.rules("-4")); diff != "" {
		t.Error(diff)
	}
	equal(t, "first table", p.routes("-4", "100"),
		"default via 192.168.1.1 proto 116", "192.168.1.0/24 proto kernel scope link src "+
			"192.168.1.209", "10.77.0.0/16 scope link")
	equal(t, "second table", p.routes("-4", "101"),
		"default via 192.168.101.1 proto 116",
		"192.168.101.0/24 proto kernel scope link src 192.168.101.209", "10.77.0.0/16 scope link",
		"10.78.0.0/16 via 192.168.101.254")
	equal(t, "main table", p.routes("-4", "main"))
	p.Must(p.call(cni.Del))
	p.Unchanged(before)
}

// TestTable: rules select the table of the configuration, and no route changes.
func TestTable(t *testing.T) {
	t.Parallel()
	// gateways are parsed only without table
	p := newPod(t, `,"table":5000,"gateways":["nonsense"]`,
		"route add default via 192.168.1.1 table 5000")
	before := p.State()
	with := []string{`{"address":"192.168.1.209/24","interface":1}`,
		`{"address":"192.168.101.209/24","interface":1}`, address6}
	for range 2 { // the second ADD finds the rules
		p.add(with...)
		equal(t, "rules", p.rules("-4"), "32765: from 192.168.1.209 lookup 5000 proto 116",
			"32764: from 192.168.101.209 lookup 5000 proto 116")
		equal(t, "IPv6 rules", p.rules("-6"), "32765: from fd00:7::9 lookup 5000 proto 116")
		if changed := testnet.Diff(before, p.State()); strings.Contains(changed, " route ") {
			t.Errorf("routes have changed:\n%s", changed)
		}
	}
	p.ip("rule add from 192.168.1.209 lookup 77") // selects another table than the configuration
	p.Must(p.call(cni.Del, with...))
	equal(t, "rules after DEL", p.rules("-4"), "32763: from 192.168.1.209 lookup 77")
	equal(t, "IPv6 rules after DEL", p.rules("-6"))
}

// TestRefused: ADD refuses invalid configurations and previous results with a reason, and changes
// nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members string
		addresses     []string
		text          string
	}{
		{"cniVersion 0.2.0", `,"cniVersion":"0.2.0"`, nil, "must be called as chained plugin"},
		{"no prevResult", ``, nil, "must be called as chained plugin"},
		{"no address at all", ``, []string{}, "No IP addresses supplied on interface: net1"},
		{"table below the minimum", `,"table":0`, []string{address4},
			"table: 0 is not a number from 1"},
		{"table above the maximum", `,"table":4294967296`, []string{address4},
			"table: 4294967296 is not a number from 1"},
		{"two IPv4 gateways", `,"gateways":["192.168.1.2","192.168.1.3"]`, []string{address4},
			"multiple IPv4 addresses"},
		{"two IPv6 gateways", `,"gateways":["fd00:7::2","fd00:7::3"]`, []string{address4},
			"multiple IPv6 addresses"},
		{"three gateways", `,"gateways":["192.168.1.2","fd00:7::3","x"]`, []string{address4},
			"gateways list cannot contain more than 2 entries"},
		{"network as gateway", `,"gateways":["192.168.1.0/24"]`, []string{address4},
			"invalid static gateway IP address"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, row.members)
			before := p.State()
			err := p.Refused(p.call(cni.Add, row.addresses...), cni.CodeInvalidConfig)
			if err == nil || !strings.Contains(err.Error(), row.text) {
				t.Errorf("%v, want %q", err, row.text)
			}
			p.Unchanged(before)
		})
	}
}

// TestPrevResultWithoutVersion: a previous result without a version has the version of the
// configuration.
func TestPrevResultWithoutVersion(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	q := p.call(cni.Add, address4)
	if strings.Contains(string(q.Conf["prevResult"].(json.RawMessage)), "cniVersion") {
		t.Fatal("prevResult has a version")
	}
	var result struct {
		CNIVersion string
		IPs        []struct{ Address string }
	}
	if err := json.Unmarshal(p.Must(q), &result); err != nil || result.CNIVersion != "1.1.0" ||
		result.IPs[0].Address != "192.168.1.209/24" {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestInterfaceWithoutSandbox: an interface without a sandbox counts if its name matches (RES-10).
func TestInterfaceWithoutSandbox(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	q := p.call(cni.Add, address4)
	q.Conf["prevResult"] = json.RawMessage(
		`{"interfaces":[{"name":"veth7"},{"name":"net1"}],"ips":[{"address":"192.168.1.209/24","gateway":"192.168.1.1","interface":1}]}`)
	p.Must(q)
	equal(t, "rules", p.rules("-4"), "32765: from 192.168.1.209 lookup 100 proto 116")
}

// TestGatewayOfTheOtherFamily: an IPv4 address can have a default route through an IPv6 gateway;
// the kernel has no IPv6 routes through an IPv4 gateway (RES-10).
func TestGatewayOfTheOtherFamily(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	p.add(`{"address":"192.168.1.209/24","gateway":"fe80::1","interface":1}`,
		`{"address":"fd00:7::2/64","gateway":"192.168.1.1","interface":1}`)
	equal(t, "table", p.routes("-4", "100"), "default via inet6 fe80::1 proto 116",
		"192.168.1.0/24 proto kernel scope link src 192.168.1.209")
	equal(t, "IPv6 table", p.routes("-6", "101"), "fd00:7::/64 proto kernel metric 256",
		"fe80::/64 proto 116 metric 256")
}

// TestAddressesOfOthers: ADD changes nothing if the previous result has only addresses of other
// interfaces.
func TestAddressesOfOthers(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	before := p.State()
	p.add(`{"address":"10.88.0.2/16","interface":2}`)
	p.Unchanged(before)
}

// TestIndexOutOfRange: an address with an interface index that is not in the result counts as an
// address of this interface (RES-10).
func TestIndexOutOfRange(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "address add 192.168.101.209/24 dev net1")
	p.add(address4, `{"address":"192.168.101.209/24","interface":17}`)
	equal(t, "rules", p.rules("-4"), "32764: from 192.168.101.209 lookup 101 proto 116",
		"32765: from 192.168.1.209 lookup 100 proto 116")
}
