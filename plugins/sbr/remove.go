package sbr

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Remove removes the rules of the interface and moves its remaining routes back to the main table.
func (c *Config) Remove(_ context.Context, s *chained.Session, _ chained.Gone) error {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return err
	}
	rules, err := s.Sandbox.Routes.Rules()
	if err != nil {
		return err
	}
	all, err := s.Sandbox.Routes.Stored(link)
	if err != nil {
		return err
	}
	mine, err := owned(s, link)
	if err != nil {
		return err
	}
	// 0: the table of the configuration could not be read
	another := func(r kernel.PolicyRule) bool {
		return c.Table != nil && *c.Table != 0 && *c.Table != r.Table
	}
	var errs []error
	for _, rule := range rules {
		if rule.More || !rule.Src.IsSingleIP() || !mine(rule) || another(rule) {
			continue
		}
		if c.Table == nil && rule.Protocol == kernel.Protocol && !kernel.ReservedTable(rule.Table) {
			if err := moveBack(s, link, in(all, rule.Table)); err != nil {
				errs = append(errs, err)
				continue // the next DEL finds the table by this rule
			}
		}
		errs = append(errs, s.Sandbox.Routes.DeleteRule(rule))
	}
	hints := slices.DeleteFunc(in(all, kernel.TableMain), func(r kernel.StoredRoute) bool {
		return !r.Own()
	})
	return errors.Join(append(errs, take(s, link, hints))...)
}

// moveBack moves the routes in the table of an address to the main table. Routes that the kernel
// refuses, for example because they depend on a missing route, are logged and dropped.
func moveBack(s *chained.Session, link kernel.Link, filled []kernel.StoredRoute) error {
	for _, r := range originals(filled) {
		err := s.Sandbox.Routes.Restore(link, r)
		if session.Refused(err) {
			s.Log.Warn("cannot restore a route in the main table", "error", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return take(s, link, filled)
}

// owned returns a function that reports whether a rule belongs to this interface. It does if its
// source is an address of the interface or, if no other interface has that address, an address in
// the previous result. A rule of this plugin for an address that no interface has is left from a
// deleted interface, unless its table has routes through another interface.
func owned(s *chained.Session, link kernel.Link) (func(kernel.PolicyRule) bool, error) {
	own, others := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	links, err := s.Sandbox.Links.All()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		addrs, err := s.Sandbox.Addrs.Of(l)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			own[a.Addr()] = own[a.Addr()] || l.Index == link.Index
			others[a.Addr()] = others[a.Addr()] || l.Index != link.Index
		}
	}
	if s.Prev != nil {
		ips, _ := addresses(s) // an error means no address
		for _, ip := range ips {
			a := ip.Address.Addr()
			own[a] = own[a] || !others[a]
		}
	}
	routes, err := s.Sandbox.Routes.All(kernel.AllTables)
	if err != nil {
		return nil, err
	}
	elsewhere := map[int]bool{} // tables with routes through other interfaces
	for _, r := range routes {
		elsewhere[r.Table] = elsewhere[r.Table] || r.Link != link.Index
	}
	return func(r kernel.PolicyRule) bool {
		a := r.Src.Addr()
		return own[a] || !others[a] && r.Protocol == kernel.Protocol && !elsewhere[r.Table]
	}, nil
}
