package sbr

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// plan computes the routes of each address without changing anything.
type plan struct {
	link      kernel.Link
	ips       []cni.IP // all addresses of the interface
	gateways  gateways
	originals []kernel.StoredRoute // routes of the interface in the main table, now or earlier
}

// routes returns the contents of the table of an address: its routes and, if it has a gateway but
// no default route, a default route. A gateway of the configuration takes precedence over the
// existing default routes; their metric grows by one.
func (p plan) routes(ip cni.IP, table int) []kernel.StoredRoute {
	own := kernel.Route{Priority: kernel.DefaultMetric6, Table: table}
	var list, defaults []kernel.StoredRoute
	if ip.Address.Addr().Is4() {
		own.Priority = 0
	} else {
		list = append(list, kernel.OwnRoute(p.link,
			kernel.Route{Dst: kernel.LinkLocal, Priority: linkLocalMetric, Table: table}))
	}
	for _, r := range p.originals {
		switch {
		case !p.goWith(ip, r):
		case isDefault(r):
			defaults = append(defaults, r.In(table))
		default:
			list = append(list, r.In(table))
		}
	}
	var chosen bool
	own.GW, chosen = p.gateways.of(ip)
	if len(defaults) > 0 {
		best := slices.MinFunc(defaults, func(a, b kernel.StoredRoute) int {
			return a.Priority - b.Priority
		})
		if !chosen || slices.Equal(best.Gateways(), []netip.Addr{own.GW}) {
			return append(list, defaults...)
		}
		own.Priority, own.MTU, own.AdvMSS = best.Priority, best.MTU, best.AdvMSS
	}
	if own.GW.IsValid() {
		own.Dst = netip.PrefixFrom(ip.Address.Addr(), 0)
		list = append(list, kernel.OwnRoute(p.link, own))
	}
	for _, r := range defaults {
		list = append(list, r.WithPriority(r.Priority+1))
	}
	return list
}

// originals returns the routes in the table of an address as they were in the main table; it is the
// inverse of [plan.routes].
func originals(filled []kernel.StoredRoute) []kernel.StoredRoute {
	behind := slices.ContainsFunc(filled, func(r kernel.StoredRoute) bool {
		return r.Own() && isDefault(r)
	})
	var list []kernel.StoredRoute
	for _, r := range filled {
		if r.Own() {
			continue
		}
		if behind && isDefault(r) {
			r = r.WithPriority(max(r.Priority-1, 0))
		}
		list = append(list, r.In(kernel.TableMain))
	}
	return list
}

// goWith reports whether a route belongs in the table of an address: if that address claims the
// route, or if no address does. Unclaimed are routes on the link without a source, and routes
// through a link-local gateway from router advertisements.
func (p plan) goWith(ip cni.IP, r kernel.StoredRoute) bool {
	if ip.Address.Addr().Is4() != r.Dst.Addr().Is4() {
		return false
	}
	return claims(ip, r) || !slices.ContainsFunc(p.ips, func(ip cni.IP) bool {
		return claims(ip, r)
	})
}

// claims reports whether the source or a gateway of a route is in the network of an address, or
// equals its gateway.
func claims(ip cni.IP, r kernel.StoredRoute) bool {
	mine := func(a netip.Addr) bool { return ip.Address.Masked().Contains(a) || a == ip.Gateway }
	return r.Src.IsValid() && mine(r.Src) || slices.ContainsFunc(r.Gateways(), mine)
}

// The link-local network stays in the main table, and a copy is in the table of each IPv6 address:
// programs that send to a link-local address name the interface, and no rule matches link-local
// sources. The kernel adds its own route whenever the carrier appears.
const linkLocalMetric = 256 // like the kernel's (IP6_RT_PRIO_ADDRCONF)

func isDefault(r kernel.StoredRoute) bool { return r.Dst.Bits() == 0 }

// in returns the routes in a table.
func in(all []kernel.StoredRoute, table int) []kernel.StoredRoute {
	return slices.DeleteFunc(slices.Clone(all), func(r kernel.StoredRoute) bool {
		return r.Table != table
	})
}

// movable returns the routes that leave the main table. Routes of a family without an address stay.
func movable(all []kernel.StoredRoute, ips []cni.IP) []kernel.StoredRoute {
	return slices.DeleteFunc(in(all, kernel.TableMain), func(r kernel.StoredRoute) bool {
		same := func(ip cni.IP) bool { return ip.Address.Addr().Is4() == r.Dst.Addr().Is4() }
		return r.Own() || r.Dst == kernel.LinkLocal || !slices.ContainsFunc(ips, same)
	})
}

// without returns the routes that equal none of the others.
func without(routes, others []kernel.StoredRoute) []kernel.StoredRoute {
	return slices.DeleteFunc(slices.Clone(routes), func(r kernel.StoredRoute) bool {
		return slices.ContainsFunc(others, r.Same)
	})
}
