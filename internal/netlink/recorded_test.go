package netlink_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

var update = flag.Bool("update", false, "record testdata/recorded anew, from the running kernel")

// recordings are exchanges with a kernel, in testdata/recorded/NAME.txt: setup prepares a
// namespace, with commands that omit the tool if it is ip; do makes the exchange and writes the
// results.
var recordings = []struct {
	name  string
	needs []kernel.Feature
	setup []string
	do    func(c *wire, out io.Writer)
}{
	{
		name: "links",
		needs: []kernel.Feature{
			kernel.FeatureVeth, kernel.FeatureBridge, kernel.FeatureVLANFiltering,
			kernel.FeatureMacvlan, kernel.FeatureIPvlan, kernel.FeatureVLAN,
			kernel.FeatureDummy, kernel.FeatureVRF, kernel.FeatureIFB, kernel.FeatureTun,
		},
		setup: []string{
			"link add br0 address 02:00:00:00:00:01 type bridge vlan_filtering 1",
			"link add w0 address 02:00:00:00:00:02 mtu 1400 type veth peer name w1 address 02:00:00:00:00:03",
			"link set w0 master br0 alias tenon:abc",
			"link set w0 up promisc on allmulticast on",
			"link set w1 up txqueuelen 77",
			"link property add dev w1 altname another-name-of-the-link altname second",
			"link add v link w1 address 02:00:00:00:00:04 type vlan id 100",
			"link add mv link w1 address 02:00:00:00:00:05 type macvlan mode vepa",
			"link add d0 address 02:00:00:00:00:06 type dummy",
			"link add iv link d0 type ipvlan mode l3s",
			"link add vrf0 address 02:00:00:00:00:07 type vrf table 1000",
			"link add ifb9 address 02:00:00:00:00:08 type ifb",
			"tuntap add tap0 mode tap user 1000 group 0 multi_queue vnet_hdr",
			"link set tap0 address 02:00:00:00:00:09",
		},
		do: func(c *wire, out io.Writer) {
			links, err := c.Links.All()
			for _, l := range links {
				fmt.Fprintln(out, show(l))
			}
			fmt.Fprintln(out, err)
			l, err := c.Links.ByName("another-name-of-the-link")
			fmt.Fprintln(out, l.Name, err)
			l, err = c.Links.ByIndex(1)
			fmt.Fprintln(out, l.Name, err)
			_, err = c.Links.ByName("missing")
			fmt.Fprintln(out, err, errors.Is(err, netlink.ErrNoLink))
			_, err = c.Links.ByIndex(4711)
			fmt.Fprintln(out, err, errors.Is(err, netlink.ErrNoLink))
		},
	},
	{
		name:  "link-changes",
		needs: []kernel.Feature{kernel.FeatureVeth, kernel.FeatureBridge},
		setup: []string{"link add w0 type veth peer name w1", "link add br0 type bridge",
			"link set w1 master br0"},
		do: func(c *wire, out io.Writer) {
			w0, w1 := netlink.Link{Index: 3}, netlink.Link{Index: 2}
			say := func(what string, err error) { fmt.Fprintf(out, "%s: %v\n", what, err) }
			say("SetAlias", c.Links.SetAlias(w0, "tenon:abc"))
			say("SetAlias to none", c.Links.SetAlias(w0, ""))
			say("SetMAC", c.Links.SetMAC(w0, net.HardwareAddr{2, 0, 0, 0, 0, 9}))
			say("SetMTU", c.Links.SetMTU(w0, 1300))
			say("SetTxQLen", c.Links.SetTxQLen(w0, 7))
			say("AddAltName", c.Links.AddAltName(w0, "alt"))
			say("RemoveAltName", c.Links.RemoveAltName(w0, "alt"))
			say("Rename", c.Links.Rename(w0, "new"))
			say("Rename to a name that is taken", c.Links.Rename(w0, "br0"))
			changed, err := c.Links.SetPromisc(w0, true)
			say(fmt.Sprint("SetPromisc changed ", changed), err)
			changed, err = c.Links.SetPromisc(w0, true)
			say(fmt.Sprint("SetPromisc again changed ", changed), err)
			say("SetAllMulticast", c.Links.SetAllMulticast(w0, true))
			say("SetPort", c.Links.SetPort(w1, netlink.Port{Hairpin: true, Isolated: true}))
			say("SetMaster", c.Links.SetMaster(w0, 4))
			say("SetMaster to none", c.Links.SetMaster(w0, 0))
			say("SetUp", c.Links.SetUp(w0, true))
			say("SetUp to down", c.Links.SetUp(w0, false))
			existed, err := c.Links.Delete(w0)
			say(fmt.Sprint("Delete existed ", existed), err)
			existed, err = c.Links.Delete(w0)
			say(fmt.Sprint("Delete again existed ", existed), err)
		},
	},
	{
		name: "link-kinds",
		needs: []kernel.Feature{
			kernel.FeatureVeth, kernel.FeatureBridge, kernel.FeatureVLANFiltering,
			kernel.FeatureMacvlan, kernel.FeatureIPvlan, kernel.FeatureVLAN,
			kernel.FeatureDummy, kernel.FeatureVRF, kernel.FeatureIFB,
		},
		setup: []string{"link add w0 type veth peer name w1", "link add w2 type veth peer name w3"},
		do: func(c *wire, out io.Writer) {
			fmt.Fprintln(out, c.Links.AddBridge(netlink.Bridge{Name: "br0", MTU: 1400}))
			fmt.Fprintln(out, c.Links.AddBridge(netlink.Bridge{Name: "br1", VLANFiltering: true}))
			mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
			for _, l := range []netlink.NewLink{
				{Name: "d0", Kind: "dummy", MAC: mac, MTU: 1300},
				{Name: "vrf0", Kind: "vrf", Table: 1000},
				{Name: "ifb9", Kind: "ifb"},
				{Name: "mv", Kind: "macvlan", Parent: 2, Mode: "private", BCQueueLen: 500},
				{Name: "iv", Kind: "ipvlan", Parent: 4, Mode: "l3"},
				{Name: "v", Kind: "vlan", Parent: 3, VLAN: 4000},
				{Name: "v2", Kind: "vlan", Parent: 3, VLAN: 4000},
				{Name: "wrong", Kind: "macvlan", Parent: 2, Mode: "l3"},
				{Name: "unknown", Kind: "unknown"},
			} {
				l.ParentNS = c.ns
				_, err := c.Links.Add(l)
				fmt.Fprintf(out, "%s: %v\n", l.Name, err)
			}
			for _, kind := range []string{"veth", "unknown"} {
				has, err := c.Links.HasKind(kind)
				fmt.Fprintln(out, kind, has, err)
			}
			has, err := c.HasVLANFiltering()
			fmt.Fprintln(out, "VLAN filtering", has, err)
		},
	},
	{
		name: "vlans",
		needs: []kernel.Feature{kernel.FeatureVeth, kernel.FeatureBridge,
			kernel.FeatureVLANFiltering},
		setup: []string{"link add br0 type bridge vlan_filtering 1",
			"link add w0 type veth peer name w1", "link set w0 master br0"},
		do: func(c *wire, out io.Writer) {
			port := netlink.Link{Index: 4}
			list := func() {
				vlans, err := c.Links.VLANs(port)
				fmt.Fprintln(out, netlink.FormatVLANs(vlans), err)
			}
			list()
			fmt.Fprintln(out, c.Links.DeleteVLANs(port, []netlink.VLAN{{ID: 1}}))
			list()
			fmt.Fprintln(out, c.Links.AddVLANs(port, []netlink.VLAN{
				{ID: 7, PVID: true, Untagged: true}, {ID: 8}, {ID: 100}, {ID: 101}, {ID: 102},
				{ID: 103, Untagged: true},
			}))
			list()
			fmt.Fprintln(out, c.Links.AddVLANs(port, []netlink.VLAN{{ID: 4095}}))
		},
	},
	{
		name:  "addresses",
		needs: []kernel.Feature{kernel.FeatureVeth, kernel.FeatureIPv6},
		setup: []string{
			"link add w0 address 02:00:00:00:00:02 type veth peer name w1", "link set w1 up",
			"link set w0 up",
			"address add 10.1.2.3/24 brd + dev w0", "address add 10.1.2.4/24 dev w0 label w0:x",
			"address add 10.9.0.1 peer 10.9.0.2/32 dev w0",
			"address add 10.8.0.1/30 dev w0 valid_lft 3600 preferred_lft 1800",
			"address add fd00::1/64 dev w0 nodad",
			"address add fd00::2/64 dev w0 nodad valid_lft 3600 preferred_lft 0",
			"address add fd00::3 peer fd00:1::3/128 dev w0 nodad",
		},
		do: func(c *wire, out io.Writer) {
			l := netlink.Link{Index: 3, Name: "w0"}
			all, err := c.Addrs.Of(l)
			fmt.Fprintln(out, "all", all, err)
			kept, err := c.Addrs.Kept(l)
			fmt.Fprintln(out, "kept", kept, err)
			stored, err := c.Addrs.Stored(l)
			for _, a := range stored {
				fmt.Fprintln(out, "stored", a.Addr, a.Tentative, a.Optimistic)
			}
			fmt.Fprintln(out, err)
			duplicates, err := c.Addrs.Duplicates(l)
			fmt.Fprintln(out, "duplicates", duplicates, err)
			ra, err := c.Addrs.Autoconf(l)
			fmt.Fprintln(out, "by routers", ra.Addrs, ra.Router, err)
			for _, a := range []string{"10.3.0.1/24", "10.3.1.1/31", "10.3.2.1/32", "fd00:3::1/64",
				"fd00:3::1/64"} {
				fmt.Fprintln(out, "add", a, c.Addrs.Add(l, netip.MustParsePrefix(a)))
			}
			fmt.Fprintln(out, "add gateway",
				c.Addrs.AddGateway(l, netip.MustParsePrefix("fd00:4::1/64")))
			fmt.Fprintln(out, "add optimistic", c.Addrs.AddOptimistic(l,
				netip.MustParsePrefix("fd00:5::1/64")))
			fmt.Fprintln(out, "add mapped", c.Addrs.Add(l,
				netip.MustParsePrefix("::ffff:10.0.0.1/120")))
			for _, a := range []string{"10.3.0.1/24", "10.3.0.1/24", "fd00:3::1/64"} {
				existed, err := c.Addrs.Delete(l, netip.MustParsePrefix(a))
				fmt.Fprintln(out, "delete", a, existed, err)
			}
		},
	},
	{
		name:  "routes",
		needs: []kernel.Feature{kernel.FeatureDummy, kernel.FeatureIPv6, kernel.FeaturePolicyRules},
		setup: []string{
			"link add d0 address 02:00:00:00:00:02 type dummy",
			"link add d1 address 02:00:00:00:00:03 type dummy", "link set d0 up", "link set d1 up",
			"address add 10.1.0.2/24 dev d0", "address add 10.2.0.2/24 dev d1",
			"address add fd00:1::2/64 dev d0 nodad",
			"route add default via 10.1.0.1",
			"route add 10.50.0.0/16 via 10.1.0.1 mtu 1300 advmss 1200 metric 7 src 10.1.0.2 proto static",
			"route add 10.51.0.0/16 via inet6 fe80::1 dev d0",
			"route add 10.52.0.0/16 dev d0 scope link table 1000",
			"route add 10.53.0.0/16 nexthop via 10.1.0.1 weight 2 nexthop via 10.2.0.1 dev d1",
			"route add blackhole 10.54.0.0/16",
			"nexthop add id 5 via 10.1.0.9 dev d0", "route add 10.55.0.0/16 nhid 5",
			"-6 route add default via fd00:1::1 metric 77",
			"-6 route add fd00:50::/64 via fd00:1::1 mtu 1300 expires 600",
			"-6 route add fd00:53::/64 nexthop via fd00:1::1 nexthop via fd00:1::9 weight 3",
			"-6 route add unreachable fd00:54::/64",
		},
		do: func(c *wire, out io.Writer) {
			routes, err := c.Routes.All(netlink.AllTables)
			for _, r := range routes {
				fmt.Fprintf(out, "%s link %d\n", r, r.Link)
			}
			fmt.Fprintln(out, err)
			routes, err = c.Routes.All(1000)
			fmt.Fprintln(out, "table 1000:", routes, err)
			routes, err = c.Routes.All(4711)
			fmt.Fprintln(out, "no table:", routes, err)
			stored, err := c.Routes.Stored(netlink.Link{Index: 2})
			for _, r := range stored {
				fmt.Fprintf(out, "stored %s gateways %v own %v derived %v by object %v\n", r.Route,
					r.Gateways(), r.Own(), r.Derived(), r.ByObject())
			}
			fmt.Fprintln(out, err)
			tables, err := c.Routes.Tables()
			fmt.Fprintln(out, tables, err)
			for _, a := range []string{"10.1.0.2", "10.50.1.1", "10.1.0.9", "10.54.0.1",
				"fd00:54::1", "fd00:50::1", "10.51.0.1"} {
				hop, ok, err := c.Routes.Lookup(netip.MustParseAddr(a))
				fmt.Fprintf(out, "look-up of %s: %+v %v %v\n", a, hop, ok, err)
			}
		},
	},
	{
		name:  "route-changes",
		needs: []kernel.Feature{kernel.FeatureVeth, kernel.FeatureIPv6, kernel.FeaturePolicyRules},
		setup: []string{
			"link add w0 address 02:00:00:00:00:02 type veth peer name w1", "link set w1 up",
			"link set w0 up",
			"address add 10.1.0.2/24 dev w0", "address add fd00:1::2/64 dev w0 nodad",
		},
		do: func(c *wire, out io.Writer) {
			prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
			routes := []netlink.Route{
				{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.0.1"), Link: 3},
				{Dst: prefix("10.50.0.0/16"), GW: addr("10.1.0.1"), Src: addr("10.1.0.2"),
					Priority: 7, MTU: 1300, AdvMSS: 1200, Table: 1000, Link: 3},
				{Dst: prefix("10.51.0.1/16"), GW: addr("fe80::1"), Link: 3},
				{Dst: prefix("10.52.0.0/16"), GW: addr("0.0.0.0"), Scope: netlink.ScopeLink,
					Link: 3},
				{Dst: prefix("fd00:50::/64"), GW: addr("fd00:1::1"), Priority: 9, Link: 3},
			}
			for _, r := range routes {
				added, err := c.Routes.Add(r)
				again, errAgain := c.Routes.Add(r)
				fmt.Fprintf(out, "add %s: %v %v, again: %v %v\n", r, added, err, again, errAgain)
			}
			_, err := c.Routes.Add(netlink.Route{Dst: prefix("10.60.0.0/16"), GW: addr("192.0.2.1"),
				Link: 3})
			fmt.Fprintln(out, "add through a gateway that is not on the link:", err,
				errors.Is(err, unix.ENETUNREACH))
			_, err = c.Routes.Add(netlink.Route{Link: 3})
			fmt.Fprintln(out, "add without destination:", err)
			own := netlink.OwnRoute(routes[4]).In(1000).WithPriority(5)
			added, err := c.Routes.Restore(own)
			fmt.Fprintln(out, "put:", own.Route, added, err)
			existed, err := c.Routes.Remove(own)
			fmt.Fprintln(out, "take:", existed, err)
			existed, err = c.Routes.Remove(own)
			fmt.Fprintln(out, "take again:", existed, err)
			for _, r := range routes {
				existed, err := c.Routes.Delete(r)
				again, errAgain := c.Routes.Delete(r)
				fmt.Fprintf(out, "delete %s: %v %v, again: %v %v\n", r, existed, err, again,
					errAgain)
			}
		},
	},
	{
		name:  "rules",
		needs: []kernel.Feature{kernel.FeaturePolicyRules, kernel.FeatureIPv6},
		setup: []string{
			"rule add from 10.1.2.3 table 100 pref 500",
			"rule add from 10.0.0.0/8 to 10.9.0.0/16 table 101 pref 501",
			"rule add iif lo table 102 pref 502",
			"rule add from 10.2.0.0/16 table main suppress_prefixlength 0 pref 503",
			"rule add not from 10.3.0.0/16 table 103 pref 504",
			"rule add from 10.4.0.0/16 blackhole pref 505",
			"-6 rule add from fd00::/64 table 1000 pref 506 protocol 116",
			"rule add fwmark 0x10/0xf0 table 104 pref 507",
		},
		do: func(c *wire, out io.Writer) {
			list := func() {
				rules, err := c.Routes.Rules()
				for _, r := range rules {
					fmt.Fprintf(out, "%s %+v\n", r, r.More)
				}
				fmt.Fprintln(out, err)
			}
			list()
			has, err := c.Routes.HasRules()
			fmt.Fprintln(out, has, err)
			for _, r := range []netlink.PolicyRule{
				{Src: netip.MustParsePrefix("10.7.0.0/16"), Table: 1000,
					Protocol: netlink.Protocol},
				{Src: netip.MustParsePrefix("fd00:7::/64"), Table: 7, Priority: 32000},
			} {
				add, addAgain := c.Routes.AddRule(r), c.Routes.AddRule(r)
				existed, err := c.Routes.DeleteRule(r)
				fmt.Fprintf(out, "%s: %v, again: %v; deleted %v %v\n", r, add, addAgain, existed,
					err)
				for existed && err == nil {
					existed, err = c.Routes.DeleteRule(r)
				}
				fmt.Fprintln(out, existed, err)
			}
			fmt.Fprintln(out, c.Routes.AddRule(netlink.PolicyRule{Table: 7}))
		},
	},
	{
		name:  "traffic-control",
		needs: []kernel.Feature{kernel.FeatureVeth, kernel.FeatureIFB, kernel.FeatureShaping},
		setup: []string{"link add w0 type veth peer name w1", "link add ifb9 type ifb",
			"link set w0 up", "link set ifb9 up"},
		do: func(c *wire, out io.Writer) {
			w0, w1 := netlink.Link{Index: 3, Name: "w0"}, netlink.Link{Index: 2, Name: "w1"}
			say := func(what string, err error) { fmt.Fprintf(out, "%s: %v\n", what, err) }
			list := func() {
				qdiscs, err := c.Qdiscs.All()
				for _, q := range qdiscs {
					fmt.Fprintf(out, "\t%+v\n", q)
				}
				say("Qdiscs", err)
			}
			has, err := c.HasShaping()
			say(fmt.Sprint("HasShaping ", has), err)
			say("SetTBF", c.Qdiscs.SetTBF(w0, netlink.TBF{Rate: 125_000, Buffer: 64 * time.Millisecond,
				Limit: 10_000}))
			list()
			say("SetTBF above 32 bits", c.Qdiscs.SetTBF(w0,
				netlink.TBF{Rate: 6_000_000_000, Buffer: 64 * time.Microsecond, Limit: 1 << 20}))
			say("AddHooks", c.Qdiscs.AddHooks(w0, netlink.KindClsact))
			say("AddHooks again", c.Qdiscs.AddHooks(w0, netlink.KindClsact))
			say("AddHooks ingress", c.Qdiscs.AddHooks(w1, netlink.KindIngress))
			list()
			filters := []netlink.Filter{
				{Hook: netlink.Ingress, Priority: 1,
					Match: netlink.Match{Prefix: netip.MustParsePrefix("10.1.0.0/16")}},
				{Hook: netlink.Ingress, Priority: 2,
					Match: netlink.Match{Prefix: netip.MustParsePrefix("fd00::/61"),
						Dst: true}, Target: 4},
				{Hook: netlink.Egress, Priority: 3,
					Match: netlink.Match{Prefix: netip.MustParsePrefix("0.0.0.0/0"),
						Dst: true}, Target: 4},
				{Hook: netlink.Egress, Priority: 4, Target: 4},
			}
			for _, f := range filters {
				say(f.String(), c.Qdiscs.AddFilter(w0, netlink.KindClsact, f))
			}
			say("filter of another kind of qdisc", c.Qdiscs.AddFilter(w1, netlink.KindIngress,
				netlink.Filter{Hook: netlink.Ingress, Priority: 1, Target: 4}))
			for _, l := range []netlink.Link{w0, w1} {
				found, others, err := c.Qdiscs.Filters(l, netlink.Ingress)
				say(fmt.Sprint(l.Name, " ", found, " and ", len(others)), err)
			}
			found, others, err := c.Qdiscs.Filters(w0, netlink.Egress)
			say(fmt.Sprint("egress of w0 ", found, " and ", len(others)), err)
			say("DeleteFilter", c.Qdiscs.DeleteFilter(w0, filters[1]))
			say("DeleteHooks", c.Qdiscs.DeleteHooks(w0))
			say("DeleteHooks again", c.Qdiscs.DeleteHooks(w0))
			say("DeleteTBF", c.Qdiscs.DeleteTBF(w0))
			say("DeleteTBF again", c.Qdiscs.DeleteTBF(w0))
			list()
		},
	},
	{
		name:  "foreign-filters",
		needs: []kernel.Feature{kernel.FeatureVeth, kernel.FeatureShaping},
		setup: []string{ // filters that AddFilter cannot create
			"link add w0 type veth peer name w1", "tc qdisc add dev w0 clsact",
			"tc filter add dev w0 ingress protocol ip prio 1 u32 match ip src 10.0.0.0/8 match ip protocol 6 0xff flowid 1:1 action drop",
			"tc filter add dev w0 ingress protocol all prio 2 u32 match u32 0 0 flowid 1:1 action ok",
			"tc filter add dev w0 ingress protocol ip prio 3 u32 match ip dst 10.9.0.0/16 flowid 1:1",
			"tc filter add dev w0 ingress protocol ip prio 4 u32 match ip dst 10.9.0.0/16 flowid 1:2",
		},
		do: func(c *wire, out io.Writer) {
			found, others, err := c.Qdiscs.Filters(netlink.Link{Index: 3, Name: "w0"},
				netlink.Ingress)
			fmt.Fprintln(out, found, len(others), err)
		},
	},
	{
		name:  "neighbours",
		needs: []kernel.Feature{kernel.FeatureVeth},
		setup: []string{
			"link add w0 type veth peer name w1", "link set w0 up",
			"neighbour add 10.1.0.9 lladdr 02:00:00:00:00:09 nud permanent dev w0",
			"neighbour add fd00::9 lladdr 02:00:00:00:00:09 nud noarp dev w0",
		},
		do: func(c *wire, out io.Writer) {
			for _, a := range []string{"10.1.0.9", "fd00::9"} {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				answers, err := c.Addrs.Answers(ctx, netlink.Link{Index: 3, Name: "w0"},
					netip.MustParseAddr(a))
				cancel()
				fmt.Fprintln(out, a, answers, err)
			}
		},
	},
	{
		name:  "namespaces",
		needs: []kernel.Feature{kernel.FeatureVeth},
		setup: []string{"link add w0 type veth peer name w1 netns CONTAINER"},
		do: func(c *wire, out io.Writer) {
			l, err := c.Links.ByName("w0")
			fmt.Fprintln(out, l.Kind, l.Peer > 0, l.PeerNSID, err)
			for _, id := range []int{0, 8} {
				lives, err := c.Lives(id)
				fmt.Fprintln(out, id, lives, err)
			}
			there, err := c.Links.In(0)
			for _, l := range there {
				fmt.Fprintln(out, l.Name, l.Kind, l.PeerNSID)
			}
			fmt.Fprintln(out, err)
		},
	},
}

// show describes a link without pointers.
func show(l netlink.Link) string {
	tun := l.Tun
	l.Tun = nil
	text := fmt.Sprintf("%+v", l)
	if tun != nil {
		owner, group := tun.Owner, tun.Group
		tun.Owner, tun.Group = nil, nil
		text += fmt.Sprintf(" %+v", *tun)
		for _, id := range []*uint32{owner, group} {
			if id != nil {
				text += fmt.Sprintf(" ID %d", *id)
			}
		}
	}
	return text
}

func recordingFile(name string) string { return filepath.Join("testdata", "recorded", name+".txt") }

// TestRecorded checks that every request equals the recorded one, and that the recorded answers
// decode to the recorded results.
func TestRecorded(t *testing.T) {
	for _, row := range recordings {
		t.Run(row.name, func(t *testing.T) {
			file := recordingFile(row.name)
			if *update {
				testnet.Require(t, testnet.Kernel(row.needs...))
				if err := os.WriteFile(file, []byte(record(t, row.setup, row.do).format(t)),
					0o644); err != nil {
					t.Fatal(err)
				}
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := parseRecording(t, string(b))
			w := newWire(t)
			var asked []exchange
			for _, e := range want.exchanges {
				if e.request {
					asked = append(asked, e)
				} else {
					w.answer(t, e.datagram)
				}
			}
			var out bytes.Buffer
			row.do(w, &out)
			if diff := cmp.Diff(want.result, out.String()); diff != "" {
				t.Errorf("result (-recorded +got):\n%s", diff)
			}
			diff := cmp.Diff(recording{exchanges: asked}.format(t),
				recording{exchanges: w.asked()}.format(t))
			if diff != "" {
				t.Errorf("requests (-recorded +got):\n%s", diff)
			}
		})
	}
}

// record makes the exchange with the running kernel.
func record(t *testing.T, setup []string, do func(*wire, io.Writer)) (r recording) {
	t.Helper()
	n := testnet.New(t, "c")
	for _, command := range setup {
		words := strings.Fields(strings.ReplaceAll(command, "CONTAINER",
			testnet.NS(t, n.Container("c")).Path()))
		tool := "ip"
		if words[0] == "tc" {
			tool, words = "tc", words[1:]
		}
		n.Host.Command(tool, words...)
	}
	fd, err := testnet.NS(t, n.Host).Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
		unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	netlink.Prepare(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		t.Fatal(err)
	}
	w := newWire(t)
	forwarded := make(chan error)
	go func() { forwarded <- w.forward(fd, &r) }()
	var out bytes.Buffer
	do(w, &out)
	r.result = out.String()
	w.Close()
	if err := <-forwarded; err != nil {
		t.Fatal(err)
	}
	return r
}

// forward passes requests to the kernel and answers back, until the connection is closed.
func (w *wire) forward(fd int, r *recording) error {
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(w.kernel, b, 0)
		if err != nil || n == 0 {
			return err
		}
		r.exchanges = append(r.exchanges, exchange{true, slices.Clone(b[:n])})
		flags := binary.NativeEndian.Uint16(b[6:])
		if err := unix.Send(fd, b[:n], 0); err != nil {
			return err
		}
		for last := false; !last; {
			if n, _, err = unix.Recvfrom(fd, b, 0); err != nil {
				return err
			}
			r.exchanges = append(r.exchanges, exchange{false, slices.Clone(b[:n])})
			if err := unix.Send(w.kernel, b[:n], 0); err != nil {
				return err
			}
			last = flags&(unix.NLM_F_DUMP|unix.NLM_F_ACK) == 0 || ends(b[:n])
		}
	}
}

// ends reports whether a datagram ends a list, or confirms or refuses a request.
func ends(datagram []byte) bool {
	for len(datagram) > 0 {
		if kind := binary.NativeEndian.Uint16(datagram[4:]); kind == unix.NLMSG_DONE ||
			kind == unix.NLMSG_ERROR {
			return true
		}
		datagram = datagram[netlink.Align(int(binary.NativeEndian.Uint32(datagram))):]
	}
	return false
}
