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

// Add adds a route through l; it ignores r.Link. It neither replaces nor appends, and keeps routes
// to the same destination through other gateways (the kernel joins IPv6 routes to a multipath
// route). If an identical route exists, Add succeeds, and Rollback keeps the route.
func (s Routes) Add(l Link, r Route) error {
	r.Link = l.Index
	return s.space.tx.change(routeOp(l, r),
		func() (bool, error) { return s.space.rt.Routes.Add(r) },
		func() error { return errorOf(s.space.rt.Routes.Delete(r)) })
}

// Append is Add for a route that comes into force only when other routes to the same destination
// are gone.
func (s Routes) Append(l Link, r Route) error {
	r.Link = l.Index
	return s.space.tx.change(routeOp(l, r),
		func() (bool, error) { return s.space.rt.Routes.Append(r) },
		func() error { return errorOf(s.space.rt.Routes.Delete(r)) })
}

// Delete removes a route through l. It succeeds if the route does not exist. The scope of an IPv4
// route must match. Rollback adds the route again.
func (s Routes) Delete(l Link, r Route) error {
	r.Link = l.Index
	return s.space.tx.change("delete "+routeOp(l, r),
		func() (bool, error) { return s.space.rt.Routes.Delete(r) },
		func() error { return present(errorOf(s.space.rt.Routes.Add(r))) })
}

// All lists the unicast routes of both families in a table or in [AllTables]. It lists a multipath
// route once per hop.
func (s Routes) All(table int) ([]Route, error) { return s.space.rt.Routes.All(table) }

// LinkLocal is the link-local network of every IPv6 interface (RFC 4291 section 2.5.6).
var LinkLocal = netip.MustParsePrefix("fe80::/64")

// Check looks for routes through l. Zero values in an expected route match any value, and so does
// the table main, because other plugins move routes to other tables. The error names the missing
// route.
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

// LinkTo returns the link through which packets to an address leave. The error wraps [ErrNoRoute]
// if none does.
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

// IsLocal reports whether an address belongs to the namespace.
func (s Addrs) IsLocal(a netip.Addr) (bool, error) {
	hop, _, err := s.space.rt.Routes.Lookup(a)
	return hop.Local, err
}

// ErrNoRoute reports that packets to an address cannot leave.
var ErrNoRoute = errors.New("no route")

func routeOp(l Link, r Route) string { return fmt.Sprintf("route %s dev %s", r, l.Name) }
