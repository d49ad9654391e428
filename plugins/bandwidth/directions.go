package bandwidth

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// direction is a direction with a limit.
type direction struct {
	limit
	hook  kernel.Hook // where the host-side veth sees these packets
	names []string    // possible names of the ifb; nil if the host-side veth has the token bucket
}

// directions returns the directions that have a limit. A link can delay only packets that it sends,
// but the host-side veth receives the packets that the container sends. Their token bucket is
// therefore on an ifb. Packets that the container receives also pass an ifb if the limit applies to
// some networks only.
func (c *Config) directions(a cni.Attachment) (list []direction) {
	limits := c.limits()
	if in := limits.ingress(); !in.unlimited() {
		d := direction{limit: in, hook: kernel.Egress}
		if len(c.ShapedSubnets)+len(c.UnshapedSubnets) > 0 {
			d.names = ingressNames(a)
		}
		list = append(list, d)
	}
	if out := limits.egress(); !out.unlimited() {
		list = append(list, direction{limit: out, hook: kernel.Ingress, names: egressNames(a)})
	}
	return list
}

// Priorities of filters, relative to a base. Each has one family and one hook permanently, because
// the kernel may remember them after the last filter is gone.
const (
	priorityAll = 1 + iota // without subnets
	priority4
	priority6
	priorityRest                // packets in none of the subnets
	priorities   = priorityRest // number of priorities of a hook
)

// bases are the possible bases of priorities, the preferred one first. All priorities of a link
// have the same base. They are high, because agents with eBPF programs, such as Cilium, need
// priority 1 for themselves and come first. The kernel assigns priorities from 0xc000 on down.
var bases = []uint16{0xff00, 0xfe00, 0xfd00, 0xfc00, 0xfb00, 0xfa00, 0xf900, 0xf800}

// lowBase is the base of the filters that Tenon set before it had bases.
const lowBase = 0

// freeBase returns the first base whose priorities no other filter has, or the preferred base.
func freeBase(others []uint16) uint16 {
	i := slices.IndexFunc(bases, func(base uint16) bool {
		return !slices.ContainsFunc(others, func(p uint16) bool {
			return base < p && p <= base+2*priorities
		})
	})
	return bases[max(i, 0)]
}

// baseOf returns the base of existing filters: the base of the first filter whose priority has one,
// or the preferred base.
func baseOf(filters []kernel.Filter) uint16 {
	for _, f := range filters {
		for _, base := range append([]uint16{lowBase}, bases...) {
			if base < f.Priority && f.Priority <= base+2*priorities {
				return base
			}
		}
	}
	return bases[0]
}

// subnetFilters returns the filters that redirect the packets with a limit to a link.
func (c *Config) subnetFilters(hook kernel.Hook, base uint16, target int) (list []kernel.Filter) {
	add := func(priority uint16, m kernel.Match, target int) {
		priority += base
		if hook == kernel.Egress {
			priority += priorities
		}
		f := kernel.Filter{Hook: hook, Priority: priority, Match: m, Target: target}
		if !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	addSubnets := func(subnets []netip.Prefix, target int) {
		for _, subnet := range subnets {
			priority := uint16(priority4)
			if subnet.Addr().Is6() {
				priority = priority6
			}
			// the remote address
			add(priority, kernel.Match{Prefix: subnet.Masked(), Dst: hook == kernel.Ingress},
				target)
		}
	}
	switch {
	case len(c.ShapedSubnets) > 0:
		addSubnets(c.ShapedSubnets, target)
	case len(c.UnshapedSubnets) > 0:
		addSubnets(c.UnshapedSubnets, kernel.Pass)
		add(priorityRest, kernel.Match{}, target)
	default:
		add(priorityAll, kernel.Match{}, target)
	}
	return list
}

func (c *Config) validateSubnets() error {
	if len(c.ShapedSubnets) > 0 && len(c.UnshapedSubnets) > 0 {
		return cni.Errorf(cni.CodeInvalidConfig,
			"shapedSubnets and unshapedSubnets cannot be combined").
			WithDetails(
				"use shapedSubnets to limit only these networks, or unshapedSubnets to limit " +
					"all others")
	}
	for _, subnet := range slices.Concat(c.ShapedSubnets, c.UnshapedSubnets) {
		if !subnet.IsValid() || subnet.Addr().Is4In6() {
			return cni.Errorf(cni.CodeInvalidConfig,
				"shapedSubnets, unshapedSubnets: %q is not a network", subnet).
				WithDetails("write networks as 10.0.0.0/8 or fd00::/8")
		}
	}
	return nil
}
