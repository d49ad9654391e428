package netlink_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

var mac = net.HardwareAddr{2, 0, 0, 0, 0, 9}

// TestNewLinks checks that each kind of link is created as requested, and read as created.
func TestNewLinks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		link  netlink.NewLink
		needs []kernel.Feature
		shown string // the output of ip
	}{
		{netlink.NewLink{Kind: "dummy", MAC: mac, MTU: 1300}, []kernel.Feature{kernel.FeatureDummy},
			"mtu 1300"},
		{netlink.NewLink{Kind: "ifb", MAC: mac}, []kernel.Feature{kernel.FeatureIFB}, "ifb"},
		{netlink.NewLink{Kind: "vxlan", MAC: mac, MTU: 1300, VXLAN: netlink.VXLAN{
			VNI: 7, Port: 4789, Local: netip.MustParseAddr("192.0.2.1"),
		}}, []kernel.Feature{kernel.FeatureVXLAN},
			"vxlan id 7 local 192.0.2.1 srcport 0 0 dstport 4789 nolearning"},
		{netlink.NewLink{Kind: "vxlan", VXLAN: netlink.VXLAN{
			VNI: 1<<24 - 1, Port: 1, Local: netip.MustParseAddr("2001:db8::1"), Learning: true,
		}}, []kernel.Feature{kernel.FeatureVXLAN},
			"vxlan id 16777215 local 2001:db8::1 srcport 0 0 dstport 1 ttl"},
		{netlink.NewLink{Kind: "vrf", Table: 1000}, []kernel.Feature{kernel.FeatureVRF},
			"vrf table 1000"},
		{netlink.NewLink{Kind: "vlan", VLAN: 4094},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureVLAN},
			"vlan protocol 802.1Q id 4094"},
		{netlink.NewLink{Kind: "macvlan", Mode: "bridge", MAC: mac},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureMacvlan}, "macvlan mode bridge"},
		{netlink.NewLink{Kind: "macvlan", Mode: "private", BCQueueLen: 77},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureMacvlan}, "bcqueuelen 77"},
		{netlink.NewLink{Kind: "macvlan", Mode: "vepa", MTU: 1300},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureMacvlan}, "macvlan mode vepa"},
		{netlink.NewLink{Kind: "macvlan", Mode: "passthru"},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureMacvlan}, "macvlan mode passthru"},
		{netlink.NewLink{Kind: "ipvlan", Mode: "l2"},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureIPvlan},
			"ipvlan  mode l2 "},
		{netlink.NewLink{Kind: "ipvlan", Mode: "l3", MTU: 1300},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureIPvlan}, "ipvlan  mode l3 "},
		{netlink.NewLink{Kind: "ipvlan", Mode: "l3s"},
			[]kernel.Feature{kernel.FeatureVeth, kernel.FeatureIPvlan},
			"ipvlan  mode l3s "},
	} {
		t.Run(row.link.Kind+row.link.Mode, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Kernel(row.needs...))
			if strings.HasPrefix(row.shown, "bcqueuelen") {
				testnet.Require(t, testnet.Linux(5, 11))
			}
			ns := testnet.New(t).Host
			c := open(t, ns)
			want := row.link
			want.Name = "made"
			if len(row.needs) > 1 {
				want.Parent, want.ParentNS = wired(t, ns, c, "w0").Index, testnet.NS(t, ns)
			}
			index, err := c.Links.Add(want)
			if err != nil {
				t.Fatal(err)
			}
			expectLink(t, c, index, want)
			if shown := ns.Command("ip", "-d", "link", "show", "made"); !strings.Contains(shown,
				row.shown) {
				t.Errorf("%s is not shown:\n%s", row.shown, shown)
			}
			if _, err := c.Links.Add(want); !errors.Is(err, unix.EEXIST) {
				t.Errorf("created again: %v", err)
			}
			existed, err := c.Links.Delete(netlink.Link{Index: index})
			again, errAgain := c.Links.Delete(netlink.Link{Index: index})
			if !existed || again || errors.Join(err, errAgain) != nil {
				t.Errorf("deleted: %v, %v, again: %v, %v", existed, err, again, errAgain)
			}
		})
	}
}

// expectLink compares a link with the request; zero values left the choice to the kernel.
func expectLink(t *testing.T, c *netlink.Conn, index int, asked netlink.NewLink) {
	t.Helper()
	got, err := c.Links.ByIndex(index)
	if err != nil {
		t.Fatal(err)
	}
	want := got
	want.Name, want.Kind, want.Mode, want.Up = asked.Name, asked.Kind, asked.Mode, false
	want.VLAN, want.VRFTable, want.Parent = int(asked.VLAN), int(asked.Table), asked.Parent
	if asked.MAC != nil {
		want.MAC = asked.MAC
	}
	if asked.Kind == netlink.KindVXLAN {
		want.VXLAN = &asked.VXLAN
	}
	if asked.MTU != 0 {
		want.MTU = asked.MTU
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("link (-want +got):\n%s", diff)
	}
}

// TestVethBetweenNamespaces checks that the peers refer to each other by index and by the
// identifier of the namespace.
func TestVethBetweenNamespaces(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth))
	n := testnet.New(t, "c")
	near, far := open(t, n.Container("c")), open(t, n.Host)
	index, err := near.Links.AddVeth(netlink.Veth{Name: "eth0", MAC: mac, MTU: 1300, Peer: "far",
		PeerNS: testnet.NS(t, n.Host)})
	if err != nil {
		t.Fatal(err)
	}
	a, errA := near.Links.ByIndex(index)
	b, errB := far.Links.ByName("far")
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if a.Peer != b.Index || b.Peer != a.Index || a.PeerNSID < 0 || b.PeerNSID < 0 ||
		a.MTU != 1300 || b.MTU != 1300 || a.Up || b.Up {
		t.Errorf("%+v and %+v", a, b)
	}
	there, err := far.Links.In(b.PeerNSID)
	if err != nil || len(there) != 2 || there[1].Name != "eth0" {
		t.Errorf("links of the peer's namespace: %v, %v", there, err)
	}
	own, all, err := far.Namespaces()
	if lives, errLives := far.Lives(b.PeerNSID); !lives || len(all) != 2 || own == b.PeerNSID ||
		err != nil || errLives != nil {
		t.Errorf("namespaces %v, own %d, peer lives %v: %v, %v", all, own, lives, err, errLives)
	}
}

// TestMove checks that a link moves under another name and with the requested index.
func TestMove(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Linux(5, 13)) // which accepts the index
	n := testnet.New(t, "c")
	from, to := open(t, n.Host), open(t, n.Container("c"))
	l := wired(t, n.Host, from, "w0")
	if err := from.Links.Move(l, testnet.NS(t, n.Container("c")), "eth0", 77); err != nil {
		t.Fatal(err)
	}
	moved, err := to.Links.ByName("eth0")
	if err != nil || moved.Index != 77 || moved.Up {
		t.Errorf("%+v, %v", moved, err)
	}
	if _, err := from.Links.ByIndex(l.Index); !errors.Is(err, netlink.ErrNoLink) {
		t.Errorf("still there: %v", err)
	}
	other := wired(t, n.Host, from, "w1")
	err = from.Links.Move(other, testnet.NS(t, n.Container("c")), "eth1", 77)
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("index in use: %v", err)
	}
}

// TestTap checks that a device created by Create is read as it was created.
func TestTap(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureTun))
	ns := testnet.New(t).Host
	c := open(t, ns)
	owner, group := uint32(1000), uint32(0)
	var err error
	ns.Do(func() {
		err = netlink.Tap{Name: "tap0", MultiQueue: true, VNetHdr: true, Owner: &owner,
			Group: &group}.Create()
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Links.ByName("tap0")
	want := &netlink.Tun{Tap: true, MultiQueue: true, VNetHdr: true, Persistent: true,
		Owner: &owner, Group: &group}
	if diff := cmp.Diff(want, l.Tun); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// stable removes the time-dependent parts from the output of ip.
func stable(shown string) string {
	var lines []string
	for line := range strings.Lines(shown) {
		words := strings.Fields(line)
		for i := range words {
			if i > 0 && strings.HasSuffix(words[i], "sec") && words[i-1] != "forever" {
				words[i] = "soon"
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

// TestAddrsRoundTrip checks that IPv6 addresses that were read and deleted are the same after
// Restore: flags, lifetimes, peers.
func TestAddrsRoundTrip(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureIPv6))
	ns := testnet.New(t).Host
	c := open(t, ns)
	l := wired(t, ns, c, "w0")
	for _, a := range []string{
		"fd00::1/64 nodad", "fd00::2/128 nodad noprefixroute",
		"fd00::3/64 nodad valid_lft 3600 preferred_lft 0",
		"fd00::4 peer fd00:1::4/128 nodad", "fd00::5/64 nodad mngtmpaddr home",
	} {
		ns.Command("ip", append([]string{"address", "add", "dev", "w0"}, strings.Fields(a)...)...)
	}
	shown := func() string {
		return stable(ns.Command("ip", "-6", "address", "show", "dev", "w0", "scope", "global"))
	}
	before := shown()
	stored, err := c.Addrs.Stored(l)
	if err != nil {
		t.Fatal(err)
	}
	ns.Command("ip", "-6", "address", "flush", "dev", "w0", "scope", "global")
	for i := len(stored) - 1; i >= 0; i-- { // the kernel lists the newest first
		if stored[i].Addr.Addr().IsLinkLocalUnicast() {
			continue
		}
		if err := errors.Join(c.Addrs.Restore(stored[i]), c.Addrs.Restore(stored[i])); err != nil {
			t.Errorf("%s: %v", stored[i].Addr, err)
		}
	}
	if diff := cmp.Diff(before, shown()); diff != "" {
		t.Errorf("addresses (-before +after):\n%s", diff)
	}
}

// TestRoutesRoundTrip checks that routes that were read and removed are the same after Restore.
func TestRoutesRoundTrip(t *testing.T) {
	t.Parallel()
	for name, routes := range map[string][]string{
		"plain": {
			"default via 10.1.0.1",
			"10.50.0.0/16 via 10.1.0.1 mtu lock 1300 advmss 1200 rtt 30ms initcwnd 20 metric 7 src 10.1.0.2 proto static",
			"10.52.0.0/16 dev w0 scope link tos 0x10",
			"10.54.0.0/16 via 10.9.9.9 dev w0 onlink realm 3",
		},
		"gateway of the other family": {"10.51.0.0/16 via inet6 fe80::1 dev w0"},
		"multipath":                   {"10.53.0.0/16 nexthop via 10.1.0.1 weight 2 nexthop via 10.1.0.9 weight 3"},
		"IPv6": {
			"default via fd00:1::1 metric 77", "fd00:50::/64 via fd00:1::1 mtu 1300 pref high",
			"fd00:51::/64 dev w0 expires 3000",
			"fd00:52::/64 via fd00:1::1 src fd00:1::2 proto 77",
		},
		"IPv6 multipath": {"fd00:53::/64 nexthop via fd00:1::1 nexthop via fd00:1::9 weight 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := testnet.New(t).Host
			c := open(t, ns)
			l := wired(t, ns, c, "w0")
			ns.Batch("address add 10.1.0.2/24 dev w0", "address add fd00:1::2/64 dev w0 nodad")
			for _, r := range routes {
				ns.Command("ip", append([]string{familyOption(r), "route", "add"},
					strings.Fields(r)...)...)
			}
			shown := func() string { // without link-local routes, which the kernel adds at any time
				return stable(ns.Command("ip", "-d", "-4", "route") + ns.Command("ip", "-d", "-6",
					"route", "show", "root", "fd00::/16") +
					ns.Command("ip", "-d", "-6", "route", "show", "default"))
			}
			before := shown()
			all := storedRoutes(t, c, l)
			if len(all) != len(routes) {
				t.Errorf("%d routes were read of %d", len(all), len(routes))
			}
			takeAndPut(t, c, all)
			if diff := cmp.Diff(before, shown()); diff != "" {
				t.Errorf("routes (-before +after):\n%s", diff)
			}
			after := storedRoutes(t, c, l)
			if !slices.EqualFunc(all, after, netlink.StoredRoute.Same) {
				t.Errorf("stored before %v, after %v", all, after)
			}
		})
	}
}

// takeAndPut removes routes, the last first, and adds them again.
func takeAndPut(t *testing.T, c *netlink.Conn, routes []netlink.StoredRoute) {
	t.Helper()
	for _, r := range slices.Backward(routes) {
		if existed, err := c.Routes.Remove(r); !existed || err != nil {
			t.Errorf("take %s: %v, %v", r.Route, existed, err)
		}
	}
	for _, r := range routes {
		added, err := c.Routes.Restore(r)
		again, errAgain := c.Routes.Restore(r)
		if !added || again || errors.Join(err, errAgain) != nil {
			t.Errorf("put %s: %v, %v, again: %v, %v", r.Route, added, err, again, errAgain)
		}
	}
}

// familyOption returns the option of ip for the family of a route.
func familyOption(route string) string {
	if strings.HasPrefix(route, "fd00") || strings.Contains(route, "via fd00") {
		return "-6"
	}
	return "-4"
}

// storedRoutes returns the routes through l that the kernel has not derived itself.
func storedRoutes(t *testing.T, c *netlink.Conn, l netlink.Link) []netlink.StoredRoute {
	t.Helper()
	all, err := c.Routes.Stored(l)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, netlink.StoredRoute.Derived)
}

// TestRuleShown checks that ip shows a rule as it was requested.
func TestRuleShown(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeaturePolicyRules))
	ns := testnet.New(t).Host
	c := open(t, ns)
	r := netlink.PolicyRule{Src: netip.MustParsePrefix("10.1.0.0/16"), Table: 1000, Priority: 77,
		Protocol: netlink.Protocol}
	if err := c.Routes.AddRule(r); err != nil {
		t.Fatal(err)
	}
	if got := ns.Command("ip", "rule", "show", "pref",
		"77"); got != "77:\tfrom 10.1.0.0/16 lookup 1000 proto 116\n" {
		t.Errorf("shown as %q", got)
	}
}

// TestVLANsShown checks that the VLANs of a port in all VLANs are read, and shown by bridge, as
// they were requested.
func TestVLANsShown(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureBridge, kernel.FeatureVLANFiltering))
	ns := testnet.New(t).Host
	c := open(t, ns)
	port := wired(t, ns, c, "w0")
	if err := c.Links.AddBridge(netlink.Bridge{Name: "br0", VLANFiltering: true}); err != nil {
		t.Fatal(err)
	}
	br, err := c.Links.ByName("br0")
	if err != nil || !br.VLANFiltering {
		t.Fatal(br, err)
	}
	if err := errors.Join(c.Links.SetMaster(port, br.Index),
		c.Links.DeleteVLANs(port, []netlink.VLAN{{ID: 1}})); err != nil {
		t.Fatal(err)
	}
	var list []netlink.VLAN
	for id := range uint16(4093) { // more than fit into an ordinary datagram
		list = append(list, netlink.VLAN{ID: id + 1})
	}
	list = append(list, netlink.VLAN{ID: 4094, PVID: true, Untagged: true})
	if err := c.Links.AddVLANs(port, list); err != nil {
		t.Fatal(err)
	}
	got, err := c.Links.VLANs(port)
	if diff := cmp.Diff(list, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	shown := strings.Fields(ns.Command("bridge", "-compressvlans", "vlan", "show", "dev", "w0"))
	if text := strings.Join(shown[len(shown)-5:],
		" "); text != "w0 1-4093 4094 PVID Egress Untagged" &&
		!strings.HasSuffix(text, "4094 PVID Egress Untagged") {
		t.Errorf("shown as %q", text)
	}
}

// TestShapingShown checks that tc shows a shaper and a filter as they were requested.
func TestShapingShown(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureShaping), testnet.Tool("tc"))
	ns := testnet.New(t).Host
	c := open(t, ns)
	l := wired(t, ns, c, "w0")
	err := errors.Join(c.Qdiscs.SetTBF(l, netlink.TBF{Rate: 125_000, Buffer: 64 * time.Millisecond,
		Limit: 10_000}), c.Qdiscs.AddHooks(l, netlink.KindClsact),
		c.Qdiscs.AddFilter(l, netlink.KindClsact, netlink.Filter{
			Hook: netlink.Ingress, Priority: 5,
			Match:  netlink.Match{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Dst: true},
			Target: l.Index,
		}))
	if err != nil {
		t.Fatal(err)
	}
	shown := ns.Command("tc", "qdisc", "show", "dev", "w0") + ns.Command("tc", "filter", "show",
		"dev", "w0", "ingress")
	for _, want := range []string{"tbf 1: root", "rate 1Mbit", "burst 8000b lat 16ms",
		"clsact ffff:", "protocol ip pref 5 u32", "match 0a010000/ffff0000 at 16", "Egress Redirect to device w0"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown:\n%s", want, shown)
		}
	}
}

// TestAnswers checks that the owner of an address answers, and that an address without an owner
// does not.
func TestAnswers(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth, kernel.FeatureIPv6))
	n := testnet.New(t, "c")
	c := open(t, n.Host)
	peer := open(t, n.Container("c"))
	if _, err := peer.Links.AddVeth(netlink.Veth{Name: "eth0", Peer: "w0",
		PeerNS: testnet.NS(t, n.Host)}); err != nil {
		t.Fatal(err)
	}
	n.Container("c").Batch("address add 10.1.0.9/24 dev eth0",
		"address add fd00:1::9/64 dev eth0 nodad", "link set eth0 up")
	n.Host.Batch("address add 10.1.0.2/24 dev w0", "address add fd00:1::2/64 dev w0 nodad",
		"link set w0 up")
	l, err := c.Links.ByName("w0")
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{"10.1.0.9": true, "fd00:1::9": true,
		"10.1.0.8": false, "fd00:1::8": false} {
		t.Run(fmt.Sprint(address), func(t *testing.T) {
			try := func(patience time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				got, err := c.Addrs.Answers(ctx, l, netip.MustParseAddr(address))
				if got != want || err != nil {
					return fmt.Errorf("got %v, error %v", got, err)
				}
				return nil
			}
			if want { // the peer answers once the kernel has noticed its carrier
				testnet.Eventually(t, func() error { return try(testnet.Patience) })
			} else if err := try(300 * time.Millisecond); err != nil {
				t.Error(err)
			}
		})
	}
}
