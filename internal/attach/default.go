package attach

import (
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Common is the part of a configuration that every plugin with an interface has. Configuration types embed it.
type Common struct {
	plugin.Common
	defaults

	// SecondDefaultRoute is what becomes of a default route where the container has one of another network, with the same
	// metric: "metric" gives it the next metric that is free, which the result has as priority; "refuse" fails with code 7.
	SecondDefaultRoute SecondDefaultRoute `json:"secondDefaultRoute" enum:"metric,refuse" default:"metric"`
}

func (c *Common) attachCommon() *Common { return c }

// SecondDefaultRoute is a rule for the default routes of several networks. Without one IPv6 would spread what the
// container sends over all of them, and IPv4 give it to the last.
//
// There is no rule that lets the later route take the place of the first: DEL could not put that back, as it has to do
// without namespace and memory, and CHECK of the first network would fail meanwhile. Who wants the later network to win
// gives the route of the first one a metric ("priority").
type SecondDefaultRoute string

// The rules.
const (
	SecondDefaultMetric SecondDefaultRoute = "metric" // it gets the next metric that is free; the result says which
	SecondDefaultRefuse SecondDefaultRoute = "refuse" // ADD fails
)

func (rule SecondDefaultRoute) validate() error {
	switch rule {
	case "", SecondDefaultMetric, SecondDefaultRefuse:
		return nil
	}
	return cni.Errorf(cni.CodeInvalidConfig, "secondDefaultRoute: %q is neither %q nor %q", rule, SecondDefaultMetric, SecondDefaultRefuse)
}

// settleDefaults applies the rule to the default routes of the result. Several of them are one another's alternatives,
// and stay together.
func (s *Session) settleDefaults(link kernel.Link, r *cni.Result) error {
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
		s.Log.Info("the container has a default route already: this one gets a higher metric", "dst", rt.Dst, "priority", rt.Priority)
	}
	return nil
}

// slot is what no two default routes through different links may have in common.
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
	return cni.Errorf(cni.CodeInvalidConfig, "default route through %s: the container has one through %s (%s)", link.Name, other, first).
		WithDetails(`secondDefaultRoute "metric" lets both exist; so does a "priority" of their own`)
}
