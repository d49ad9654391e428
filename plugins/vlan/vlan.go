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
var Plugin = plugin.Define[Config](plugin.Info{
	Name:  "vlan",
	About: "gives a container a VLAN of an interface of the host",
	Doc:   doc,
}, &attach.Plugin[Config]{
	Maker: maker{},
	Kind:  "vlan",
	DNS:   attach.DNSOfConfiguration,
	Options: func(c *Config) attach.Options {
		return attach.Options{DAD: c.Detection(), Announce: true}
	},
	Texts: attach.Texts{
		NoPrev: "vlan: Required prevResult missing",
		NoLink: "vlan: Container Interface name in prevResult: %s not found",
		MAC:    "vlan: Interface %s Mac %s doesn't match container Mac: %s",
	},
})

const maxID = 4094

type (
	maker struct{}
	call  = attach.Session[Config]
)

// Validate refuses what cannot become a VLAN with addresses. What depends on the parent is for Make.
func (maker) Validate(c *plugin.Call[Config]) error {
	switch conf := c.Conf; {
	case conf.Master == "":
		return cni.Errorf(cni.CodeInvalidConfig, `"master" field is required. It specifies the host interface name to create the VLAN for`).
			WithDetails("it has no default; ip link shows the interfaces there are")
	case conf.VLANID < 0 || conf.VLANID > maxID:
		return cni.Errorf(cni.CodeInvalidConfig, "invalid VLAN ID %d (must be between 0 and 4095 inclusive)", conf.VLANID).
			WithDetails(fmt.Sprintf("vlanId: the highest VLAN ID is %d", maxID))
	case c.IPAM.Type == "":
		return cni.Errorf(cni.CodeInvalidConfig, "no plugin name provided").
			WithDetails("vlan needs ipam: its interface has addresses; bridge is for VLANs without address management")
	}
	return nil
}

// Status looks for the parent.
func (maker) Status(s *call) error { return s.ParentStatus(s.Conf.Master, s.Conf.LinkInContainer) }

// Make makes the VLAN.
func (maker) Make(_ context.Context, s *call) ([]cni.Interface, error) {
	parent, space, err := s.Parent(s.Conf.Master, s.Conf.LinkInContainer)
	if err != nil {
		return nil, err
	}
	if err := attach.CheckMTU(s.Conf.MTU, parent); err != nil {
		return nil, err
	}
	link, err := s.AddLink(kernel.NewLink{
		Name: s.IfName, Kind: "vlan", Alias: s.Tag, MTU: s.Conf.MTU, VLAN: uint16(s.Conf.VLANID), Parent: parent, ParentSpace: space,
	})
	if err != nil {
		return nil, told(err)
	}
	return s.Made(link), nil
}

// told says who has the VLAN, if that is why it could not be made.
func told(err error) error {
	var taken *kernel.VLANTakenError
	if !errors.As(err, &taken) {
		return err
	}
	holder := "in another network namespace"
	switch _, ours := cni.ParseTag(taken.Link.Alias); {
	case ours:
		holder = session.Holder(taken.Link.Alias)
	case taken.Here:
		holder = "interface " + taken.Link.Name + " beside it"
	case taken.Link.Name != "":
		holder = "interface " + taken.Link.Name + " " + holder
	}
	return cni.Errorf(session.CodeTaken, "%w: %s", taken, holder).
		WithDetails("an interface has each VLAN once; with plugin bridge and its vlan several containers share one")
}

// Verify compares the VLAN and its parent with the configuration.
func (maker) Verify(_ context.Context, s *call, link kernel.Link) error {
	parent, _, err := s.Parent(s.Conf.Master, s.Conf.LinkInContainer)
	if err != nil {
		return err
	}
	if link.Parent != parent.Index {
		return fmt.Errorf("interface %s: expected it on %s (index %d), found it on index %d", link.Name, parent.Name, parent.Index, link.Parent)
	}
	if link.VLAN != s.Conf.VLANID {
		return fmt.Errorf("interface %s: expected VLAN %d, found %d", link.Name, s.Conf.VLANID, link.VLAN)
	}
	if mtu := s.Conf.MTU; mtu != 0 && link.MTU != mtu {
		err := fmt.Errorf("interface %s: expected MTU %d, found %d", link.Name, mtu, link.MTU)
		return cni.Rephrase(err, "Error: Tuning configured MTU of %s is %d, current value is %d", link.Name, mtu, link.MTU)
	}
	return nil
}
