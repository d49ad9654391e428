package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common
	attach.Masq

	// Bridge is the name of the bridge. ADD creates it if it does not exist.
	Bridge string `json:"bridge" default:"cni0"`
	// IsGateway assigns the gateway address of each network to the bridge and enables IP
	// forwarding.
	IsGateway bool `json:"isGateway"`
	// IsDefaultGateway implies IsGateway and adds a default route through the bridge for each
	// address family.
	IsDefaultGateway bool `json:"isDefaultGateway"`
	// ForceAddress replaces a conflicting address of the bridge by the gateway address. Without it
	// ADD fails with code 7. Any other IPv4 address conflicts, and any IPv6 address of an
	// overlapping network.
	ForceAddress bool `json:"forceAddress"`
	// MultipleGateways allows several IPv4 gateway addresses on the bridge, for networks with more
	// than one subnet, such as the blocks of IPAM plugin cluster. Only IPv4 addresses of an
	// overlapping network then conflict.
	MultipleGateways bool `json:"multipleGateways"`
	// MTU is the MTU of the veth pair, and of a bridge that ADD creates, in bytes. 0 keeps the
	// kernel's default; with IPAM plugin cluster, the veth pair gets the MTU of the routes.
	MTU int `json:"mtu" min:"0" max:"65535"`
	// HairpinMode lets the port send frames back to the container that they came from. It excludes
	// PromiscMode.
	HairpinMode bool `json:"hairpinMode"`
	// PromiscMode sets the bridge to promiscuous mode. It excludes HairpinMode.
	PromiscMode bool `json:"promiscMode"`
	// PortIsolation prevents the exchange of frames between the container's port and other isolated
	// ports of the bridge.
	PortIsolation bool `json:"portIsolation"`
	// EnableDAD enables duplicate address detection for the container's IPv6 addresses. ADD waits
	// until it is complete.
	EnableDAD bool `json:"enabledad"`
	// DisableContainerInterface leaves the container's interface down. It excludes ipam.
	DisableContainerInterface bool `json:"disableContainerInterface"`

	// MACSpoofChk drops frames from the container if their source is not the MAC address of its
	// interface.
	MACSpoofChk bool `json:"macspoofchk"`
	// VLAN is the VLAN ID of the access port, or with VLANTrunk of the native VLAN of the trunk. 0
	// means no VLAN. With a VLAN ID or VLANTrunk, ADD creates a bridge that filters VLANs; it does
	// not change an existing bridge.
	VLAN int `json:"vlan" min:"0" max:"4094"`
	// VLANTrunk lists the VLANs that the container sends and receives tagged.
	VLANTrunk []Trunk `json:"vlanTrunk"`
	// PreserveDefaultVLAN keeps the port in the default VLAN of the bridge, normally 1, in addition
	// to the configured VLANs.
	PreserveDefaultVLAN bool `json:"preserveDefaultVlan"`

	mac net.HardwareAddr // derived from the call by [Config.Validate]
}

const (
	defaultBridge = "cni0"
	portWait      = 5 * time.Second // limit for the port to come up
)

// Plugin is the definition of bridge.
var Plugin = attach.Define(plugin.Info{
	Name:         "bridge",
	About:        "connects a container to a Linux bridge of the host",
	Capabilities: []string{"mac"},
	Args:         []string{"MAC"},
	Doc:          doc,
}, attach.Traits{
	Kind:  "veth",
	Texts: attach.Texts{NoLink: "Interface name %s not found"},
}, func() attach.Maker { return new(Config) })

func (c *Config) bridge() string { return cmp.Or(c.Bridge, defaultBridge) }

func (c *Config) gateway() bool { return c.IsGateway || c.IsDefaultGateway }

// Validate refuses contradictory options and values out of range.
func (c *Config) Validate(call *plugin.Call) (err error) {
	invalid := func(format string, args ...any) *cni.Error {
		return cni.Errorf(cni.CodeInvalidConfig, format, args...)
	}
	switch {
	case cni.ValidateIfName(c.bridge()) != nil:
		return invalid("bridge: %q is not a valid interface name", c.bridge())
	case c.HairpinMode && c.PromiscMode:
		return invalid("cannot set hairpin mode and promiscuous mode at the same time").
			WithDetails("set either hairpinMode or promiscMode")
	case c.DisableContainerInterface && call.IPAM.Type != "":
		return invalid("cannot use IPAM when DisableContainerInterface flag is set").
			WithDetails("remove ipam or disableContainerInterface")
	}
	if err := attach.ValidateMTU(c.MTU); err != nil {
		return err
	}
	if err := c.validateVLANs(); err != nil {
		return err
	}
	c.mac, err = attach.ParseMAC(call.Asked.MAC)
	return err
}

// Options implements [attach.Maker].
func (c *Config) Options() attach.Options {
	o := attach.Options{KeepDown: c.DisableContainerInterface, Announce: true}
	if c.EnableDAD {
		o.DAD = attach.DADWait
	}
	return o
}

// Status reports missing kernel features.
func (c *Config) Status(context.Context, *plugin.Call) error {
	features := []kernel.Feature{kernel.FeatureBridge}
	if c.MACSpoofChk {
		features = append(features, kernel.FeatureNFT)
	}
	if c.filtering() {
		features = append(features, kernel.FeatureVLANFiltering)
	}
	return session.Lacking(features...)
}

// Make creates the bridge, if it does not exist, and a veth pair that connects the container to it.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	if err := c.needFiltering(); err != nil {
		return nil, err
	}
	br, created, err := s.Host.Links.EnsureBridge(kernel.Bridge{
		Name: c.bridge(), MTU: c.MTU, Promisc: c.PromiscMode, VLANFiltering: c.filtering(),
	})
	if errors.Is(err, kernel.ErrNotBridge) {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "bridge: %w", err)
	}
	if err != nil {
		return nil, err
	}
	inside, port, err := s.AddVeth(kernel.Veth{
		Name: s.IfName, MAC: c.mac, MTU: local.MTU(c.MTU, s.IPAM.Type, s.Stdin()), Host: s.Host,
		HostName: s.HostName(), Alias: s.Tag,
	})
	if err != nil {
		return nil, err
	}
	if err := s.Distrust(br, port); err != nil {
		return nil, err
	}
	if c.MACSpoofChk { // before the port can receive frames
		if err := s.Host.Rules.Guard(s.Tag, port, inside.MAC); err != nil {
			return nil, err
		}
	}
	if !created {
		if err := keepMTU(s, br, port); err != nil {
			return nil, err
		}
	}
	if err := s.Host.Links.SetMaster(port, br); err != nil {
		return nil, err
	}
	if c.HairpinMode || c.PortIsolation {
		if err := s.Host.Links.SetPort(port, kernel.Port{
			Hairpin: c.HairpinMode, Isolated: c.PortIsolation,
		}); err != nil {
			return nil, err
		}
	}
	if err := c.setVLANs(s.Host, port, c.vlans()); err != nil {
		return nil, err
	}
	if c.filtering() && !br.VLANFiltering {
		s.Log.Warn(notFiltering(br))
	}
	if err := s.Host.Links.Up(port); err != nil {
		return nil, err
	}
	return []cni.Interface{
		{Name: br.Name, MAC: br.MAC.String()},
		{Name: port.Name, MAC: port.MAC.String()},
		{Name: inside.Name, MAC: inside.MAC.String(), Sandbox: s.Netns},
	}, nil
}

// keepMTU makes the bridge keep its MTU beside a port with a smaller one if other ports need it, or
// if the bridge would lose its IPv6 addresses. The kernel otherwise lowers the MTU, which suits a
// bridge without other ports.
func keepMTU(s *attach.Session, br, port kernel.Link) error {
	if port.MTU >= br.MTU {
		return nil
	}
	needed := port.MTU < kernel.MinMTU6
	if !needed {
		links, err := s.Host.Links.All()
		if err != nil {
			return err
		}
		needed = slices.ContainsFunc(links, func(l kernel.Link) bool {
			return l.Master == br.Index && l.MTU > port.MTU
		})
	}
	if !needed {
		return nil
	}
	return s.Host.KeepMTU(br)
}

// Finish assigns the gateway addresses, masquerades, and waits until the port is up.
func (c *Config) Finish(ctx context.Context, s *attach.Session, r *cni.Result) error {
	br, err := s.Host.Links.ByName(c.bridge())
	if err != nil {
		return err
	}
	if c.gateway() && len(r.IPs) > 0 {
		if err := c.beGateway(ctx, s, br, r); err != nil {
			return err
		}
	}
	if c.IPMasq {
		if err := s.Masquerade(r.IPs); err != nil {
			return err
		}
	}
	port, err := s.Host.Links.ByName(s.HostName())
	if err != nil {
		return err
	}
	if !c.DisableContainerInterface {
		wait, cancel := context.WithTimeout(ctx, portWait)
		defer cancel()
		if err := s.Host.Links.WaitUp(wait, port); err != nil {
			return fmt.Errorf("bridge port in error state: %w", err)
		}
	}
	if len(r.IPs) > 0 {
		if err := s.Announce(); err != nil {
			return err
		}
	}
	// A bridge without an address of its own takes the MAC address of a port, such as the veth of a
	// VLAN gateway.
	if br, err = s.Host.Links.ByName(c.bridge()); err != nil {
		return err
	}
	r.Interfaces[0].MAC, r.Interfaces[1].MAC = br.MAC.String(), port.MAC.String()
	return nil
}
