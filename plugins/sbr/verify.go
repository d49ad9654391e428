package sbr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Verify compares the rule of each address, the routes in its table, and the hints with the
// configuration.
func (c *Config) Verify(_ context.Context, s *chained.Session) error {
	ips, err := addresses(s)
	if err != nil {
		return err
	}
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	rules, err := s.Sandbox.Routes.Rules()
	if err != nil {
		return err
	}
	for _, ip := range ips {
		rule, ok := c.ruleOf(ip, rules)
		switch {
		case !ok && c.Table != nil:
			return fmt.Errorf("interface %s: expected a rule from %s lookup %d, found none",
				link.Name, single(ip), *c.Table)
		case !ok:
			return fmt.Errorf(
				"interface %s: expected a rule from %s that selects a table, found none", link.Name,
				single(ip))
		}
		if c.Table != nil {
			continue
		}
		if err := s.Sandbox.Routes.Check(link,
			expected(s.Prev.Routes, ip, c.via, rule.Table)); err != nil {
			return err
		}
	}
	if c.Table == nil && c.AddSourceHints {
		return checkHints(s, link, ips)
	}
	return nil
}

// expected returns the routes that the table of an address must have: its network, the default
// route, and the routes of the result through gateways in its network.
func expected(routes []cni.Route, ip cni.IP, gws gateways, table int) []kernel.Route {
	var list []kernel.Route
	if !ip.Address.IsSingleIP() {
		list = append(list, kernel.Route{Dst: ip.Address.Masked(), Table: table})
	}
	gw, chosen := gws.of(ip)
	if gw.IsValid() {
		want := kernel.Route{Dst: netip.PrefixFrom(ip.Address.Addr(), 0).Masked(), Table: table}
		if chosen {
			want.GW = gw
		}
		list = append(list, want)
	}
	for _, rt := range routes {
		if rt.Dst.Bits() > 0 && !rt.Table.Set && ip.Address.Masked().Contains(rt.GW) {
			list = append(list, kernel.Route{Dst: rt.Dst, GW: rt.GW, Table: table})
		}
	}
	return list
}

func checkHints(s *chained.Session, link kernel.Link, ips []cni.IP) error {
	main, err := s.Sandbox.Routes.All(kernel.TableMain)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		want := hint(ip)
		there := func(r kernel.Route) bool {
			return r.Link == link.Index && r.Dst == want.Dst && r.Src == want.Src
		}
		if !ip.Address.IsSingleIP() && !slices.ContainsFunc(main, there) {
			return fmt.Errorf("interface %s: expected a route %s, found none", link.Name, want)
		}
	}
	return nil
}
