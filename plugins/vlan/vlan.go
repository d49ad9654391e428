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

	// Master is the parent interface, which carries the VLAN, by its name or an alternative name.
	Master string `json:"master" required:"true"`

	// VLANID is the ID of the VLAN. A parent has each VLAN only once, so only one container can
	// have it.
	VLANID int `json:"vlanId" min:"0" max:"4094"`

	// MTU is the MTU in bytes, at most the MTU of Master; 0 selects the MTU of Master.
	MTU int `json:"mtu" min:"0"`

	// LinkInContainer looks up Master in the container instead of the host.
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

// Validate refuses configurations that are invalid with every parent. Make checks the limits of the
// parent.
func (c *Config) Validate(*plugin.Call) error {
	switch {
	case c.Master == "":
		return cni.Errorf(cni.CodeInvalidConfig,
			`"master" field is required. It specifies the host interface name to create the VLAN for`).
			WithDetails("set master to one of the interfaces that ip link lists")
	case c.VLANID < 0 || c.VLANID > maxID:
		return cni.Errorf(cni.CodeInvalidConfig,
			"invalid VLAN ID %d (must be between 0 and 4095 inclusive)", c.VLANID).
			WithDetails(fmt.Sprintf("vlanId: the highest VLAN ID is %d", maxID))
	}
	return nil
}

// Status returns an error if the parent does not exist.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	return attach.ParentStatus(ctx, call, c.Master, c.LinkInContainer)
}

// Make creates the VLAN interface.
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
	return s.Made(link, withHolder(err))
}

// withHolder adds the holder of the VLAN to the error of an ADD for a VLAN that is in use.
func withHolder(err error) error {
	var inUse *kernel.VLANInUseError
	if !errors.As(err, &inUse) {
		return err
	}
	holder := "in another network namespace"
	switch _, ours := cni.ParseTag(inUse.Link.Alias); {
	case ours:
		holder = session.Holder(inUse.Link.Alias)
	case inUse.Here:
		holder = "interface " + inUse.Link.Name + " in the same namespace"
	case inUse.Link.Name != "":
		holder = "interface " + inUse.Link.Name + " " + holder
	}
	return cni.Errorf(session.CodeInUse, "%w: %s", inUse, holder).
		WithDetails(
			"a parent has each VLAN only once; to share a VLAN between containers, use bridge " +
				"with its option vlan")
}

// Verify compares the VLAN, its parent and its MTU with the configuration.
func (c *Config) Verify(_ context.Context, s *attach.Session, link kernel.Link) error {
	parent, _, err := s.Parent(c.Master, c.LinkInContainer)
	if err != nil {
		return err
	}
	if link.Parent != parent.Index {
		return fmt.Errorf("interface %s: expected it on %s (index %d), found it on index %d",
			link.Name, parent.Name, parent.Index, link.Parent)
	}
	if link.VLAN != c.VLANID {
		return fmt.Errorf("interface %s: expected VLAN %d, found %d", link.Name, c.VLANID,
			link.VLAN)
	}
	if mtu := c.MTU; mtu != 0 && link.MTU != mtu {
		err := fmt.Errorf("interface %s: expected MTU %d, found %d", link.Name, mtu, link.MTU)
		return cni.Rephrase(err, "Error: Tuning configured MTU of %s is %d, current value is %d",
			link.Name, mtu, link.MTU)
	}
	return nil
}
