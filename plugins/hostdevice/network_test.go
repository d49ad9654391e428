package hostdevice_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// configured gives ens1 addresses, routes and rules. A comment says why the container does not get
// an object.
func configured(r *plugintest.Runtime) {
	r.Host.Batch(
		"address add 198.51.100.7/24 dev ens1 valid_lft 3000 preferred_lft 3000",
		"address add 169.254.1.1/16 dev ens1 scope link",                       // not global
		"address add fd00:52::1/64 dev ens1 valid_lft 3000 preferred_lft 3000", // not permanent
		"route add 203.0.113.0/24 via 198.51.100.9 dev ens1 metric 5 mtu 1300",
		"route add 192.0.2.0/24 dev ens1 scope link",
		"route add 198.18.0.0/15 dev ens1 proto kernel scope link", // the kernel's
		"route add default via 198.51.100.9 dev ens1 table 77",
		"route add 10.5.0.0/16 table 77 nexthop via 198.51.100.9 dev ens1 nexthop via 198.51.100.10 dev ens1",
		"route add 2001:db8::/32 via fd00:51::9 dev ens1 metric 7",
		"rule add from 198.51.100.1 lookup 77 priority 500",
		"rule add from 198.51.100.0/24 lookup 77 priority 501",
		"rule add from 10.0.0.0/8 lookup 77 priority 502",                  // of no address
		"rule add from 198.51.100.1 lookup 78 priority 503",                // to no route
		"rule add from 198.51.100.1 to 10.9.0.0/16 lookup 77 priority 504", // has a condition
	)
}

// routesOf lists the routes of a namespace in tables main and 77, except the kernel's own.
func routesOf(ns *plugintest.Namespace) (list []string) {
	for _, f := range []string{"-4", "-6"} {
		for _, table := range []string{"main", "77"} {
			if ns.Try("ip", f, "route", "show", "table", table) != nil {
				continue // no such table
			}
			text := strings.ReplaceAll(ns.Command("ip", f, "route", "show", "table", table), " \n\t", " ")
			for line := range strings.Lines(text) {
				if !strings.Contains(line, "proto kernel") {
					list = append(list, table+": "+strings.Join(strings.Fields(line), " "))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

func rulesOf(ns *plugintest.Namespace) (list []string) {
	for line := range strings.Lines(ns.Command("ip", "rule")) {
		if strings.HasPrefix(line, "5") {
			list = append(list, strings.Join(strings.Fields(line), " "))
		}
	}
	return list
}

// TestUseInterfaceNetwork: the container gets the addresses, routes and rules of the device, and what
// IPAM returns; CHECK accepts them, and after DEL the container has none of them.
func TestUseInterfaceNetwork(t *testing.T) {
	t.Parallel()
	const static = `,"ipam":{"type":"static","addresses":[{"address":"10.96.0.7/24"}],` +
		`"routes":[{"dst":"10.97.0.0/16","gw":"10.96.0.1"}]}`
	for _, row := range []struct {
		name, ipam   string
		taken        bool // whether the container has a link with the index of the device
		addresses    string
		first, route string
	}{
		{name: "without ipam", addresses: "198.51.100.1/24 198.51.100.7/24 fd00:51::1/64"},
		{name: "its index is taken", taken: true,
			addresses: "198.51.100.1/24 198.51.100.7/24 fd00:51::1/64"},
		{name: "with ipam", ipam: static,
			addresses: "198.51.100.1/24 198.51.100.7/24 fd00:51::1/64 10.96.0.7/24",
			route:     "main: 10.97.0.0/16 via 10.96.0.1 dev eth0"},
		{name: "with ipam that has no address", ipam: `,"ipam":{"type":"static"}`,
			addresses: "198.51.100.1/24 198.51.100.7/24 fd00:51::1/64"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := lab(t, `,"device":"ens1","useInterfaceNetwork":true`+row.ipam)
			r.Conf["cniVersion"] = "1.1.0"
			configured(r)
			c := r.Container("c")
			if row.taken {
				c.Batch(fmt.Sprintf("link add other index %v type bridge",
					link(t, r.Host, "ens1")["ifindex"]))
			}
			before := r.State()
			clean := c.Command("ip", "rule")
			result := r.Add("c")
			var addresses []string
			for _, ip := range result.IPs {
				addresses = append(addresses, ip.Address.String())
				if i, ok := ip.Interface.Get(); !ok || i != 0 {
					t.Errorf("%s: interface %v", ip.Address, ip.Interface)
				}
			}
			if got := strings.Join(addresses, " "); got != row.addresses {
				t.Errorf("addresses %s, want %s", got, row.addresses)
			}
			want := []string{
				"77: 10.5.0.0/16 nexthop via 198.51.100.9 dev eth0 weight 1 nexthop via 198.51.100.10 dev eth0 weight 1",
				"77: default via 198.51.100.9 dev eth0",
				"main: 192.0.2.0/24 dev eth0 scope link",
				"main: 2001:db8::/32 via fd00:51::9 dev eth0 metric 7 pref medium",
				"main: 203.0.113.0/24 via 198.51.100.9 dev eth0 metric 5 mtu 1300",
			}
			if row.route != "" {
				want = append(want, row.route)
				slices.Sort(want)
			}
			if diff := cmp.Diff(want, routesOf(c)); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"500: from 198.51.100.1 lookup 77 proto 116",
				"501: from 198.51.100.0/24 lookup 77 proto 116"}, rulesOf(c)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			var routes []string
			for _, x := range result.Routes {
				table, _ := x.Table.Get()
				routes = append(routes, fmt.Sprint(table, " ", x.Dst, " ", x.GW, " ", x.Priority))
			}
			slices.Sort(routes)
			wantRoutes := []string{"0 192.0.2.0/24 invalid IP 0", "0 2001:db8::/32 fd00:51::9 7",
				"0 203.0.113.0/24 198.51.100.9 5", "77 0.0.0.0/0 198.51.100.9 0",
				"77 10.5.0.0/16 198.51.100.10 0", "77 10.5.0.0/16 198.51.100.9 0"}
			if row.route != "" {
				wantRoutes = slices.Insert(wantRoutes, 0, "0 10.97.0.0/16 10.96.0.1 0")
			}
			if diff := cmp.Diff(wantRoutes, routes); diff != "" {
				t.Errorf("routes of the result (-want +got):\n%s", diff)
			}
			r.Check("c")
			del(t, r, nil)
			if left := c.Command("ip", "rule"); left != clean {
				t.Errorf("rules left in the container:\n%s", left)
			}
			if l := link(t, r.Host, "ens1"); l == nil || !isUp(l) {
				t.Errorf("the host has %v; before:\n%s", l, before)
			}
		})
	}
}

// TestUseInterfaceNetworkOfUserSpace: such a device has no addresses in the kernel.
func TestUseInterfaceNetworkOfUserSpace(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"pciBusID":"0000:5e:00.0","useInterfaceNetwork":true`)
	err := r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig)
	if want := "useInterfaceNetwork is not supported for dpdk-bound devices"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestUseInterfaceNetworkFails: after an ADD that fails, the host has everything again, and the
// container has nothing.
func TestUseInterfaceNetworkFails(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1","useInterfaceNetwork":true,"ipam":{"type":"static",`+
		`"addresses":[{"address":"10.96.0.7/24"}],"routes":[{"dst":"10.97.0.0/16","gw":"10.99.0.1"}]}`)
	configured(r)
	before, rules := routesOf(r.Host), rulesOf(r.Host)
	r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig)
	if diff := cmp.Diff(before, routesOf(r.Host)); diff != "" {
		t.Errorf("routes of the host (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(rules, rulesOf(r.Host)); diff != "" {
		t.Errorf("rules of the host (-before +after):\n%s", diff)
	}
	if left := rulesOf(r.Container("c")); left != nil {
		t.Errorf("rules of the container: %v", left)
	}
}
