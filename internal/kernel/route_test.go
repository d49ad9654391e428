package kernel_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// routed creates a container with eth0 up and with addresses.
func routed(t *testing.T) (*bench, kernel.Link) {
	t.Helper()
	b := setup(t)
	must(t, b.container.Sysctl.Ensure([]kernel.Setting{{Key: "net/ipv6/conf/default/accept_dad", Value: "0"}}))
	inside, _ := b.vethUp(t)
	must(t, b.container.Addrs.Add(inside, prefix("10.1.2.3/24")))
	must(t, b.container.Addrs.Add(inside, prefix("fd00::3/64")))
	// A tentative address cannot be the source of a route.
	must(t, b.container.Addrs.WaitDAD(t.Context(), inside))
	b.tx.Keep()
	return b, inside
}

// routesTo lists the routes to a destination, without link and in the order of the gateways.
func (b *bench) routesTo(t *testing.T, table int, dst string) []kernel.Route {
	t.Helper()
	all, err := b.container.Routes.All(table)
	must(t, err)
	var out []kernel.Route
	for _, r := range all {
		if r.Dst == prefix(dst) {
			r.Link = 0
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b kernel.Route) int { return a.GW.Compare(b.GW) })
	return out
}

var compareRoutes = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestAddRoute(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		add, want kernel.Route
	}{
		{
			"default through a gateway",
			kernel.Route{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1")},
			kernel.Route{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1"), Table: 254},
		},
		{
			"IPv6 default has the kernel's metric",
			kernel.Route{Dst: prefix("::/0"), GW: addr("fd00::1")},
			kernel.Route{Dst: prefix("::/0"), GW: addr("fd00::1"), Table: 254, Priority: 1024},
		},
		{
			"everything set",
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("10.1.2.1"), Table: 1000, Priority: 7, MTU: 1300, AdvMSS: 1200},
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("10.1.2.1"), Table: 1000, Priority: 7, MTU: 1300, AdvMSS: 1200},
		},
		{
			"everything set in IPv6",
			kernel.Route{Dst: prefix("fd09::/32"), GW: addr("fd00::1"), Table: 100, Priority: 7, MTU: 1300, AdvMSS: 1200},
			kernel.Route{Dst: prefix("fd09::/32"), GW: addr("fd00::1"), Table: 100, Priority: 7, MTU: 1300, AdvMSS: 1200},
		},
		{
			"device route",
			kernel.Route{Dst: prefix("10.9.0.0/16")},
			kernel.Route{Dst: prefix("10.9.0.0/16"), Table: 254},
		},
		{
			"scope link",
			kernel.Route{Dst: prefix("10.9.0.0/16"), Scope: kernel.ScopeLink},
			kernel.Route{Dst: prefix("10.9.0.0/16"), Scope: kernel.ScopeLink, Table: 254},
		},
		{
			"scope host",
			kernel.Route{Dst: prefix("10.9.0.1/32"), Scope: kernel.ScopeHost},
			kernel.Route{Dst: prefix("10.9.0.1/32"), Scope: kernel.ScopeHost, Table: 254},
		},
		{
			"IPv4 through an IPv6 gateway",
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("fe80::1")},
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("fe80::1"), Table: 254},
		},
		{
			"source",
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("10.1.2.1"), Src: addr("10.1.2.3")},
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("10.1.2.1"), Src: addr("10.1.2.3"), Table: 254},
		},
		{
			"source in IPv6",
			kernel.Route{Dst: prefix("fd09::/32"), Src: addr("fd00::3")},
			kernel.Route{Dst: prefix("fd09::/32"), Src: addr("fd00::3"), Table: 254, Priority: 1024},
		},
		{
			"unspecified gateway is none",
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("0.0.0.0")},
			kernel.Route{Dst: prefix("10.9.0.0/16"), Table: 254},
		},
		{
			"unspecified IPv6 gateway is none",
			kernel.Route{Dst: prefix("fd09::/32"), GW: addr("::")},
			kernel.Route{Dst: prefix("fd09::/32"), Table: 254, Priority: 1024},
		},
		{
			"bits behind the prefix length are ignored",
			kernel.Route{Dst: prefix("10.9.8.7/16"), GW: addr("10.1.2.1")},
			kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("10.1.2.1"), Table: 254},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b, inside := routed(t)
			before := b.snapshot(t)
			must(t, b.container.Routes.Add(inside, row.add))
			want := []kernel.Route{row.want}
			for _, table := range []int{kernel.AllTables, row.want.Table} {
				if diff := cmp.Diff(want, b.routesTo(t, table, row.want.Dst.String()), compareRoutes); diff != "" {
					t.Errorf("table %d (-want +got):\n%s", table, diff)
				}
			}
			if got := b.routesTo(t, 4711, row.want.Dst.String()); got != nil {
				t.Errorf("table that does not exist: %v", got)
			}

			must(t, b.container.Routes.Add(inside, row.add)) // identical
			if got := b.routesTo(t, kernel.AllTables, row.want.Dst.String()); len(got) != 1 {
				t.Errorf("added twice: %v", got)
			}
			must(t, b.tx.Rollback())
			b.unchanged(t, before)
		})
	}
}

func TestAddRouteDoesNotUndoAnIdenticalOne(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	for _, r := range []kernel.Route{
		{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1")},
		{Dst: prefix("::/0"), GW: addr("fd00::1")},
	} {
		must(t, b.container.Routes.Add(inside, r))
		b.tx.Keep()
		before := b.snapshot(t)
		must(t, b.container.Routes.Add(inside, r))
		must(t, b.tx.Rollback())
		b.unchanged(t, before)
	}
}

// TestAddRouteBesideAnother: a destination can have two gateways.
func TestAddRouteBesideAnother(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	for _, row := range []struct{ dst, first, second string }{
		{"0.0.0.0/0", "10.1.2.1", "10.1.2.2"},
		{"::/0", "fd00::1", "fd00::2"}, // becomes a multipath route
	} {
		must(t, b.container.Routes.Add(inside, kernel.Route{Dst: prefix(row.dst), GW: addr(row.first)}))
		b.tx.Keep()
		before := b.snapshot(t)
		must(t, b.container.Routes.Add(inside, kernel.Route{Dst: prefix(row.dst), GW: addr(row.second)}))
		got := b.routesTo(t, kernel.TableMain, row.dst)
		if len(got) != 2 || got[0].GW != addr(row.first) || got[1].GW != addr(row.second) {
			t.Errorf("%s: %v, want one through each of %s and %s", row.dst, got, row.first, row.second)
		}
		must(t, b.tx.Rollback())
		b.unchanged(t, before)
	}
}

// TestDelRoute: Delete removes one route and keeps others to the same destination, and rollback
// restores it.
func TestDelRoute(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	for _, r := range []kernel.Route{
		{Dst: prefix("10.9.0.0/16"), GW: addr("10.1.2.1"), Src: addr("10.1.2.3"), Table: 254, Priority: 7, MTU: 1300, AdvMSS: 1200},
		{Dst: prefix("10.9.0.0/16"), Scope: kernel.ScopeLink, Table: 254},
		{Dst: prefix("fd09::/32"), GW: addr("fd00::1"), Src: addr("fd00::3"), Table: 100, Priority: 7, MTU: 1300},
	} {
		must(t, b.container.Routes.Add(inside, r))
	}
	b.tx.Keep()
	before := b.snapshot(t)
	for _, dst := range []string{"10.9.0.0/16", "fd09::/32"} {
		all := b.routesTo(t, kernel.AllTables, dst)
		must(t, b.container.Routes.Delete(inside, all[0]))
		if diff := cmp.Diff(all[1:], b.routesTo(t, kernel.AllTables, dst), compareRoutes, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	}
	// The route does not exist.
	must(t, b.container.Routes.Delete(inside, kernel.Route{Dst: prefix("10.66.0.0/16")}))
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestDelRouteOfTheKernel: Delete removes a route that the kernel added with an address.
func TestDelRouteOfTheKernel(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	for _, dst := range []string{"10.1.2.0/24", "fd00::/64"} {
		must(t, b.container.Routes.Delete(inside, b.routesTo(t, kernel.TableMain, dst)[0]))
		if left := b.routesTo(t, kernel.AllTables, dst); left != nil {
			t.Errorf("left %v", left)
		}
	}
}

func TestRouteString(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]kernel.Route{
		"0.0.0.0/0":   {Dst: prefix("0.0.0.0/0"), GW: addr("0.0.0.0")},
		"10.9.0.0/16": {Dst: prefix("10.9.8.7/16")},
		"fd09::/32 via fd00::1 src fd00::3 metric 7 scope 253 table 100 mtu 1300 advmss 1200": {
			Dst: prefix("fd09::/32"), GW: addr("fd00::1"), Src: addr("fd00::3"),
			Priority: 7, Scope: kernel.ScopeLink, Table: 100, MTU: 1300, AdvMSS: 1200,
		},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAddRouteError(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	before := b.snapshot(t)
	err := b.container.Routes.Add(inside, kernel.Route{
		Dst: prefix("10.9.0.0/16"), GW: addr("192.0.2.1"), Priority: 7, Scope: 200, Table: 1000,
	})
	if !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("gateway that is not on the link: %v", err)
	}
	for _, part := range []string{"10.9.0.0/16", "192.0.2.1", "eth0", "metric 7", "scope 200", "table 1000"} {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
	b.unchanged(t, before)
}

func TestInvalidPrefixesAreRefused(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	before := b.snapshot(t)
	for name, err := range map[string]error{
		"route":                              b.container.Routes.Add(inside, kernel.Route{}),
		"route with a gateway":               b.container.Routes.Add(inside, kernel.Route{GW: addr("10.1.2.1")}),
		"IPv6 route through an IPv4 gateway": b.container.Routes.Add(inside, kernel.Route{Dst: prefix("fd09::/32"), GW: addr("10.1.2.1")}),
		"address":                            b.container.Addrs.Add(inside, netip.Prefix{}),
		"mapped address":                     b.container.Addrs.Add(inside, prefix("::ffff:10.1.2.9/120")),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	b.unchanged(t, before)
}

func TestRoutesNameTheLink(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	all, err := b.container.Routes.All(kernel.AllTables)
	must(t, err)
	i := slices.IndexFunc(all, func(r kernel.Route) bool { return r.Dst == prefix("10.1.2.0/24") })
	if i < 0 || all[i].Link != inside.Index {
		t.Errorf("network of eth0 (index %d) among %+v", inside.Index, all)
	}
	for _, r := range all {
		if r.Dst == prefix("10.1.2.3/32") {
			t.Errorf("list contains a route of another type: %+v", r)
		}
	}
}

// TestLinkTo asks the kernel for the link of an address.
func TestLinkTo(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	must(t, b.container.Routes.Add(inside, kernel.Route{Dst: prefix("192.0.2.0/24"), GW: addr("10.1.2.1")}))
	for _, a := range []string{"10.1.2.9", "192.0.2.1", "fd00::9"} {
		if l, err := b.container.Routes.LinkTo(addr(a)); err != nil || l.Name != inside.Name {
			t.Errorf("%s: %s, %v", a, l.Name, err)
		}
	}
	// No route, and own addresses.
	for _, a := range []string{"203.0.113.1", "2001:db8::1", "10.1.2.3", "fd00::3"} {
		if _, err := b.container.Routes.LinkTo(addr(a)); !errors.Is(err, kernel.ErrNoRoute) {
			t.Errorf("%s: %v", a, err)
		}
	}
	for a, want := range map[string]bool{"10.1.2.3": true, "fd00::3": true, "10.1.2.9": false, "2001:db8::1": false} {
		if got, err := b.container.Addrs.IsLocal(addr(a)); got != want || err != nil {
			t.Errorf("%s is local: %t, %v", a, got, err)
		}
	}
}
