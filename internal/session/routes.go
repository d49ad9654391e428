package session

import (
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// The kernel's limits for route metrics; it truncates larger values (ip_metrics_convert in
// net/ipv4/metrics.c).
const (
	maxRouteMTU    = 65535 - 15
	maxRouteAdvMSS = 65535 - 40
)

// Route returns a route of a result in the kernel's form.
func Route(rt cni.Route) kernel.Route {
	return kernel.Route{
		Dst: rt.Dst, GW: rt.GW, Priority: rt.Priority, Table: rt.Table.Value, Scope: rt.Scope.Value,
		MTU: min(rt.MTU, maxRouteMTU), AdvMSS: min(rt.AdvMSS, maxRouteAdvMSS),
	}
}

// PrevRoutes returns the routes that the container's interface must have according to the previous
// result, for [kernel.Routes.Check]: the routes to the networks of its addresses, and the routes of
// the result that the kernel supports.
func (s *Session) PrevRoutes() []kernel.Route {
	var list []kernel.Route
	for _, ip := range s.PrevIPs() {
		if !ip.Address.IsSingleIP() {
			list = append(list, kernel.Route{Dst: ip.Address.Masked()})
		}
	}
	for _, rt := range s.Prev.Routes {
		want := Route(rt)
		if !want.Possible() {
			continue
		}
		if want.Dst.Bits() == 0 {
			want.GW = netip.Addr{} // a later plugin may have chosen another
		}
		list = append(list, want)
	}
	return list
}
