package hostdevice

import (
	"context"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// hostNetwork is the configuration of a device in the host, which the kernel discards when the
// device leaves the host.
type hostNetwork struct {
	addresses []netip.Prefix
	routes    []kernel.StoredRoute
	rules     []kernel.PolicyRule
}

func readHostNetwork(host *kernel.Space, l kernel.Link) (*hostNetwork, error) {
	var n hostNetwork
	var err error
	if n.addresses, err = host.Addrs.Global(l); err != nil {
		return nil, err
	}
	if n.routes, err = host.Routes.Stored(l); err != nil {
		return nil, err
	}
	n.routes = slices.DeleteFunc(n.routes, func(r kernel.StoredRoute) bool {
		return r.Derived() || r.Table == unix.RT_TABLE_LOCAL || r.Dst.Addr().Is6() &&
			r.Dst.Addr().IsLinkLocalUnicast()
	})
	if n.rules, err = host.Routes.Rules(); err != nil {
		return nil, err
	}
	n.rules = slices.DeleteFunc(n.rules, func(r kernel.PolicyRule) bool { return !n.uses(r) })
	return &n, nil
}

// uses reports whether a rule leads packets from one of the addresses to a table of the routes.
func (n *hostNetwork) uses(r kernel.PolicyRule) bool {
	return r.Src.IsValid() &&
		slices.ContainsFunc(n.addresses, func(a netip.Prefix) bool { return r.Src.Contains(a.Addr()) }) &&
		slices.ContainsFunc(n.routes, func(x kernel.StoredRoute) bool { return x.Table == r.Table })
}

// Amend puts the addresses of the device in the host before the addresses from IPAM.
func (c *Config) Amend(s *attach.Session, r *cni.Result) error {
	if c.host == nil {
		return nil
	}
	index, _ := r.Sandboxed(s.IfName, s.Netns)
	var own []cni.IP
	for _, a := range c.host.addresses {
		own = append(own, cni.IP{Address: a, Interface: cni.Some(index)})
	}
	r.IPs = slices.Concat(own, r.IPs)
	return nil
}

// Finish adds the routes and rules of the device in the host to the container.
func (c *Config) Finish(_ context.Context, s *attach.Session, r *cni.Result) error {
	if c.host == nil {
		return nil
	}
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	var list []cni.Route
	for _, x := range c.host.routes {
		in, err := x.On(link.Index)
		if err != nil {
			return cni.Errorf(cni.CodeUnsupportedField, "useInterfaceNetwork: %w", err).
				WithDetails("give the route in the host its next hops directly, or omit useInterfaceNetwork")
		}
		if err := s.Sandbox.Routes.Restore(link, in); err != nil {
			return err
		}
		list = append(list, results(x)...)
	}
	r.Routes = slices.Concat(list, r.Routes)
	have, err := s.Sandbox.Routes.Rules()
	if err != nil {
		return err
	}
	for _, rule := range c.host.rules {
		same := func(o kernel.PolicyRule) bool { return sameRule(o, rule) }
		switch {
		case slices.ContainsFunc(have, same):
		case rule.More:
			s.Log.Warn("a policy rule with other conditions than the source stays in the host only",
				"rule", rule)
		default:
			if err := s.Sandbox.Routes.AddRule(rule); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameRule reports whether two rules select the same table for the same packets.
func sameRule(a, b kernel.PolicyRule) bool {
	return a.Src == b.Src && a.Table == b.Table && a.Priority == b.Priority && a.More == b.More
}

// dropRules removes the rules that Finish has added to the container. They do not go with the
// device.
func (x *loan) dropRules(space *kernel.Space) error {
	if len(x.Rules) == 0 {
		return nil
	}
	have, err := space.Routes.Rules()
	if err != nil {
		return err
	}
	for _, rule := range have {
		same := func(o kernel.PolicyRule) bool { return sameRule(o, rule) }
		if rule.Protocol == kernel.Protocol && slices.ContainsFunc(x.Rules, same) {
			if err := space.Routes.DeleteRule(rule); err != nil {
				return err
			}
		}
	}
	return nil
}

// results returns the entries of a result for a route, one for each gateway.
func results(x kernel.StoredRoute) (list []cni.Route) {
	r := cni.Route{Dst: x.Dst, Priority: x.Priority}
	if x.Table != kernel.TableMain {
		r.Table = cni.Some(x.Table)
	}
	if x.Scope != 0 && x.Dst.Addr().Is4() {
		r.Scope = cni.Some(x.Scope)
	}
	for _, gw := range x.Gateways() {
		r.GW = gw
		list = append(list, r)
	}
	if list == nil {
		list = append(list, r)
	}
	return list
}
