package vlan

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common
	attach.Segment

	// Master is the interface that carries the VLAN: its parent, by name or alternative name.
	Master string `json:"master" required:"true"`

	// VLANID is the ID of the VLAN. A parent has each only once, and so only one container can have it.
	VLANID int `json:"vlanId" min:"0" max:"4094"`

	// MTU is in bytes and not above that of the parent; 0 is that of the parent.
	MTU int `json:"mtu" min:"0"`

	// LinkInContainer says that the parent is an interface of the container, not of the host.
	LinkInContainer bool `json:"linkInContainer"`
}

// Plugin is the definition of vlan.
var Plugin = attach.Define(plugin.Info{
	Name:  "vlan",
	About: "gives a container a VLAN of an interface of the host",
	Doc:   doc,
}, attach.Traits{
	Kind: "vlan",
	DNS:  attach.DNSOfConfiguration,
	Texts: attach.Texts{
		NoPrev: "vlan: Required prevResult missing",
		NoLink: "vlan: Container Interface name in prevResult: %s not found",
		MAC:    "vlan: Interface %s Mac %s doesn't match container Mac: %s",
	},
}, func() attach.Maker { return new(Config) })

const maxID = 4094

// Validate refuses what cannot become a VLAN with addresses. What depends on the parent is for Make.
func (c *Config) Validate(call *plugin.Call) error {
	switch {
	case c.Master == "":
		return cni.Errorf(cni.CodeInvalidConfig, `"master" field is required. It specifies the host interface name to create the VLAN for`).
			WithDetails("it has no default; ip link shows the interfaces there are")
	case c.VLANID < 0 || c.VLANID > maxID:
		return cni.Errorf(cni.CodeInvalidConfig, "invalid VLAN ID %d (must be between 0 and 4095 inclusive)", c.VLANID).
			WithDetails(fmt.Sprintf("vlanId: the highest VLAN ID is %d", maxID))
	case call.IPAM.Type == "":
		return cni.Errorf(cni.CodeInvalidConfig, "no plugin name provided").
			WithDetails("vlan needs ipam: its interface has addresses; bridge is for VLANs without address management")
	}
	return nil
}

// Status looks for the parent.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	return attach.ParentStatus(ctx, call, c.Master, c.LinkInContainer)
}

// Make makes the VLAN.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	parent, space, err := s.Parent(c.Master, c.LinkInContainer)
	if err != nil {
		return nil, err
	}
	if err := attach.CheckMTU(c.MTU, parent); err != nil {
		return nil, err
	}
	link, err := s.AddLink(kernel.NewLink{
		Kind: "vlan", MTU: c.MTU, VLAN: uint16(c.VLANID), Parent: parent, ParentSpace: space,
	})
	return s.Made(link, told(err))
}

// told says who has the VLAN, if that is why it could not be made.
func told(err error) error {
	var inUse *kernel.VLANInUseError
	if !errors.As(err, &inUse) {
		return err
	}
	holder := "in another network namespace"
	switch _, ours := cni.ParseTag(inUse.Link.Alias); {
	case ours:
		holder = session.Holder(inUse.Link.Alias)
	case inUse.Here:
		holder = "interface " + inUse.Link.Name + " beside it"
	case inUse.Link.Name != "":
		holder = "interface " + inUse.Link.Name + " " + holder
	}
	return cni.Errorf(session.CodeInUse, "%w: %s", inUse, holder).
		WithDetails("an interface has each VLAN once; with plugin bridge and its vlan several containers share one")
}

// Verify compares the VLAN and its parent with the configuration.
func (c *Config) Verify(_ context.Context, s *attach.Session, link kernel.Link) error {
	parent, _, err := s.Parent(c.Master, c.LinkInContainer)
	if err != nil {
		return err
	}
	if link.Parent != parent.Index {
		return fmt.Errorf("interface %s: expected it on %s (index %d), found it on index %d", link.Name, parent.Name, parent.Index, link.Parent)
	}
	if link.VLAN != c.VLANID {
		return fmt.Errorf("interface %s: expected VLAN %d, found %d", link.Name, c.VLANID, link.VLAN)
	}
	if mtu := c.MTU; mtu != 0 && link.MTU != mtu {
		err := fmt.Errorf("interface %s: expected MTU %d, found %d", link.Name, mtu, link.MTU)
		return cni.Rephrase(err, "Error: Tuning configured MTU of %s is %d, current value is %d", link.Name, mtu, link.MTU)
	}
	return nil
}
