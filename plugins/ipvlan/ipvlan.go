package ipvlan

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common
	attach.Segment

	// Master is the parent interface, by its name or an alternative name. The default is the only
	// interface of the previous result or, without a previous result, the interface of the default
	// route.
	Master string `json:"master"`
	// LinkInContainer looks up Master, or the default route, in the container instead of the host.
	LinkInContainer bool `json:"linkInContainer"`
	// Mode selects the layer on which the parent forwards. With "l2" the container sends its own
	// ARP requests and broadcasts. With "l3" the host routes its packets, without the host's packet
	// filters, and there are no broadcasts. "l3s" is "l3" with the host's packet filters.
	Mode Mode `json:"mode" enum:"l2,l3,l3s" default:"l2"`
	// MTU is the MTU in bytes; 0 selects the MTU of Master.
	MTU int `json:"mtu" min:"0" max:"65535"`
}

// Mode is a mode of ipvlan (the kernel's networking/ipvlan).
type Mode string

// The modes.
const (
	L2  Mode = "l2"
	L3  Mode = "l3"
	L3S Mode = "l3s"
)

const kind = "ipvlan"

// Plugin is the definition of ipvlan.
var Plugin = attach.Define(plugin.Info{
	Name: kind,
	About: "connects a container to the network of an interface, with the MAC address of that " +
		"interface",
	Role: plugin.RoleEither,
	Doc:  doc,
}, attach.Traits{
	Kind:     kind,
	DNS:      attach.DNSOfConfiguration,
	Inherits: true,
}, func() attach.Maker { return new(Config) })

func (c *Config) mode() Mode { return cmp.Or(c.Mode, L2) }

// Validate refuses configurations that are invalid with every parent.
func (c *Config) Validate(call *plugin.Call) error {
	switch m := c.mode(); m {
	case L2, L3, L3S:
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "unknown ipvlan mode: %q", m).
			WithDetails(fmt.Sprintf("mode must be %q, %q or %q", L2, L3, L3S))
	}
	if call.Command == cni.Add && call.IPAM.Type == "" &&
		(call.Prev == nil || len(call.Prev.IPs) == 0) {
		return cni.Errorf(cni.CodeInvalidConfig, "no plugin name provided").
			WithDetails(
				"ipvlan needs ipam or addresses in prevResult; for a network without addresses, " +
					"use macvlan")
	}
	return attach.ValidateMTU(c.MTU)
}

// Status returns an error if the parent does not exist. Without Master, an earlier plugin may
// provide the parent, so Status does not require one.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	return attach.ParentStatus(ctx, call, c.Master, c.LinkInContainer || c.Master == "")
}

// Make creates the ipvlan in the container.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	name, err := c.master(s)
	if err != nil {
		return nil, err
	}
	parent, where, err := s.Parent(name, c.LinkInContainer)
	if err != nil {
		return nil, err
	}
	return s.Made(s.AddLink(kernel.NewLink{
		Kind: kind, MTU: c.MTU, Parent: parent, ParentSpace: where, Mode: string(c.mode()),
	}))
}

// master returns the name of the parent, "" for the interface of the default route. In versions
// 0.1.0 and 0.2.0 a previous result names no interfaces.
func (c *Config) master(s *attach.Session) (string, error) {
	if c.Master != "" || s.Prev == nil || s.Version < cni.V030 {
		return c.Master, nil
	}
	if len(s.Prev.Interfaces) != 1 || s.Prev.Interfaces[0].Name == "" {
		return "", cni.Errorf(cni.CodeInvalidConfig,
			"prevResult has %d interfaces, but ipvlan without master needs exactly one with a name",
			len(s.Prev.Interfaces)).
			WithDetails("set master to the parent interface")
	}
	return s.Prev.Interfaces[0].Name, nil
}

// Verify compares the mode with the configuration and requires the parent.
func (c *Config) Verify(_ context.Context, s *attach.Session, link kernel.Link) error {
	const text = "Container IPVlan mode %s does not match expected value: %s"
	if err := attach.CheckMode(link, string(c.mode()), text); err != nil {
		return err
	}
	return s.CheckParent(c.Master, c.LinkInContainer)
}
