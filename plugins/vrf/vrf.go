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

	// Table is the routing table of the VRF. With 0, an existing VRF keeps its table, and a new one
	// gets the first table, from 1 on, that no other VRF of the container has. Tables 253 to 255
	// are never chosen.
	Table uint32 `json:"table" default:"0"`
}

// Plugin is the definition of vrf.
var Plugin = chained.Define(plugin.Info{
	Name:     "vrf",
	About:    "puts the container's interface into a VRF, with its own routing table",
	Role:     plugin.RoleChained,
	Versions: slices.DeleteFunc(cni.Versions(), func(v cni.Version) bool { return v < cni.V031 }),
	Doc:      doc,
}, chained.Traits{
	Contained: true,
	NoPrev:    chained.NoPrev{Add: "missing prevResult from earlier plugin"},
}, func() chained.Decorator { return new(Config) })

const kind = "vrf"

// Validate requires a valid interface name.
func (c *Config) Validate(*plugin.Call) error {
	if c.VRFName == "" {
		return cni.Errorf(cni.CodeInvalidConfig,
			"configuration is expected to have a valid vrf name").
			WithDetails(`"vrfname" must be the name of a VRF device in the container`)
	}
	if err := cni.ValidateIfName(c.VRFName); err != nil {
		return cni.Errorf(cni.CodeInvalidConfig,
			"configuration is expected to have a valid vrf name: %w", err)
	}
	return nil
}

// Status returns an error if the kernel lacks VRFs.
func (c *Config) Status(context.Context, *plugin.Call) error {
	return session.Lacking(kernel.FeatureVRF)
}

// Apply makes the interface a member of the VRF, and creates the VRF if necessary.
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
	if link.Master != 0 && link.Master == vrf.Index { // an earlier ADD succeeded
		return verify(s, link, vrf)
	}
	if i := slices.IndexFunc(links, func(l kernel.Link) bool {
		return l.Index == link.Master
	}); i >= 0 {
		return cni.Errorf(cni.CodeInvalidConfig,
			"cmdAdd failed: interface %s has already a master set: %s", link.Name, links[i].Name).
			WithDetails("an interface can have only one master; use another interface")
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

// find returns the VRF of the configuration. The error wraps [kernel.ErrNoLink] if no link has that
// name.
func (c *Config) find(links []kernel.Link) (kernel.Link, error) {
	i := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Name == c.VRFName })
	if i < 0 {
		return kernel.Link{}, kernel.ErrNoLink
	}
	switch vrf := links[i]; {
	case vrf.Kind != kind:
		return vrf, cni.Errorf(cni.CodeInvalidConfig, "cmdAdd failed: Netlink %s is not a VRF",
			vrf.Name).
			WithDetails(fmt.Sprintf("vrfname: %s is a %s", vrf.Name, vrf.Kind))
	case c.Table != 0 && vrf.VRFTable != int(c.Table):
		return vrf, cni.Errorf(cni.CodeInvalidConfig,
			"cmdAdd failed: VRF %s already exist with different routing table %d", vrf.Name,
			vrf.VRFTable).
			WithDetails("remove \"table\", or set it to the table of the VRF")
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

// freeTable returns the lowest table that no VRF has. Like upstream, it ignores other uses of a
// table.
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
