package sbr_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// TestGateways: gateways of the configuration replace the gateways of the result.
func TestGateways(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, members, default4, default6 string }{
		{"IPv4", `,"gateways":["192.168.1.9"]`, "default via 192.168.1.9 proto 116",
			"default via fd00:7::1 proto 116 metric 1024"},
		{"IPv6", `,"gateways":["fd00:7::77"]`, "default via 192.168.1.1 proto 116",
			"default via fd00:7::77 proto 116 metric 1024"},
		{"dual", `,"gateways":["fd00:7::77","192.168.1.9"]`, "default via 192.168.1.9 proto 116",
			"default via fd00:7::77 proto 116 metric 1024"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, row.members)
			before := p.State()
			p.add(address4, address6)
			equal(t, "table", p.routes("-4", "100"), row.default4,
				"192.168.1.0/24 proto kernel scope link src 192.168.1.209")
			equal(t, "IPv6 table", p.routes("-6", "101"),
				row.default6, "fd00:7::/64 proto kernel metric 256", "fe80::/64 proto 116 "+
					"metric 256")
			p.Must(p.call(cni.Del))
			p.Unchanged(before)
		})
	}
}

// TestGatewayBeforeTheInterfaces: a configured gateway takes precedence over existing default
// routes of any metric, and gets the attributes of the best one; DEL restores all of them. A second
// ADD changes nothing, and with another gateway only the gateway.
func TestGatewayBeforeTheInterfaces(t *testing.T) {
	t.Parallel()
	p := newPod(t, `,"gateways":["192.168.1.9","fd00:7::77"]`,
		"route append default via 192.168.1.1 dev net1 mtu 1300",
		"route add default via 192.168.1.3 dev net1 metric 7",
		"-6 route add default via fd00:7::1 metric 1025",
	)
	before := p.State()
	want4 := func(gateway string) []string {
		return []string{
			"default via " + gateway + " proto 116 mtu 1300",
			"default via 192.168.1.1 metric 1 mtu 1300", "default via 192.168.1.3 metric 8",
			"192.168.1.0/24 proto kernel scope link src 192.168.1.209",
		}
	}
	for _, gateway := range []string{"192.168.1.9", "192.168.1.9", "192.168.1.10"} {
		p.Conf["gateways"] = []string{gateway, "fd00:7::77"}
		p.add(address4, address6)
		equal(t, "table", p.routes("-4", "100"), want4(gateway)...)
		equal(t, "IPv6 table", p.routes("-6", "101"),
			"default via fd00:7::77 proto 116 metric 1025", "default via fd00:7::1 metric 1026",
			"fd00:7::/64 proto kernel metric 256", "fe80::/64 proto 116 metric 256")
	}
	p.Must(p.call(cni.Del))
	p.Unchanged(before)
}

// TestCheckComparesTheGateway: CHECK fails if a configured gateway has been replaced, but accepts
// another gateway in place of one from the result.
func TestCheckComparesTheGateway(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members, table string
		fails                bool
	}{
		{"IPv4 of the configuration", `,"gateways":["192.168.1.9"]`,
			"route replace default via 192.168.1.1 dev net1 table 100", true},
		{"IPv6 of the configuration", `,"gateways":["fd00:7::77"]`,
			"-6 route replace default via fd00:7::1 dev net1 table 101", true},
		{"of the result", "", "route replace default via 192.168.1.9 dev net1 table 100", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, row.members)
			p.add(address4, address6)
			p.ip(row.table)
			if _, err := p.Runtime.Do(t.Context(),
				p.call(cni.Check, address4, address6)); (err != nil) != row.fails {
				t.Errorf("CHECK: %v", err)
			}
		})
	}
}

// TestGatewayOfTheInterface: ADD adds nothing if the default route already uses the configured
// gateway.
func TestGatewayOfTheInterface(t *testing.T) {
	t.Parallel()
	p := newPod(t, `,"gateways":["192.168.1.1"]`, "route append default via 192.168.1.1 dev net1")
	p.add4()
	equal(t, "table", p.routes("-4", "100"), "default via 192.168.1.1",
		"192.168.1.0/24 proto kernel scope link src 192.168.1.209")
}

// TestIPv6DefaultWithoutGateway: the address has no gateway, and the IPv6 default route comes from
// the routes of the result or from a router advertisement. It moves like an IPv4 default route
//
func TestIPv6DefaultWithoutGateway(t *testing.T) {
	t.Parallel()
	const link6 = "fe80::/64 proto 116 metric 256"
	for _, row := range []struct{ name, route, want string }{
		{"in the network of the address", "default via fd00:7::1 dev net1 metric 1025",
			"default via fd00:7::1 metric 1025"},
		{"link-local gateway", "default via fe80::1 dev net1 metric 1025",
			"default via fe80::1 metric 1025"},
		{"from a router advertisement, for half an hour",
			"default via fe80::1 dev net1 proto ra metric 1025 expires 1800",
			"default via fe80::1 proto ra metric 1025"},
		{"joined to the route of eth0", "default via fd00:7::1 dev net1 metric 1024",
			"default via fd00:7::1 metric 1024"},
		{"on the link", "default dev net1 metric 1025", "default metric 1025"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, "", "-6 route append "+row.route)
			main6 := func() []string { // the kernel adds link-local networks some time later
				return slices.DeleteFunc(p.list("-6 route"), func(line string) bool {
					return strings.HasPrefix(line, "fe80::/64 ")
				})
			}
			before := main6()
			p.add(address4, `{"address":"fd00:7::9/64","interface":1}`)
			equal(t, "IPv6 rules", p.rules("-6"), "32765: from fd00:7::9 lookup 101 proto 116")
			equal(t, "IPv6 table", p.routes("-6", "101"), row.want,
				"fd00:7::/64 proto kernel metric 256", link6)
			equal(t, "main table", p.routes("-6", "main"))
			p.Must(p.call(cni.Del))
			equal(t, "IPv6 table after DEL", p.routes("-6", "101"))
			if !strings.Contains(row.route, "expires") {
				equal(t, "main table after DEL", main6(), before...)
			} else if after := p.routes("-6", "main"); !slices.Contains(after, row.want) {
				t.Errorf("main table after DEL: %q", after)
			}
		})
	}
}

// TestNoGatewayAtAll: without any gateway the table has no default route, and the other routes
// move.
func TestNoGatewayAtAll(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	p.add(`{"address":"192.168.1.209/24"}`, `{"address":"fd00:7::9/64"}`)
	equal(t, "table", p.routes("-4", "100"),
		"192.168.1.0/24 proto kernel scope link src 192.168.1.209")
	equal(t, "IPv6 table", p.routes("-6", "101"), "fd00:7::/64 proto kernel metric 256",
		"fe80::/64 proto 116 metric 256")
}

// TestSourceHints: the networks stay in the main table, with the addresses as sources, and the
// other routes move.
func TestSourceHints(t *testing.T) {
	t.Parallel()
	p := newPod(t, `,"addSourceHints":true`, "route add 10.77.0.0/16 via 192.168.1.254")
	before := p.State()
	for range 2 {
		p.add(address4, address6, `{"address":"10.99.0.1/32"}`)
		equal(t, "main table", append(p.routes("-4", "main"), p.routes("-6", "main")...),
			"192.168.1.0/24 proto kernel scope link src 192.168.1.209",
			"fd00:7::/64 proto 116 src fd00:7::9 metric 1024")
		equal(t, "table", p.routes("-4", "100"), "default via 192.168.1.1 proto 116",
			"192.168.1.0/24 proto kernel scope link src 192.168.1.209",
			"10.77.0.0/16 via 192.168.1.254")
		equal(t, "IPv6 table", p.routes("-6", "101"), "default via fd00:7::1 proto 116 metric 1024",
			"fd00:7::/64 proto kernel metric 256", "fe80::/64 proto 116 metric 256")
	}
	p.Must(p.call(cni.Del, address4, address6, `{"address":"10.99.0.1/32"}`))
	p.Unchanged(before)
}

// TestSourceHintsAreAdded: ADD adds the hints that the main table lacks.
func TestSourceHintsAreAdded(t *testing.T) {
	t.Parallel()
	p := newPod(t, `,"addSourceHints":true`, "route delete 192.168.1.0/24",
		"route add 192.168.1.1 dev net1 scope link", "route add 192.168.1.0/24 via 192.168.1.1")
	before := p.State()
	p.add4()
	equal(t, "main table", p.routes("-4", "main"),
		"192.168.1.0/24 proto 116 scope link src 192.168.1.209", "192.168.1.1 scope link")
	equal(t, "table", p.routes("-4", "100"), "default via 192.168.1.1 proto 116",
		"192.168.1.0/24 via 192.168.1.1", "192.168.1.1 scope link")
	p.Must(p.call(cni.Del))
	p.Unchanged(before)
}
