package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Route is a unicast route.
type Route = netlink.Route

// Tables and scopes of routes (rtnetlink(7)).
const (
	AllTables      = netlink.AllTables
	TableMain      = netlink.TableMain
	ScopeUniverse  = netlink.ScopeUniverse
	ScopeLink      = netlink.ScopeLink
	ScopeHost      = netlink.ScopeHost
	DefaultMetric6 = netlink.DefaultMetric6
)

// Add adds a route that leaves through l; r.Link is not looked at. It neither replaces nor appends, and lets
// routes to the same destination through other gateways be (IPv6 joins them to a multipath route). An identical route
// that is there counts as added, and stays when the transaction is rolled back.
func (s Routes) Add(l Link, r Route) error {
	r.Link = l.Index
	return s.space.tx.change(routeOp(l, r),
		func() (bool, error) { return s.space.rt.Routes.Add(r) },
		func() error { return errorOf(s.space.rt.Routes.Delete(r)) })
}

// Delete removes a route that leaves through l; one that is gone is as good as removed. The scope of an IPv4 route has to
// be right. Undone by adding it again.
func (s Routes) Delete(l Link, r Route) error {
	r.Link = l.Index
	return s.space.tx.change("delete "+routeOp(l, r),
		func() (bool, error) { return s.space.rt.Routes.Delete(r) },
		func() error { return present(errorOf(s.space.rt.Routes.Add(r))) })
}

// All lists the unicast routes of both families in a table or in [AllTables]. A multipath route is listed once for
// each of its hops.
func (s Routes) All(table int) ([]Route, error) { return s.space.rt.Routes.All(table) }

// LinkLocal is the network that each IPv6 interface is in (RFC 4291 section 2.5.6).
var LinkLocal = netip.MustParsePrefix("fe80::/64")

// Check looks for routes through l. What an expected one says nothing of, by its zero values, may be anything; so
// may be the table of one that was made in the main table, as others move routes. The error says what is missing.
func (s Routes) Check(l Link, expected []Route) error {
	have, err := s.All(AllTables)
	if err != nil {
		return err
	}
	for _, want := range expected {
		same := func(rt Route) bool { return rt.Link == l.Index && rt.Dst == want.Dst.Masked() }
		if slices.ContainsFunc(have, func(rt Route) bool { return same(rt) && satisfies(rt, want) }) {
			continue
		}
		found := slices.DeleteFunc(have, func(rt Route) bool { return !same(rt) })
		return fmt.Errorf("interface %s: expected a route %s, found %v", l.Name, want, found)
	}
	return nil
}

func satisfies(rt, want Route) bool {
	gw := want.Gateway()
	return (!gw.IsValid() || rt.GW == gw) &&
		(want.Table == 0 || want.Table == TableMain || rt.Table == want.Table) &&
		(want.Scope == 0 || rt.Scope == want.Scope || !rt.Dst.Addr().Is4()) &&
		(want.Priority == 0 || rt.Priority == want.Priority) &&
		(want.MTU == 0 || rt.MTU == want.MTU) &&
		(want.AdvMSS == 0 || rt.AdvMSS == want.AdvMSS)
}

// LinkTo returns the link through which packets to an address leave. The error wraps [ErrNoRoute] if none does.
func (s Routes) LinkTo(dst netip.Addr) (Link, error) {
	hop, ok, err := s.space.rt.Routes.Lookup(dst)
	if err != nil {
		return Link{}, err
	}
	if !ok || hop.Local {
		return Link{}, fmt.Errorf("%s: %w", dst, ErrNoRoute)
	}
	return s.space.rt.Links.ByIndex(hop.Link)
}

// IsLocal reports whether an address is one of this machine: of the namespace, that is.
func (s Addrs) IsLocal(a netip.Addr) (bool, error) {
	hop, _, err := s.space.rt.Routes.Lookup(a)
	return hop.Local, err
}

// ErrNoRoute says that packets to an address would not leave.
var ErrNoRoute = errors.New("no route")

func routeOp(l Link, r Route) string { return fmt.Sprintf("route %s dev %s", r, l.Name) }
