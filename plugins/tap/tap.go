package tap

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common

	// MultiQueue gives the device several queues, so that each thread of a virtual machine can use
	// its own.
	MultiQueue bool `json:"multiQueue"`
	// MTU is the MTU in bytes; 0 selects the kernel's default.
	MTU int `json:"mtu" min:"0" max:"65535"`
	// MAC is the MAC address of the device. The capability mac and MAC in CNI_ARGS take precedence.
	// Without any of them the kernel chooses an address.
	MAC string `json:"mac"`
	// Owner is the ID of the user who may open the device without CAP_NET_ADMIN. With both Owner
	// and Group, each frame has a virtio_net_hdr.
	Owner *uint32 `json:"owner" max:"4294967294"`
	// Group is the ID of a group. Its members may open the device without CAP_NET_ADMIN. If Owner
	// and Group are both set, the kernel may require both; without either, the kernel decides who
	// may open the device.
	Group *uint32 `json:"group" max:"4294967294"`
	// SELinuxContext is the security context of the device, usually the context of the processes
	// that open it. It requires the plugin's binary: a program with tap linked in refuses the key,
	// because the plugin must execute itself with the context.
	SELinuxContext string `json:"selinuxContext"`
	// Bridge is the name of a bridge in the container, to which the device is attached.
	Bridge string `json:"bridge"`

	mac net.HardwareAddr // derived from the call by [Config.Validate]
}

const name = "tap"

// Plugin is the definition of tap.
var Plugin = attach.Define(plugin.Info{
	Name:         name,
	About:        "gives a container a tap device, for a virtual machine",
	Capabilities: []string{"mac"},
	Args:         []string{"MAC"},
	Doc:          doc,
	Helper:       kernel.MakeTap,
}, attach.Traits{
	Kind:  string(kernel.FeatureTun),
	DNS:   attach.DNSOfConfiguration,
	Texts: attach.Texts{NoLink: "Cannot find container link %s"},
}, func() attach.Maker { return new(Config) })

// device returns the properties of the device that the kernel stores.
func (c *Config) device(name string) kernel.TapDevice {
	return kernel.TapDevice{
		Name: name, MultiQueue: c.MultiQueue, Owner: c.Owner, Group: c.Group,
		// as upstream; programs that expect the header cannot request it
		VNetHdr: c.Owner != nil && c.Group != nil,
	}
}

func invalid(format string, args ...any) error {
	return cni.Errorf(cni.CodeInvalidConfig, format, args...)
}

// Validate refuses values that no device can have.
func (c *Config) Validate(call *plugin.Call) (err error) {
	for key, id := range map[string]*uint32{"owner": c.Owner, "group": c.Group} {
		if id != nil && *id == math.MaxUint32 { // the kernel uses it for "no ID"
			return invalid("%s: %d is not an ID", key, *id)
		}
	}
	// creating the device starts the binary again
	if c.SELinuxContext != "" && call.Linked && call.Command != cni.Check {
		return cni.Errorf(cni.CodeUnsupportedField,
			"selinuxContext: a program with tap linked in cannot create a device with context %s",
			c.SELinuxContext).
			WithDetails("remove tap from the linked plugins and install the tap binary")
	}
	if c.Bridge != "" && cni.ValidateIfName(c.Bridge) != nil {
		return invalid("bridge: %q is not a valid interface name", c.Bridge)
	}
	if c.mac, err = attach.AskedMAC(call, c.MAC); err != nil {
		return err
	}
	return attach.ValidateMTU(c.MTU)
}

// Status returns an error if the configuration needs SELinux and SELinux is disabled.
func (c *Config) Status(context.Context, *plugin.Call) error {
	if c.SELinuxContext == "" {
		return nil
	}
	return session.Lacking(kernel.FeatureSELinux)
}

// Make creates the device and attaches it to the bridge.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	bridge, err := c.findBridge(s)
	if err != nil {
		return nil, err
	}
	link, err := s.Sandbox.Links.AddTap(kernel.Tap{
		TapDevice: c.device(s.IfName), MAC: c.mac, MTU: c.MTU, Alias: s.Tag,
		Context: c.SELinuxContext, Program: []string{name, "helper"},
	})
	if err != nil {
		return nil, c.unsupported(s, err)
	}
	if bridge.Index != 0 {
		if err := s.Sandbox.Links.SetMaster(link, bridge); err != nil {
			return nil, err
		}
	}
	if s.IPAM.Type != "" { // for IPv4 only, as upstream
		err = s.Sandbox.Sysctl.SetAll([]kernel.Setting{
			{Key: "net/ipv4/conf/" + s.IfName + "/arp_notify", Value: "1", Optional: true},
		})
	}
	return s.Made(link, err)
}

// findBridge returns the bridge of the configuration, or the zero Link if the configuration names
// none.
func (c *Config) findBridge(s *attach.Session) (kernel.Link, error) {
	if c.Bridge == "" {
		return kernel.Link{}, nil
	}
	l, err := s.Sandbox.Links.ByName(c.Bridge)
	if errors.Is(err, kernel.ErrNoLink) {
		return l, cni.Errorf(cni.CodeInvalidConfig, "failed to get bridge %s: Link not found",
			c.Bridge).
			WithDetails(
				"the container has no such link; let an earlier plugin of the list or the " +
					"runtime create the bridge")
	}
	if err == nil && l.Kind != "bridge" {
		err = invalid("bridge: link %q in the container is a %s: %w", l.Name, l.Kind,
			kernel.ErrNotBridge)
	}
	return l, err
}

// unsupported adds the code, the key and its value to the error of a device that cannot be created.
func (c *Config) unsupported(s *attach.Session, err error) error {
	label := c.SELinuxContext
	switch {
	case errors.Is(err, kernel.ErrNoTun):
		return cni.Errorf(cni.CodeUnsupportedField, "type: %s is not supported here: %w", s.Type,
			err).WithDetails(kernel.FeatureTun.Help())
	case errors.Is(err, kernel.ErrNoSELinux):
		return cni.Errorf(cni.CodeUnsupportedField, "selinuxContext: %s is not supported here: %w",
			label, err).
			WithDetails(kernel.FeatureSELinux.Help())
	case errors.Is(err, kernel.ErrContext):
		return cni.Errorf(cni.CodeInvalidConfig, "selinuxContext: %w", err).
			WithDetails(
				"the policy must define the context, let the plugin change to it, and accept the " +
					"plugin's binary as an entry point")
	}
	return err
}

// Verify compares the device and its bridge with the configuration.
func (c *Config) Verify(_ context.Context, s *attach.Session, link kernel.Link) error {
	if err := kernel.CheckTap(link, c.device(link.Name)); err != nil {
		return err
	}
	bridge, err := c.findBridge(s)
	if err == nil && bridge.Index != 0 && link.Master != bridge.Index {
		err = fmt.Errorf("interface %s: expected it on bridge %s", link.Name, bridge.Name)
	}
	return err
}
