package sbr

import (
	"context"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// move creates a table for each address, with its routes, and then removes the routes from the main
// table. Until a table has a route, the main table keeps it.
func (c *Config) move(
	ctx context.Context, s *chained.Session, link kernel.Link, ips []cni.IP,
	rules []kernel.PolicyRule,
) error {
	all, err := s.Sandbox.Routes.Stored(link)
	if err != nil {
		return err
	}
	tables, err := c.reusable(s, link, ips, rules)
	if err != nil {
		return err
	}
	p := plan{link: link, ips: ips, gateways: c.via, originals: gather(all, ips, tables)}
	c.via.warn(s, ips)
	free, err := s.Sandbox.Routes.FreeTables(len(ips) - len(tables))
	if err != nil {
		return err
	}
	for _, ip := range ips {
		table, ok := tables[ip.Address.Addr()]
		if !ok {
			table, free = free[0], free[1:]
			if err := s.Sandbox.Routes.AddRule(kernel.PolicyRule{Src: single(ip),
				Table: table}); err != nil {
				return err
			}
		}
		if err := fill(s, link, in(all, table), p.routes(ip, table)); err != nil {
			return err
		}
	}
	leaving := movable(all, ips)
	if c.AddSourceHints {
		if err := addHints(ctx, s, link, ips, in(all, kernel.TableMain)); err != nil {
			return err
		}
		leaving = slices.DeleteFunc(leaving, func(r kernel.StoredRoute) bool {
			return r.Scope == kernel.ScopeLink
		})
	}
	return take(s, link, leaving)
}

// reusable returns the tables that rules of an earlier ADD select for the addresses: tables with a
// route through the interface, and empty ones.
func (c *Config) reusable(
	s *chained.Session, link kernel.Link, ips []cni.IP, rules []kernel.PolicyRule,
) (map[netip.Addr]int, error) {
	routes, err := s.Sandbox.Routes.All(kernel.AllTables)
	if err != nil {
		return nil, err
	}
	filled, mine := map[int]bool{}, map[int]bool{}
	for _, r := range routes {
		filled[r.Table] = true
		mine[r.Table] = mine[r.Table] || r.Link == link.Index
	}
	tables := map[netip.Addr]int{}
	for _, ip := range ips {
		rule, ok := c.ruleOf(ip, rules)
		if ok && rule.Protocol == kernel.Protocol && !kernel.ReservedTable(rule.Table) &&
			(mine[rule.Table] || !filled[rule.Table]) {
			tables[ip.Address.Addr()] = rule.Table
		}
	}
	return tables, nil
}

// gather returns the routes of the interface: routes in the main table, and routes that an earlier
// ADD has moved from there, unless the main table has a new route to the same destination.
func gather(
	all []kernel.StoredRoute, ips []cni.IP, tables map[netip.Addr]int,
) []kernel.StoredRoute {
	main := movable(all, ips)
	list := slices.Clone(main)
	for _, ip := range ips {
		moved := originals(in(all, tables[ip.Address.Addr()]))
		moved = slices.DeleteFunc(moved, func(r kernel.StoredRoute) bool {
			return slices.ContainsFunc(main, func(m kernel.StoredRoute) bool {
				return m.Dst == r.Dst && m.Priority == r.Priority
			})
		})
		list = append(list, without(moved, list)...)
	}
	return list
}

// fill makes the contents of a table equal to want.
func fill(s *chained.Session, link kernel.Link, have, want []kernel.StoredRoute) error {
	if err := take(s, link, without(have, want)); err != nil {
		return err
	}
	for _, r := range without(want, have) {
		if err := s.Sandbox.Routes.Restore(link, r); err != nil {
			return err
		}
	}
	return nil
}

func take(s *chained.Session, link kernel.Link, routes []kernel.StoredRoute) error {
	// later routes depend on earlier ones for their gateways
	for _, r := range slices.Backward(routes) {
		if err := s.Sandbox.Routes.Remove(link, r); err != nil {
			return err
		}
	}
	return nil
}

// addHints adds routes to the networks of the addresses to the main table, with the addresses as
// sources.
func addHints(
	ctx context.Context, s *chained.Session, link kernel.Link, ips []cni.IP,
	main []kernel.StoredRoute,
) error {
	if err := s.Sandbox.Addrs.WaitDAD(ctx, link); err != nil {
		return err
	}
	var hints []kernel.StoredRoute
	for _, ip := range ips {
		if !ip.Address.IsSingleIP() {
			hints = append(hints, kernel.OwnRoute(link, hint(ip)))
		}
	}
	for _, r := range without(hints, main) {
		if err := s.Sandbox.Routes.Restore(link, r); err != nil {
			return err
		}
	}
	return nil
}

func hint(ip cni.IP) kernel.Route {
	r := kernel.Route{Dst: ip.Address.Masked(), Src: ip.Address.Addr(), Table: kernel.TableMain}
	if r.Src.Is4() {
		r.Scope = kernel.ScopeLink
	} else {
		r.Priority = kernel.DefaultMetric6
	}
	return r
}
