package kernel

import (
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel/rtnl"
)

// Route is a unicast route.
type Route = rtnl.Route

// Tables and scopes of routes (rtnetlink(7)).
const (
	AllTables     = rtnl.AllTables
	TableMain     = rtnl.TableMain
	ScopeUniverse = rtnl.ScopeUniverse
	ScopeLink     = rtnl.ScopeLink
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

// Routes lists the unicast routes of both families in a table or in [AllTables]. A multipath route is listed once for
// each of its hops.
func (s *Space) Routes(table int) ([]Route, error) { return s.rt.Routes(table) }

func routeOp(l Link, r Route) string {
	var b strings.Builder
	fmt.Fprintf(&b, "route %s", r.Dst.Masked())
	if gw := r.Gateway(); gw.IsValid() {
		fmt.Fprintf(&b, " via %s", gw)
	}
	if r.Table == 0 {
		r.Table = TableMain
	}
	fmt.Fprintf(&b, " dev %s metric %d scope %d table %d", l.Name, r.Priority, r.Scope, r.Table)
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	if r.AdvMSS != 0 {
		fmt.Fprintf(&b, " advmss %d", r.AdvMSS)
	}
	return b.String()
}
