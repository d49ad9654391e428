package bandwidth

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// direction is one that has a limit.
type direction struct {
	limit
	hook  kernel.Hook // where the host's end sees its packets
	names []string    // that the ifb may have which the bucket is on; nil: it is on the host's end itself
}

// directions lists those that have a limit. What the container sends is received by the host's end, which can delay only
// what it sends: an ifb has the bucket. So it is for what the container receives if that is limited in part.
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

// Priorities of filters. One is for one family and one hook for ever: the kernel may remember it after the last filter is gone.
const (
	priorityAll = 1 + iota // without subnets
	priority4
	priority6
	priorityRest                // that is in no subnet
	priorities   = priorityRest // that a hook takes
)

// subnetFilters hand the packets that the limits are for to a link.
func (c *Config) subnetFilters(hook kernel.Hook, target int) (list []kernel.Filter) {
	add := func(priority uint16, m kernel.Match, target int) {
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
			add(priority, kernel.Match{Prefix: subnet.Masked(), Dst: hook == kernel.Ingress}, target) // of the other side
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
		return cni.Errorf(cni.CodeInvalidConfig, "shapedSubnets and unshapedSubnets exclude one another").
			WithDetails("shapedSubnets are the only networks with limits, unshapedSubnets the only ones without")
	}
	for _, subnet := range slices.Concat(c.ShapedSubnets, c.UnshapedSubnets) {
		if !subnet.IsValid() || subnet.Addr().Is4In6() {
			return cni.Errorf(cni.CodeInvalidConfig, "shapedSubnets, unshapedSubnets: %q is not a network", subnet).
				WithDetails("networks are written as 10.0.0.0/8 or fd00::/8")
		}
	}
	return nil
}
