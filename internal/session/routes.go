package session

import (
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// What the kernel cuts route metrics down to (ip_metrics_convert in net/ipv4/metrics.c).
const (
	maxRouteMTU    = 65535 - 15
	maxRouteAdvMSS = 65535 - 40
)

// Route is a route of a result as the kernel has it.
func Route(rt cni.Route) kernel.Route {
	return kernel.Route{
		Dst: rt.Dst, GW: rt.GW, Priority: rt.Priority, Table: rt.Table.Value, Scope: rt.Scope.Value,
		MTU: min(rt.MTU, maxRouteMTU), AdvMSS: min(rt.AdvMSS, maxRouteAdvMSS),
	}
}

// PrevRoutes are the routes that the container's interface has according to the previous result, for
// [kernel.Routes.Check]: to the networks of its addresses, and the routes of the result that the kernel accepts.
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
