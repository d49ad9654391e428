package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	plugin.Common
	Limits

	// ShapedSubnets restricts the limits to traffic with these networks; other traffic is not
	// limited.
	ShapedSubnets []netip.Prefix `json:"shapedSubnets"`

	// UnshapedSubnets exempts traffic with these networks from the limits. It cannot be combined
	// with shapedSubnets.
	UnshapedSubnets []netip.Prefix `json:"unshapedSubnets"`

	// RuntimeConfig has the limits that the runtime requests. They apply only if the configuration
	// has no limits.
	RuntimeConfig struct {
		Bandwidth Limits `json:"bandwidth"` // capability bandwidth
	} `json:"runtimeConfig"`
}

func (c *Config) limits() Limits {
	if c.Limits.given() {
		return c.Limits
	}
	return c.RuntimeConfig.Bandwidth
}

// Plugin is the definition of bandwidth.
var Plugin = chained.Define(plugin.Info{
	Name:  "bandwidth",
	About: "limits the rates at which a container sends and receives",
	Role:  plugin.RoleChained,
	Versions: slices.DeleteFunc(cni.Versions(), func(v cni.Version) bool {
		return v < cni.V030
	}),
	Capabilities: []string{"bandwidth"},
	Doc:          doc,
}, chained.Traits{
	Inside: true,
	NoPrev: chained.NoPrev{Check: "must be called as a chained plugin"},
}, func() chained.Decorator { return new(Config) })

// Validate refuses limits that the kernel cannot enforce, and contradictory subnets.
func (c *Config) Validate(call *plugin.Call) error {
	l := c.limits()
	if err := errors.Join(l.ingress().validate(), l.egress().validate()); err != nil {
		return err
	}
	return c.validateSubnets()
}

// Status returns an error if the kernel cannot limit traffic.
func (c *Config) Status(context.Context, *plugin.Call) error {
	return session.Lacking(kernel.FeatureIFB, kernel.FeatureShaping)
}

// Apply sets the limits and replaces the limits of an earlier ADD.
func (c *Config) Apply(ctx context.Context, s *chained.Session, r *cni.Result) error {
	// another ADD of the same attachment could undo these changes
	if err := s.Sandbox.Lock(ctx); err != nil {
		return err
	}
	dirs := c.directions(s.Attachment())
	if len(dirs) == 0 {
		return remove(s, s.Attachment())
	}
	end, err := hostEnd(s)
	if err != nil {
		return err
	}
	own, err := devices(s.Host, s.Attachment(), &end, allNames(s.Attachment())...)
	if err != nil {
		return err
	}
	others, err := s.Host.Qdiscs.FilterPriorities(end, leadTo(own))
	if err != nil {
		return err
	}
	var filters []kernel.Filter
	var used []int
	for _, dir := range dirs {
		on := end
		if dir.names != nil {
			if on, err = ensureDevice(s, end, dir.names); err != nil {
				return err
			}
			r.Interfaces = append(r.Interfaces, cni.Interface{Name: on.Name, MAC: on.MAC.String()})
			filters = append(filters, c.subnetFilters(dir.hook, freeBase(others), on.Index)...)
		}
		dir.warn(s, end.MTU)
		if err := s.Host.Qdiscs.SetTBF(on, dir.tbf(end.MTU)); err != nil {
			return err
		}
		if !on.Up {
			if err := s.Host.Links.Up(on); err != nil {
				return err
			}
		}
		used = append(used, on.Index)
	}
	return replace(s, end, used, filters)
}

// replace redirects packets of the host-side veth to the ifbs in use and deletes the rest.
func replace(s *chained.Session, end kernel.Link, used []int, filters []kernel.Filter) error {
	if !slices.Contains(used, end.Index) {
		if err := s.Host.Qdiscs.DeleteTBF(end); err != nil {
			return err
		}
	}
	own, err := devices(s.Host, s.Attachment(), &end, allNames(s.Attachment())...)
	if err != nil {
		return err
	}
	if err := s.Host.Qdiscs.SetFilters(end, leadTo(own), filters); err != nil {
		return err
	}
	for _, l := range own {
		if !slices.Contains(used, l.Index) {
			if err := s.Host.Links.Delete(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// leadTo selects the filters that redirect packets to one of the links. It also selects the
// attachment's filters that let packets pass, and filters without an existing target.
func leadTo(links []kernel.Link) func(kernel.Filter) bool {
	return func(f kernel.Filter) bool {
		return f.Target <= kernel.Pass || slices.ContainsFunc(links, func(l kernel.Link) bool {
			return l.Index == f.Target
		})
	}
}

// hostEnd returns the host-side veth of the container. An earlier plugin must have created it, so
// the previous result lists it, unless the result has no interfaces at all, as in the second
// example of version 0.3.1.
func hostEnd(s *chained.Session) (kernel.Link, error) {
	inside, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return inside, cni.Rephrase(err,
			"container interface %s has no veth peer: could not look up %q: Link not found",
			s.IfName, s.IfName)
	}
	end, err := s.Host.Links.Peer(inside)
	if err != nil {
		return end, cni.Errorf(cni.CodeInvalidConfig,
			"bandwidth can limit only veth interfaces, such as the interfaces of bridge and ptp: %w", err)
	}
	listed := func(i cni.Interface) bool { return i.Sandbox == "" && i.Name == end.Name }
	if len(s.Prev.Interfaces) == 0 || slices.ContainsFunc(s.Prev.Interfaces, listed) {
		return end, nil
	}
	return end, cni.Errorf(cni.CodeInvalidConfig,
		"no veth peer of container interface found in host ns").
		WithDetails(fmt.Sprintf("prevResult does not list interface %s of the host, the peer of %s",
			end.Name, s.IfName))
}

// Verify compares the limits in the kernel with the configuration.
func (c *Config) Verify(_ context.Context, s *chained.Session) error {
	dirs := c.directions(s.Attachment())
	if len(dirs) == 0 {
		return nil
	}
	end, err := hostEnd(s)
	if err != nil {
		return err
	}
	have, err := s.Host.Qdiscs.Filters(end)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		on := end
		if dir.names != nil {
			list, err := devices(s.Host, s.Attachment(), &end, dir.names...)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return fmt.Errorf("interface %s: expected an ifb %s, found none", end.Name,
					dir.names[0])
			}
			on = list[0]
			base := baseOf(slices.DeleteFunc(slices.Clone(have), func(f kernel.Filter) bool {
				return f.Target != on.Index
			}))
			for _, f := range c.subnetFilters(dir.hook, base, on.Index) {
				if !slices.Contains(have, f) {
					return fmt.Errorf("interface %s: expected a filter %s (%s), found %v", end.Name,
						f, on.Name, have)
				}
			}
		}
		if err := checkTBF(s.Host, on, dir.tbf(end.MTU)); err != nil {
			return err
		}
	}
	return nil
}

func checkTBF(host *kernel.Space, on kernel.Link, want kernel.TBF) error {
	if err := session.CheckUp(on); err != nil {
		return err
	}
	switch have, ok, err := host.Qdiscs.TBF(on); {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("interface %s: expected a tbf with %s, found none", on.Name, want)
	case !have.Same(want):
		err := fmt.Errorf("interface %s: expected a tbf with %s, found %s", on.Name, want, have)
		switch {
		case have.Rate != want.Rate:
			return cni.Rephrase(err, "Rate doesn't match")
		case have.Limit != want.Limit:
			return cni.Rephrase(err, "Limit doesn't match")
		}
		return cni.Rephrase(err, "Buffer doesn't match")
	}
	return nil
}
