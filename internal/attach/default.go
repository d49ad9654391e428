package attach

import (
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Common is the part of a configuration that all interface plugins share. Configuration types embed
// it.
type Common struct {
	plugin.Common
	defaults

	// SecondDefaultRoute applies to a default route if the container already has a default route of
	// another network with the same metric. "metric" gives the new route the next free metric and
	// reports it as priority in the result; "refuse" fails with code 7.
	SecondDefaultRoute SecondDefaultRoute `json:"secondDefaultRoute" enum:"metric,refuse" default:"metric"`
}

func (c *Common) attachCommon() *Common { return c }

// SecondDefaultRoute is a policy for default routes of several networks. Without one, IPv6 would
// spread the container's packets over all routes, and IPv4 would send them through the last.
//
// No policy replaces the first route by the later one. DEL could not restore the first, because it
// must work without namespace and stored state, and CHECK of the first network would fail
// meanwhile. To make the later network win, give the route of the first one a metric ("priority").
type SecondDefaultRoute string

// The policies.
const (
	SecondDefaultMetric SecondDefaultRoute = "metric" // with the next free metric, as the result says
	SecondDefaultRefuse SecondDefaultRoute = "refuse" // ADD fails
)

func (rule SecondDefaultRoute) validate() error {
	switch rule {
	case "", SecondDefaultMetric, SecondDefaultRefuse:
		return nil
	}
	return cni.Errorf(cni.CodeInvalidConfig, "secondDefaultRoute: %q is unknown; use %q or %q", rule, SecondDefaultMetric, SecondDefaultRefuse)
}

// applySecondDefault applies the policy to the default routes of the result. Several default routes
// of one network are alternatives and stay together.
func (s *Session) applySecondDefault(link kernel.Link, r *cni.Result) error {
	if !slices.ContainsFunc(r.Routes, func(rt cni.Route) bool { return rt.Dst.Bits() == 0 }) {
		return nil
	}
	all, err := s.Sandbox.Routes.All(kernel.AllTables)
	if err != nil {
		return err
	}
	taken := map[slot]kernel.Route{}
	for _, rt := range all {
		if rt.Dst.Bits() == 0 && rt.Link != link.Index {
			taken[slotOf(rt)] = rt
		}
	}
	for i := range r.Routes {
		rt := &r.Routes[i]
		at := slotOf(session.Route(*rt))
		first, conflict := taken[at]
		if rt.Dst.Bits() != 0 || !conflict {
			continue
		}
		if s.secondDefault == SecondDefaultRefuse {
			return s.refuseDefault(link, first)
		}
		for conflict {
			at.metric++
			_, conflict = taken[at]
		}
		rt.Priority = at.metric
		s.Log.Info("the container already has a default route: adding this one with a higher metric", "dst", rt.Dst, "priority", rt.Priority)
	}
	return nil
}

// slot contains the properties that default routes through different links must not share.
type slot struct {
	is4           bool
	table, metric int
}

func slotOf(r kernel.Route) slot {
	s := slot{is4: r.Dst.Addr().Is4(), table: r.Table, metric: r.Priority}
	if s.table == 0 {
		s.table = kernel.TableMain
	}
	if s.metric == 0 && !s.is4 {
		s.metric = kernel.DefaultMetric6
	}
	return s
}

func (s *Session) refuseDefault(link kernel.Link, first kernel.Route) error {
	other := fmt.Sprintf("interface %d", first.Link)
	if l, err := s.Sandbox.Links.ByIndex(first.Link); err == nil {
		other = "interface " + l.Name
	}
	return cni.Errorf(cni.CodeInvalidConfig, "default route through %s: the container already has one through %s (%s)", link.Name, other, first).
		WithDetails(`set secondDefaultRoute to "metric", or give the route a "priority"`)
}
