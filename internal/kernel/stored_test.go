package kernel_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
)

func fields(s string) []string { return strings.Fields(s) }

// everyKind are routes with all attributes that a route can have.
var everyKind = []string{
	"-4 route add 10.9.0.0/16 via 10.1.2.1 src 10.1.2.3 metric 7 mtu 1300 advmss 1200 proto static",
	"-4 route add 10.10.0.0/16 scope link proto 99",
	"-4 route add 10.11.0.0/16 via 10.1.2.1 table 1000 initcwnd 20 rto_min 10ms tos 8 realm 5",
	"-4 route add 10.12.0.0/16 via 192.0.2.1 onlink",
	"-4 route add 10.13.0.0/16 mtu lock 1300 nexthop via 10.1.2.1 weight 2 nexthop via 10.1.2.4 weight 3",
	"-4 route add 10.14.0.0/16 nexthop via 192.0.2.1 onlink dev eth0 nexthop via 10.1.2.4",
	"-4 route add 10.15.0.0/16 via inet6 fd00::1",
	"-4 route add 10.16.0.0/16 nhid 5",
	"-4 route add default via 10.1.2.1",
	"-4 route append default via 10.1.2.4",
	"-4 route add 10.17.0.0/16 via 10.1.2.1 mtu lock 1300 window 3000 rtt 50ms rttvar 20ms ssthresh 7 cwnd lock 9 reordering 4 hoplimit 9" +
		" initrwnd 10 features ecn quickack 1 fastopen_no_cookie 1 congctl reno",
	"-4 route add 10.18.0.0/16 encap ip id 7 dst 10.9.9.9 via 10.1.2.1",
	"-4 route add 10.19.0.0/16 nexthop encap ip id 7 dst 10.9.9.9 via 10.1.2.1 nexthop via 10.1.2.4",
	"-6 route add fd09::/32 via fd00::1 src fd00::3 metric 7 mtu 1300 advmss 1200 proto static",
	"-6 route add fd10::/32 table 1000 proto 99",
	"-6 route add fd13::/32 nexthop via fd00::1 weight 2 nexthop via fd00::4 weight 3",
	"-6 route add fd14::/32 from fd00::/64 via fd00::1 pref high",
	"-6 route add fd15::/32 encap ip6 id 7 dst fd00::9 via fd00::1",
	"-6 route add default via fe80::1",
}

// storing creates a container with routes of every kind through eth0.
func storing(t *testing.T) (*bench, kernel.Link) {
	t.Helper()
	b, inside := routed(t)
	ns := b.Container("container")
	ns.Command("ip", fields("nexthop add id 5 via 10.1.2.9 dev eth0")...)
	for _, route := range everyKind {
		if !strings.Contains(route, " nhid ") && !strings.Contains(route, " nexthop ") {
			route += " dev eth0"
		}
		ns.Command("ip", fields(route)...)
	}
	return b, inside
}

// TestStoredRoutes: all routes of a link can be removed, and both rollback and Restore restore them
// unchanged.
func TestStoredRoutes(t *testing.T) {
	t.Parallel()
	b, inside := storing(t)
	before := b.snapshot(t)
	inOrder := func() string { return b.Container("container").Command("ip", fields("-4 route show table all")...) }
	ordered := inOrder()
	all, err := b.container.Routes.Stored(inside)
	must(t, err)
	take := func() {
		t.Helper()
		for _, r := range slices.Backward(all) {
			must(t, b.container.Routes.Remove(inside, r))
			must(t, b.container.Routes.Remove(inside, r)) // does not exist
		}
		left, err := b.container.Routes.Stored(inside)
		must(t, err)
		if len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	take()
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
	if got := inOrder(); got != ordered {
		t.Errorf("got routes\n%swant\n%s", got, ordered)
	}

	take()
	b.tx.Keep()
	taken := b.snapshot(t)
	for range 2 { // the second time they exist
		for _, r := range all {
			must(t, b.container.Routes.Restore(inside, r))
		}
	}
	b.unchanged(t, before)
	if got := inOrder(); got != ordered {
		t.Errorf("got routes\n%swant\n%s", got, ordered)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, taken)
}

// TestStoredRoutesInAnotherTable: restored routes have the same attributes in another table, and
// existing routes stay.
func TestStoredRoutesInAnotherTable(t *testing.T) {
	t.Parallel()
	b, inside := storing(t)
	before := b.snapshot(t)
	all, err := b.container.Routes.Stored(inside)
	must(t, err)
	want := map[string]int{}
	for _, r := range all {
		must(t, b.container.Routes.Restore(inside, r.In(5000)))
	}
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(b.Container("container").Command("ip", fields("-d -o "+family+" route show table all type unicast")...)) {
			to5000 := strings.NewReplacer(" table main ", " ", " table 1000 ", " ", " table 5000 ", " ").Replace(line)
			if strings.Contains(line, "nh_info ") { // a line of the next hop object
				continue
			}
			if strings.Contains(line, " table 5000 ") {
				want[to5000]--
			} else {
				want[to5000]++
			}
		}
	}
	for line, n := range want {
		if n != 0 {
			t.Errorf("%+d of %s", n, line)
		}
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestStoredRoutesEndOfLife: an announced route expires in its own table, but not in another table,
// where no advertisement renews it.
func TestStoredRoutesEndOfLife(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	ns := b.Container("container")
	ns.Command("ip", fields("-6 route add default via fe80::1 dev eth0 proto ra expires 1000")...)
	all, err := b.container.Routes.Stored(inside)
	must(t, err)
	i := slices.IndexFunc(all, func(r kernel.StoredRoute) bool { return r.Dst == prefix("::/0") })
	must(t, b.container.Routes.Remove(inside, all[i]))
	must(t, b.container.Routes.Restore(inside, all[i].In(100)))
	if got := ns.Command("ip", fields("-6 route show table 100")...); !strings.Contains(got, "proto ra") || strings.Contains(got, "expires") {
		t.Errorf("got %s in another table", got)
	}
	must(t, b.tx.Rollback())
	if got := ns.Command("ip", fields("-6 route show default")...); !strings.Contains(got, "expires ") {
		t.Errorf("got %s after its return", got)
	}
}

// TestStoredRoutesOfTwoLinks: Stored omits a multipath route of IPv4 through two links. In IPv6 it
// lists the hops through the link; without them, the route leads through the other link.
func TestStoredRoutesOfTwoLinks(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	ns := b.Container("container")
	for _, command := range []string{
		"link add other type veth peer name rehto", "link set rehto up", "link set other up",
		"address add 10.7.0.3/24 dev other", "address add fd07::3/64 dev other nodad",
		"route add 10.9.0.0/16 nexthop via 10.1.2.1 dev eth0 nexthop via 10.7.0.1 dev other",
		"-6 route add default nexthop via fd07::1 dev other weight 2 nexthop via fd00::1 dev eth0 weight 3 nexthop via fd00::4 dev eth0",
		"-6 route add fd09::/32 via fd07::1 dev other", "-6 route append fd09::/32 via fd00::1 dev eth0",
	} {
		ns.Command("ip", fields(command)...)
	}
	before := b.snapshot(t)
	all, err := b.container.Routes.Stored(inside)
	must(t, err)
	for _, r := range slices.Backward(all) {
		if r.Dst == prefix("10.9.0.0/16") || r.Link != inside.Index {
			t.Errorf("list contains %v through link %d", r.Route, r.Link)
		}
		must(t, b.container.Routes.Remove(inside, r))
	}
	for _, dst := range []string{"::/0", "fd09::/32"} {
		if left := b.routesTo(t, kernel.TableMain, dst); len(left) != 1 || left[0].GW != addr("fd07::1") {
			t.Errorf("%s: left %v", dst, left)
		}
	}
	for _, r := range all {
		must(t, b.container.Routes.Restore(inside, r.In(100)))
	}
	if got := b.routesTo(t, 100, "::/0"); len(got) != 2 || got[0].GW != addr("fd00::1") || got[1].GW != addr("fd00::4") {
		t.Errorf("in another table %v", got)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestStoredRoutesOfANextHopGroup: Stored lists a route with a next hop group only if all hops use
// the link, in IPv6 too, because removing one hop would remove the route.
func TestStoredRoutesOfANextHopGroup(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	ns := b.Container("container")
	for _, command := range []string{
		"link add other type veth peer name rehto", "link set rehto up", "link set other up", "address add fd07::3/64 dev other nodad",
		"nexthop add id 1 via fd00::1 dev eth0", "nexthop add id 2 via fd00::4 dev eth0", "nexthop add id 3 via fd07::1 dev other",
		"nexthop add id 12 group 1/2", "nexthop add id 13 group 1/3",
		"-6 route add fd12::/32 nhid 12", "-6 route add fd13::/32 nhid 13",
	} {
		ns.Command("ip", fields(command)...)
	}
	before := b.snapshot(t)
	all, err := b.container.Routes.Stored(inside)
	must(t, err)
	if !slices.ContainsFunc(all, func(r kernel.StoredRoute) bool { return r.Dst == prefix("fd12::/32") }) {
		t.Errorf("route is missing in %v", all)
	}
	for _, r := range slices.Backward(all) {
		must(t, b.container.Routes.Remove(inside, r))
	}
	if left := b.routesTo(t, kernel.TableMain, "fd13::/32"); len(left) != 2 {
		t.Errorf("route through two links: left %v", left)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestStoredRouteSame: Same ignores the table, and compares attributes without a field.
func TestStoredRouteSame(t *testing.T) {
	t.Parallel()
	b, inside := storing(t)
	all, err := b.container.Routes.Stored(inside)
	must(t, err)
	for i, r := range all {
		for j, other := range all {
			if same := r.Same(other.In(4711)); same != (i == j) {
				t.Errorf("%v and %v are the same: %t", r.Route, other.Route, same)
			}
		}
	}
	own := kernel.OwnRoute(inside, kernel.Route{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1")})
	i := slices.IndexFunc(all, own.Same)
	if i < 0 || all[i].Dst != prefix("0.0.0.0/0") {
		t.Errorf("list does not contain %v", own.Route)
	}
	multipath := slices.IndexFunc(all, func(r kernel.StoredRoute) bool { return r.Dst == prefix("10.13.0.0/16") })
	if got := all[multipath].Gateways(); !slices.Equal(got, []netip.Addr{addr("10.1.2.1"), addr("10.1.2.4")}) {
		t.Errorf("gateways %v", got)
	}
}

// TestOwnRoute: the route has [kernel.Protocol], and Own recognizes it.
func TestOwnRoute(t *testing.T) {
	t.Parallel()
	b, inside := routed(t)
	own := kernel.OwnRoute(inside, kernel.Route{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1"), Table: 100})
	must(t, b.container.Routes.Restore(inside, own.WithPriority(7)))
	want := "default via 10.1.2.1 dev eth0 proto 116 metric 7"
	if got := b.Container("container").Command("ip", fields("route show table 100")...); strings.TrimSpace(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	all, err := b.container.Routes.Stored(inside)
	must(t, err)
	for _, r := range all {
		if r.Own() != (r.Table == 100) {
			t.Errorf("%v is our own: %t", r.Route, r.Own())
		}
	}
}
