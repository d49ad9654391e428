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

	// MultiQueue lets several threads of a virtual machine each drive a queue of the device.
	MultiQueue bool `json:"multiQueue"`
	// MTU is that of the device, in bytes; 0 is the kernel's default.
	MTU int `json:"mtu" min:"0" max:"65535"`
	// MAC is the hardware address, unless another one is asked for in CNI_ARGS or runtimeConfig. Without one the kernel chooses.
	MAC string `json:"mac"`
	// Owner is the ID of the user who may open the device without CAP_NET_ADMIN. With both Owner and Group frames have a
	// virtio_net_hdr before them.
	Owner *uint32 `json:"owner" max:"4294967294"`
	// Group is the ID of the group whose members may open the device without CAP_NET_ADMIN. With both Owner and Group it may take
	// both: that depends on the kernel, as does who may open a device that has neither.
	Group *uint32 `json:"group" max:"4294967294"`
	// SELinuxContext is the security context of the device: that of the processes which are to open it. A tap that a runtime has
	// linked in cannot give one, as another program has to be executed for it.
	SELinuxContext string `json:"selinuxContext"`
	// Bridge is the name of a bridge in the container, of which the device becomes a port.
	Bridge string `json:"bridge"`

	mac net.HardwareAddr // derived from the call by [Config.Validate]
}

const name = "tap"

// Plugin is the definition of tap.
var Plugin = attach.Define(plugin.Info{
	Name:         name,
	About:        "gives a container a tap device, for a virtual machine in it",
	Capabilities: []string{"mac"},
	Args:         []string{"MAC"},
	Doc:          doc,
	Helper:       kernel.MakeTap,
}, attach.Traits{
	Kind:  string(kernel.FeatureTun),
	DNS:   attach.DNSOfConfiguration,
	Texts: attach.Texts{NoLink: "Cannot find container link %s"},
}, func() attach.Maker { return new(Config) })

// device is what the configuration says of the device to the kernel.
func (c *Config) device(name string) kernel.TapDevice {
	return kernel.TapDevice{
		Name: name, MultiQueue: c.MultiQueue, Owner: c.Owner, Group: c.Group,
		VNetHdr: c.Owner != nil && c.Group != nil, // as the reference plugin has it: who relies on it cannot ask for it
	}
}

func invalid(format string, args ...any) error {
	return cni.Errorf(cni.CodeInvalidConfig, format, args...)
}

// Validate refuses values that no device can have.
func (c *Config) Validate(call *plugin.Call) (err error) {
	for key, id := range map[string]*uint32{"owner": c.Owner, "group": c.Group} {
		if id != nil && *id == math.MaxUint32 { // the kernel's own word for none
			return invalid("%s: %d is not an ID", key, *id)
		}
	}
	if c.SELinuxContext != "" && call.Linked && call.Command != cni.Check { // its creation starts the executable again
		return cni.Errorf(cni.CodeUnsupportedField, "selinuxContext: %s cannot be given by a tap that is linked into another program", c.SELinuxContext).
			WithDetails("the executable of the plugin can: leave tap out of what is linked in, and install it")
	}
	if c.Bridge != "" && cni.ValidateIfName(c.Bridge) != nil {
		return invalid("bridge: %q is not a valid interface name", c.Bridge)
	}
	if c.mac, err = attach.AskedMAC(call, c.MAC); err != nil {
		return err
	}
	return attach.ValidateMTU(c.MTU)
}

// Status looks for SELinux if the device is to have a context.
func (c *Config) Status(context.Context, *plugin.Call) error {
	if c.SELinuxContext == "" {
		return nil
	}
	return session.Lacking(kernel.FeatureSELinux)
}

// Make makes the device and plugs it into the bridge.
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
	if s.IPAM.Type != "" { // of IPv4 only, as the reference plugin has it
		err = s.Sandbox.Sysctl.SetAll([]kernel.Setting{
			{Key: "net/ipv4/conf/" + s.IfName + "/arp_notify", Value: "1", Optional: true},
		})
	}
	return s.Made(link, err)
}

// findBridge returns the bridge of the configuration, the zero Link if that names none.
func (c *Config) findBridge(s *attach.Session) (kernel.Link, error) {
	if c.Bridge == "" {
		return kernel.Link{}, nil
	}
	l, err := s.Sandbox.Links.ByName(c.Bridge)
	if errors.Is(err, kernel.ErrNoLink) {
		return l, cni.Errorf(cni.CodeInvalidConfig, "failed to get bridge %s: Link not found", c.Bridge).
			WithDetails("the container has no such link: it is not made by this plugin, but by one before it in the chain or by the runtime")
	}
	if err == nil && l.Kind != "bridge" {
		err = invalid("bridge: link %q in the container is a %s: %w", l.Name, l.Kind, kernel.ErrNotBridge)
	}
	return l, err
}

// unsupported gives the error of a device that cannot be made here its code: it names key and value of what cannot.
func (c *Config) unsupported(s *attach.Session, err error) error {
	label := c.SELinuxContext
	switch {
	case errors.Is(err, kernel.ErrNoTun):
		return cni.Errorf(cni.CodeUnsupportedField, "type: %s is not supported here: %w", s.Type, err).WithDetails(kernel.FeatureTun.Help())
	case errors.Is(err, kernel.ErrNoSELinux):
		return cni.Errorf(cni.CodeUnsupportedField, "selinuxContext: %s is not supported here: %w", label, err).
			WithDetails(kernel.FeatureSELinux.Help())
	case errors.Is(err, kernel.ErrContext):
		return cni.Errorf(cni.CodeInvalidConfig, "selinuxContext: %w", err).
			WithDetails("it has to be in the policy, this plugin allowed to change to it, and the plugin's executable an entry point to it")
	}
	return err
}

// Verify compares the device with the configuration.
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
