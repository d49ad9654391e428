package netlink_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

var (
	ipPrefix = netip.MustParsePrefix
	ipAddr   = netip.MustParseAddr
)

// tunnel creates a VXLAN device that is up.
func tunnel(t *testing.T, ns *testnet.Namespace, c *netlink.Conn) netlink.Link {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVXLAN, kernel.FeatureIPv6))
	ns.Batch("link add vx type vxlan id 7 local 192.0.2.1 dstport 4789 nolearning",
		"link set vx up")
	l, err := c.Links.ByName("vx")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func changed(t *testing.T, c *netlink.Conn, changes ...netlink.Change) {
	t.Helper()
	if errs := c.Make(changes); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
}

// TestNodeRoutes checks that each form of route is created as requested, listed as created,
// replaced, and deleted without any other.
func TestNodeRoutes(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	c := open(t, ns)
	l := tunnel(t, ns, c)
	ns.Batch("address add 192.0.2.1/24 dev vx", "address add 10.64.1.1/32 dev lo",
		"route add 10.64.8.0/26 via 192.0.2.2 proto static metric 7")
	list := []netlink.NodeRoute{
		{Dst: ipPrefix("10.64.2.0/26"), Type: netlink.RouteUnicast, Via: ipAddr("192.0.2.2"),
			Link: l.Index, Metric: 7},
		{Dst: ipPrefix("10.64.3.0/26"), Type: netlink.RouteUnicast, Via: ipAddr("198.51.100.2"),
			Link: l.Index, OnLink: true, Src: ipAddr("10.64.1.1"), MTU: 1300, Metric: 7},
		{Dst: ipPrefix("10.64.4.0/26"), Type: netlink.RouteUnicast, Via: ipAddr("fe80::2"),
			Link: l.Index, Metric: 7},
		{Dst: ipPrefix("10.64.0.0/26"), Type: netlink.RouteBlackhole, Metric: 9},
		{Dst: ipPrefix("10.64.0.0/12"), Type: netlink.RouteUnreachable, Metric: 9},
		{Dst: ipPrefix("fd00:2::/122"), Type: netlink.RouteUnicast, Via: ipAddr("fe80::2"),
			Link: l.Index, MTU: 1300, Metric: 7},
		{Dst: ipPrefix("fd00:3::/122"), Type: netlink.RouteBlackhole, Metric: 9},
		{Dst: ipPrefix("fd00::/16"), Type: netlink.RouteUnreachable, Metric: 9},
	}
	var add, remove []netlink.Change
	for _, r := range list {
		add = append(add, netlink.AddNodeRoute(r))
		remove = append(remove, netlink.DeleteNodeRoute(r))
	}
	changed(t, c, add...)
	expectRoutes := func(want ...netlink.NodeRoute) {
		t.Helper()
		got, err := c.Routes.NodeRoutes()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range [][]netlink.NodeRoute{got, want} {
			slices.SortFunc(l, func(a, b netlink.NodeRoute) int {
				return strings.Compare(a.String(), b.String())
			})
		}
		if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); diff != "" {
			t.Errorf("routes (-want +got):\n%s", diff)
		}
	}
	expectRoutes(slices.Clone(list)...)
	shown := ns.Command("ip", "route") + ns.Command("ip", "-6", "route")
	for _, line := range []string{
		"10.64.2.0/26 via 192.0.2.2 dev vx proto 117 metric 7",
		"10.64.3.0/26 via 198.51.100.2 dev vx proto 117 src 10.64.1.1 metric 7 onlink mtu 1300",
		"10.64.4.0/26 via inet6 fe80::2 dev vx proto 117 metric 7",
		"blackhole 10.64.0.0/26 proto 117 metric 9",
		"unreachable 10.64.0.0/12 proto 117 metric 9",
		"fd00:2::/122 via fe80::2 dev vx proto 117 metric 7 mtu lock 1300",
		"blackhole fd00:3::/122 dev lo proto 117 metric 9",
	} {
		if !strings.Contains(shown, line) {
			t.Errorf("no route %s in\n%s", line, shown)
		}
	}

	for _, r := range list[:2] { // an existing key, and one of another program
		r.Dst = ipPrefix("10.64.8.0/26")
		errs := c.Make([]netlink.Change{netlink.AddNodeRoute(list[0]), netlink.AddNodeRoute(r),
			netlink.DeleteNodeRoute(r), netlink.DeleteNodeRoute(netlink.NodeRoute{
				Dst: ipPrefix("fd00:9::/64"), Type: netlink.RouteUnicast, Metric: 7})})
		if len(errs) != 2 || !netlink.ErrTaken(errs[0]) || !netlink.ErrTaken(errs[1]) {
			t.Errorf("errors %v", errs)
		}
	}
	list[0].Via, list[1].MTU, list[5].MTU = ipAddr("192.0.2.3"), 0, 1290
	changed(t, c, netlink.ReplaceNodeRoute(list[0]), netlink.ReplaceNodeRoute(list[1]),
		netlink.ReplaceNodeRoute(list[5]))
	expectRoutes(slices.Clone(list)...)
	changed(t, c, remove...)
	changed(t, c, remove...) // does not fail
	expectRoutes()
	if got := ns.Command("ip", "route"); !strings.Contains(got, "10.64.8.0/26 via 192.0.2.2") {
		t.Errorf("routes of other programs:\n%s", got)
	}
	ns.Command("ip", "route", "add", "10.64.9.0/26", "proto", "117", "metric", "7", "nexthop",
		"via", "192.0.2.2", "nexthop", "via", "192.0.2.3")
	if got, err := c.Routes.NodeRoutes(); err != nil || len(got) != 1 || !got[0].Other {
		t.Errorf("multipath route: %+v, %v", got, err)
	}
}

// TestNeighbours checks permanent neighbours and forwarding entries against ip and bridge.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	c := open(t, ns)
	l := tunnel(t, ns, c)
	four := netlink.Neighbour{Link: l.Index, Addr: ipAddr("192.0.2.2"), MAC: [6]byte{2, 5: 1}}
	six := netlink.Neighbour{Link: l.Index, Addr: ipAddr("fe80::2"), MAC: [6]byte{2, 5: 2}}
	changed(t, c, netlink.SetNeighbour(four), netlink.SetNeighbour(six), netlink.SetForwarding(four))
	four.MAC[5] = 3
	changed(t, c, netlink.SetNeighbour(four), netlink.SetForwarding(four)) // another MAC address
	for command, want := range map[string]string{
		"ip neigh show to 192.0.2.2":   "192.0.2.2 dev vx lladdr 02:00:00:00:00:03 PERMANENT",
		"ip neigh show to fe80::2":     "fe80::2 dev vx lladdr 02:00:00:00:00:02 PERMANENT",
		"bridge -d fdb show dev vx":    "02:00:00:00:00:03 dst 192.0.2.2 self permanent",
		"bridge fdb show dynamic":      "",
		"bridge -s -d fdb show dev vx": "02:00:00:00:00:01 dst 192.0.2.2",
	} {
		fields := strings.Fields(command)
		if got := ns.Command(fields[0], fields[1:]...); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in %q", command, want, got)
		}
	}
	ns.Command("bridge", "fdb", "append", "02:00:00:00:00:09", "dev", "vx", "dst", "192.0.2.9",
		"port", "7")
	neighbours, err := c.Addrs.Neighbours(l)
	if err != nil || len(neighbours) != 2 || !slices.Contains(neighbours, four) ||
		!slices.Contains(neighbours, six) {
		t.Errorf("neighbours %+v, %v", neighbours, err)
	}
	forwarding, err := c.Addrs.Forwarding(l)
	others := 0
	for _, n := range forwarding {
		if n.Other {
			others++
		}
		changed(t, c, netlink.DeleteForwarding(n))
	}
	if err != nil || len(forwarding) != 3 || others != 1 {
		t.Errorf("forwarding %+v, %v", forwarding, err)
	}
	proxies := []netlink.Proxy{{Link: l.Index, Addr: ipAddr("192.0.2.7")},
		{Link: l.Index, Addr: ipAddr("2001:db8::7")}}
	ns.Command("ip", "neigh", "add", "proxy", "192.0.2.8", "dev", "vx") // of another program
	for _, p := range slices.Concat(proxies, proxies) {
		changed(t, c, netlink.SetProxy(p))
	}
	if got, err := c.Addrs.Proxies(); err != nil || !slices.Equal(got, proxies) {
		t.Errorf("proxies %v, %v", got, err)
	}
	for _, p := range slices.Concat(proxies, proxies) {
		changed(t, c, netlink.DeleteProxy(p))
	}
	if got, err := c.Addrs.Proxies(); err != nil || len(got) != 0 {
		t.Errorf("proxies %v, %v", got, err)
	}
	if got := ns.Command("ip", "neigh", "show", "proxy"); !strings.Contains(got, "192.0.2.8") {
		t.Errorf("proxies: %s", got)
	}
	changed(t, c, netlink.DeleteNeighbour(four), netlink.DeleteNeighbour(six),
		netlink.DeleteNeighbour(six), netlink.DeleteForwarding(four))
	if neighbours, err = c.Addrs.Neighbours(l); err != nil || len(neighbours) != 0 {
		t.Errorf("neighbours %+v, %v", neighbours, err)
	}
	if forwarding, err = c.Addrs.Forwarding(l); err != nil || len(forwarding) != 0 {
		t.Errorf("forwarding %+v, %v", forwarding, err)
	}
}

// TestMonitor checks the events of each kind, and that events that the kernel drops are reported.
func TestMonitor(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	c := open(t, ns)
	m, err := c.Monitor()
	if err != nil {
		t.Fatal(err)
	}
	l := tunnel(t, ns, c)
	ns.Batch("address add 192.0.2.1/24 dev vx", "route add 10.64.2.0/26 via 192.0.2.2 metric 7",
		"route replace 10.64.2.0/26 via 192.0.2.3 proto 117 metric 7",
		"neigh add 192.0.2.2 lladdr 02:00:00:00:00:01 dev vx nud permanent",
		"neigh del 192.0.2.2 dev vx", "route del 10.64.2.0/26 metric 7",
		"address del 192.0.2.1/24 dev vx", "link del vx")
	var seen []string
	for !slices.Contains(seen, "link deleted") {
		events, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if text := describe(e, l); !slices.Contains(seen, text) {
				seen = append(seen, text)
			}
		}
	}
	for _, want := range []string{
		"link", "address 192.0.2.1/24", "route 10.64.2.0/26 of 3", "route 10.64.2.0/26 of 117 replaced",
		"neighbour 192.0.2.2", "neighbour 192.0.2.2 deleted", "route 10.64.2.0/26 of 117 deleted",
		"address 192.0.2.1/24 deleted", "link deleted",
	} {
		if !slices.Contains(seen, want) {
			t.Errorf("no event %q in %q", want, seen)
		}
	}

	var many []string
	for i := range 4000 {
		many = append(many, fmt.Sprintf("route add blackhole 10.%d.%d.0/24", 64+i/250, i%250))
	}
	ns.Batch(many...)
	lost := false
	for !lost {
		events, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		lost = slices.ContainsFunc(events, func(e netlink.Event) bool { return e.Lost })
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Next(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func describe(e netlink.Event, l netlink.Link) (text string) {
	switch {
	case e.Lost:
		return "lost"
	case e.Link != nil && e.Link.Index == l.Index:
		text = "link"
	case e.Addr != nil:
		text = fmt.Sprintf("address %s", e.Addr.Addr)
	case e.Route != nil:
		text = fmt.Sprintf("route %s of %d", e.Route.Dst, e.Protocol)
	case e.Neighbour != nil:
		text = fmt.Sprintf("neighbour %s", e.Neighbour.Addr)
	}
	if e.Replaced {
		text += " replaced"
	}
	if e.Deleted {
		text += " deleted"
	}
	return text
}

// TestTxChecksum turns the offload on and off, and reads it back.
func TestTxChecksum(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	c := open(t, ns)
	l := tunnel(t, ns, c)
	for _, want := range []bool{true, false, true} {
		if err := c.Links.SetTxChecksum(l, want); err != nil {
			t.Fatal(err)
		}
		if on, err := c.Links.TxChecksum(l); err != nil || on != want {
			t.Errorf("on: %t, want %t: %v", on, want, err)
		}
	}
	if _, err := c.Links.TxChecksum(netlink.Link{Name: "absent"}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("no such link: %v", err)
	}
}
