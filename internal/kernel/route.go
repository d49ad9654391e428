package kernel

import (
	"fmt"

	"github.com/tenon-cni/tenon/internal/kernel/rtnl"
)

// Route is a unicast route.
type Route = rtnl.Route

// Tables and scopes of routes (rtnetlink(7)).
const (
	AllTables      = rtnl.AllTables
	TableMain      = rtnl.TableMain
	ScopeUniverse  = rtnl.ScopeUniverse
	ScopeLink      = rtnl.ScopeLink
	ScopeHost      = rtnl.ScopeHost
	DefaultMetric6 = rtnl.DefaultMetric6
)

// AddRoute adds a route that leaves through l; r.Link is not looked at. It neither replaces nor appends, and lets
// routes to the same destination through other gateways be (IPv6 joins them to a multipath route). An identical route
// that is there counts as added, and stays when the transaction is rolled back.
func (s *Space) AddRoute(l Link, r Route) error {
	r.Link = l.Index
	added := false
	return s.tx.Do(routeOp(l, r),
		func() (err error) {
			added, err = s.rt.AddRoute(r)
			return err
		},
		func() error {
			if !added {
				return nil
			}
			_, err := s.rt.DelRoute(r)
			return err
		})
}

// DelRoute removes a route that leaves through l; one that is gone is as good as removed. The scope of an IPv4 route has to
// be right. Undone by adding it again.
func (s *Space) DelRoute(l Link, r Route) error {
	r.Link = l.Index
	existed := false
	return s.tx.Do("delete "+routeOp(l, r),
		func() (err error) {
			existed, err = s.rt.DelRoute(r)
			return err
		},
		func() error {
			if !existed {
				return nil
			}
			_, err := s.rt.AddRoute(r)
			return present(err)
		})
}

// Routes lists the unicast routes of both families in a table or in [AllTables]. A multipath route is listed once for
// each of its hops.
func (s *Space) Routes(table int) ([]Route, error) { return s.rt.Routes(table) }

func routeOp(l Link, r Route) string { return fmt.Sprintf("route %s dev %s", r, l.Name) }
