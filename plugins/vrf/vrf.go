package vrf

import (
	"context"
	"errors"
	"fmt"
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

	// VRFName is the name of the VRF device in the container.
	VRFName string `json:"vrfname" required:"true"`

	// Table is the routing table of the VRF. 0 is the one that the VRF has or, if it has to be made, the first from 1 on that no
	// VRF of the container has, except 253 to 255.
	Table uint32 `json:"table" default:"0"`
}

// Plugin is the definition of vrf.
var Plugin = chained.Define(plugin.Info{
	Name:     "vrf",
	About:    "puts the container's interface into a VRF, with a routing table of its own",
	Role:     plugin.RoleChained,
	Versions: slices.DeleteFunc(cni.Versions(), func(v cni.Version) bool { return v < cni.V031 }),
	Doc:      doc,
}, chained.Traits{
	Contained: true,
	NoPrev:    chained.NoPrev{Add: "missing prevResult from earlier plugin"},
}, func() chained.Decorator { return new(Config) })

const kind = "vrf"

// Validate demands the name of an interface.
func (c *Config) Validate(*plugin.Call) error {
	if c.VRFName == "" {
		return cni.Errorf(cni.CodeInvalidConfig, "configuration is expected to have a valid vrf name").
			WithDetails(`"vrfname" is the name of the VRF device in the container`)
	}
	if err := cni.ValidateIfName(c.VRFName); err != nil {
		return cni.Errorf(cni.CodeInvalidConfig, "configuration is expected to have a valid vrf name: %w", err)
	}
	return nil
}

// Status reports whether the kernel has VRFs.
func (c *Config) Status(context.Context, *plugin.Call) error {
	return session.Lacking(kernel.FeatureVRF)
}

// Apply makes the interface a member of the VRF, which it makes if there is none.
func (c *Config) Apply(ctx context.Context, s *chained.Session, _ *cni.Result) error {
	links, err := s.Sandbox.Links.All()
	if err != nil {
		return err
	}
	vrf, err := c.find(links)
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return err
	}
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return cni.Rephrase(err, "cmdAdd failed: could not get link by name %s", s.IfName)
	}
	if link.Master != 0 && link.Master == vrf.Index { // an ADD before
		return verify(s, link, vrf)
	}
	if i := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Index == link.Master }); i >= 0 {
		return cni.Errorf(cni.CodeInvalidConfig, "cmdAdd failed: interface %s has already a master set: %s", link.Name, links[i].Name).
			WithDetails("an interface can be a member of one VRF or bridge only")
	}
	if vrf.Index == 0 {
		vrf, err = c.add(s, links)
		if err != nil {
			return err
		}
	}
	if err := s.Sandbox.Links.Up(vrf); err != nil {
		return err
	}
	return s.Sandbox.Routes.JoinVRF(ctx, link, vrf)
}

// find returns the VRF of the configuration. The error wraps [kernel.ErrNoLink] if there is no link of that name.
func (c *Config) find(links []kernel.Link) (kernel.Link, error) {
	i := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Name == c.VRFName })
	if i < 0 {
		return kernel.Link{}, kernel.ErrNoLink
	}
	switch vrf := links[i]; {
	case vrf.Kind != kind:
		return vrf, cni.Errorf(cni.CodeInvalidConfig, "cmdAdd failed: Netlink %s is not a VRF", vrf.Name).
			WithDetails(fmt.Sprintf("vrfname: %s is a %s", vrf.Name, vrf.Kind))
	case c.Table != 0 && vrf.VRFTable != int(c.Table):
		return vrf, cni.Errorf(cni.CodeInvalidConfig, "cmdAdd failed: VRF %s already exist with different routing table %d", vrf.Name, vrf.VRFTable).
			WithDetails("leave \"table\" out of the configuration, or give it that number")
	default:
		return vrf, nil
	}
}

func (c *Config) add(s *chained.Session, links []kernel.Link) (kernel.Link, error) {
	table := c.Table
	if table == 0 {
		table = freeTable(links)
	}
	return s.Sandbox.Links.Add(kernel.NewLink{Name: c.VRFName, Kind: kind, Table: table})
}

// freeTable returns the lowest table that no VRF has. Others who use a table do not count, as with the reference plugin.
func freeTable(links []kernel.Link) uint32 {
	used := map[int]bool{}
	for _, l := range links {
		used[l.VRFTable] = true
	}
	table := 1
	for used[table] || kernel.ReservedTable(table) {
		table++
	}
	return uint32(table)
}
