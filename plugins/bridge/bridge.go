package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	plugin.Common

	// Bridge is the name of the bridge; it is made where it does not exist. Default "cni0".
	Bridge string `json:"bridge"`
	// IsGateway gives the bridge the gateway address of each network and turns on forwarding.
	IsGateway bool `json:"isGateway"`
	// IsDefaultGateway implies IsGateway and adds a default route for each address family.
	IsDefaultGateway bool `json:"isDefaultGateway"`
	// ForceAddress lets a gateway address replace one of another network that the bridge has.
	ForceAddress bool `json:"forceAddress"`
	// IPMasq masquerades what leaves the network. It needs ipam.
	IPMasq bool `json:"ipMasq"`
	// IPMasqBackend is "nftables", the default. "iptables" is not supported yet.
	IPMasqBackend string `json:"ipMasqBackend"`
	// MTU of both ends of the pair, and of a bridge that is made, in bytes; 0 is the kernel's default.
	MTU int `json:"mtu"`
	// HairpinMode lets frames leave by the port they came in. Not together with PromiscMode.
	HairpinMode bool `json:"hairpinMode"`
	// PromiscMode makes the bridge promiscuous.
	PromiscMode bool `json:"promiscMode"`
	// PortIsolation keeps the port from talking to other isolated ports.
	PortIsolation bool `json:"portIsolation"`
	// EnableDAD lets the kernel detect duplicates of the container's IPv6 addresses, and waits until it has.
	EnableDAD bool `json:"enabledad"`
	// DisableContainerInterface leaves the container's interface down. Not together with ipam.
	DisableContainerInterface bool `json:"disableContainerInterface"`

	// Not supported yet.
	VLAN        int   `json:"vlan"`
	VLANTrunk   []any `json:"vlanTrunk"`
	MACSpoofChk bool  `json:"macspoofchk"`
}

const (
	defaultBridge = "cni0"
	portWait      = 5 * time.Second // for the port to come up
)

// Plugin is the definition of bridge.
var Plugin = plugin.Define[Config](plugin.Info{
	Name:         "bridge",
	About:        "connects a container to a Linux bridge of the host",
	Capabilities: []string{"mac"},
	Args:         []string{"MAC"},
	Doc:          doc,
}, attach.Plugin[Config]{
	Maker: maker{},
	Options: func(c *Config) attach.Options {
		return attach.Options{KeepDown: c.DisableContainerInterface, AcceptDAD: c.EnableDAD, Announce: true}
	},
	Needs: func(c *Config) []probe.Feature {
		features := []probe.Feature{probe.Veth, probe.Bridge}
		if c.IPMasq {
			features = append(features, probe.NFT)
		}
		return features
	},
})

type maker struct{}

func (c *Config) bridge() string {
	if c.Bridge == "" {
		return defaultBridge
	}
	return c.Bridge
}

func (c *Config) gateway() bool { return c.IsGateway || c.IsDefaultGateway }

// Validate refuses contradictions, and keys that are not supported yet.
func (maker) Validate(c *plugin.Call[Config]) error {
	conf := c.Conf
	invalid := func(format string, args ...any) error { return cni.Errorf(cni.CodeInvalidConfig, format, args...) }
	unsupported := func(key string, value any) error {
		return cni.Errorf(cni.CodeUnsupportedField, "%s: %v is not supported by this version of Tenon", key, value)
	}
	switch {
	case cni.ValidateIfName(conf.bridge()) != nil:
		return invalid("bridge: %q is not a valid interface name", conf.bridge())
	case conf.HairpinMode && conf.PromiscMode:
		return invalid("hairpinMode and promiscMode cannot both be set")
	case conf.DisableContainerInterface && c.IPAM.Type != "":
		return invalid("disableContainerInterface cannot be used with ipam")
	case conf.MTU < 0 || conf.MTU > 65535:
		return invalid("mtu: %d is not within 0 to 65535", conf.MTU)
	case conf.VLAN < 0 || conf.VLAN > 4094:
		return invalid("vlan: invalid VLAN ID %d (must be between 0 and 4094)", conf.VLAN)
	case conf.VLAN != 0:
		return unsupported("vlan", conf.VLAN)
	case conf.VLANTrunk != nil:
		return unsupported("vlanTrunk", conf.VLANTrunk)
	case conf.MACSpoofChk:
		return unsupported("macspoofchk", true)
	case conf.IPMasqBackend == "iptables":
		return unsupported("ipMasqBackend", conf.IPMasqBackend)
	case conf.IPMasqBackend != "" && conf.IPMasqBackend != "nftables":
		return invalid("ipMasqBackend: %q is neither \"nftables\" nor \"iptables\"", conf.IPMasqBackend)
	}
	if c.Asked.MAC != "" {
		if _, err := net.ParseMAC(c.Asked.MAC); err != nil {
			return invalid("mac: %w", err)
		}
	}
	return nil
}

// Make makes the bridge, unless it is there, and a pair that joins the container to it.
func (maker) Make(_ context.Context, s *attach.Session[Config]) ([]cni.Interface, error) {
	c := s.Conf
	br, _, err := s.Host.EnsureBridge(kernel.Bridge{Name: c.bridge(), MTU: c.MTU, Promisc: c.PromiscMode})
	if errors.Is(err, kernel.ErrNotBridge) {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "bridge: %w", err)
	}
	if err != nil {
		return nil, err
	}
	veth := kernel.Veth{Name: s.IfName, MTU: c.MTU, Host: s.Host, HostName: s.HostName(), Alias: s.Tag}
	if s.Asked.MAC != "" {
		if veth.MAC, err = net.ParseMAC(s.Asked.MAC); err != nil {
			return nil, err
		}
	}
	inside, port, err := s.Sandbox.AddVeth(veth)
	if err != nil {
		return nil, err
	}
	if err := s.Host.EnsureSysctls(append(untrusted(br.Name), untrusted(port.Name)...)); err != nil {
		return nil, err
	}
	if err := s.Host.SetMaster(port, br); err != nil {
		return nil, err
	}
	if c.HairpinMode || c.PortIsolation {
		if err := s.Host.SetPort(port, kernel.Port{Hairpin: c.HairpinMode, Isolated: c.PortIsolation}); err != nil {
			return nil, err
		}
	}
	if err := s.Host.Up(port); err != nil {
		return nil, err
	}
	return []cni.Interface{
		{Name: br.Name, MAC: br.MAC.String()},
		{Name: port.Name, MAC: port.MAC.String()},
		{Name: inside.Name, MAC: inside.MAC.String(), Sandbox: s.Netns},
	}, nil
}

// untrusted are the settings that keep a container from steering the host through an interface it can send to
// (CVE-2020-10749).
func untrusted(ifName string) []kernel.Setting {
	return []kernel.Setting{
		{Key: "net/ipv6/conf/" + ifName + "/accept_ra", Value: "0", Optional: true},
		{Key: "net/ipv6/conf/" + ifName + "/accept_redirects", Value: "0", Optional: true},
		{Key: "net/ipv4/conf/" + ifName + "/accept_redirects", Value: "0", Optional: true},
	}
}

// Amend fills in gateways and default routes.
func (maker) Amend(s *attach.Session[Config], r *cni.Result) error {
	if !s.Conf.gateway() {
		return nil
	}
	routed := map[bool]bool{}
	for _, rt := range r.Routes {
		if rt.Dst.Bits() == 0 && rt.GW.IsValid() {
			routed[rt.Dst.Addr().Is4()] = true
		}
	}
	for i := range r.IPs {
		ip := &r.IPs[i]
		if !ip.Gateway.IsValid() {
			ip.Gateway = ip.Address.Masked().Addr().Next()
		}
		if is4 := ip.Address.Addr().Is4(); s.Conf.IsDefaultGateway && !routed[is4] {
			r.Routes = append(r.Routes, cni.Route{Dst: defaultDst(is4), GW: ip.Gateway})
			routed[is4] = true
		}
	}
	return nil
}

func defaultDst(is4 bool) netip.Prefix {
	if is4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Finish makes the bridge the gateway, masquerades, and waits for the port.
func (maker) Finish(ctx context.Context, s *attach.Session[Config], r *cni.Result) error {
	c := s.Conf
	br, err := s.Host.Link(c.bridge())
	if err != nil {
		return err
	}
	if c.gateway() && len(r.IPs) > 0 {
		if br, err = beGateway(s, br, r); err != nil {
			return err
		}
	}
	if c.IPMasq && len(r.IPs) > 0 {
		if err := s.Masquerade(r); err != nil {
			return err
		}
	}
	port, err := s.Host.Link(s.HostName())
	if err != nil {
		return err
	}
	if !c.DisableContainerInterface {
		wait, cancel := context.WithTimeout(ctx, portWait)
		defer cancel()
		if err := s.Host.WaitUp(wait, port); err != nil {
			return fmt.Errorf("bridge port in error state: %w", err)
		}
	}
	if len(r.IPs) > 0 {
		if err := announce(s); err != nil {
			return err
		}
	}
	r.Interfaces[0].MAC, r.Interfaces[1].MAC = br.MAC.String(), port.MAC.String()
	return nil
}

// announce makes the kernel tell the neighbours once more whose addresses these are. When the container's interface
// came up, the port did not forward yet.
func announce(s *attach.Session[Config]) error {
	inside, err := s.Sandbox.Link(s.IfName)
	if err != nil {
		return err
	}
	return s.Sandbox.SetMAC(inside, inside.MAC)
}

// beGateway puts the gateway addresses on the bridge and turns on forwarding for their families. Bridge, addresses
// and forwarding are shared by all containers of the network: nothing here is taken back.
func beGateway(s *attach.Session[Config], br kernel.Link, r *cni.Result) (kernel.Link, error) {
	var forwarding []kernel.Setting
	for _, ip := range r.IPs {
		added, err := ensureAddr(s, br, netip.PrefixFrom(ip.Gateway, ip.Address.Bits()))
		if err == nil && added {
			br, err = pin(s, br, r.Interfaces[0].MAC)
		}
		if err != nil {
			return br, err
		}
		key := "net/ipv6/conf/all/forwarding"
		if ip.Address.Addr().Is4() {
			key = "net/ipv4/ip_forward"
		}
		forwarding = append(forwarding, kernel.Setting{Key: key, Value: "1"})
	}
	return br, s.Host.EnsureSysctls(forwarding)
}

// ensureAddr gives the bridge an address. Any other IPv4 address it has is in the way, and any IPv6 address of an
// overlapping network.
func ensureAddr(s *attach.Session[Config], br kernel.Link, want netip.Prefix) (added bool, err error) {
	have, err := s.Host.Addrs(br)
	if err != nil {
		return false, err
	}
	var conflicts []netip.Prefix
	for _, a := range have {
		if a == want {
			return false, nil
		}
		if a.Addr().Is4() == want.Addr().Is4() && (want.Addr().Is4() || a.Overlaps(want)) {
			conflicts = append(conflicts, a)
		}
	}
	if len(conflicts) > 0 && !s.Conf.ForceAddress {
		return false, cni.Errorf(cni.CodeInvalidConfig, "%q already has an IP address different from %s", br.Name, want).
			WithDetails(fmt.Sprintf("found %v; forceAddress replaces it", conflicts))
	}
	for _, a := range conflicts {
		if err := s.Host.DelAddr(br, a); err != nil {
			return false, err
		}
	}
	return s.Host.EnsureGateway(br, want)
}

// pin makes a bridge keep the hardware address that it had before the container's port joined, now that it is a
// gateway and neighbours remember it. One that had none, since it has lost its last port, keeps what it has now.
func pin(s *attach.Session[Config], br kernel.Link, before string) (kernel.Link, error) {
	if mac, err := net.ParseMAC(before); err == nil {
		br.MAC = mac
	}
	return br, s.Host.EnsureMAC(br, br.MAC)
}

// Verify compares bridge and host's end with the previous result and the configuration.
func (maker) Verify(_ context.Context, s *attach.Session[Config], link kernel.Link) error {
	c := s.Conf
	br, err := s.Host.Link(c.bridge())
	if err != nil {
		return err
	}
	if br.Kind != "bridge" {
		return fmt.Errorf("interface %s: expected a bridge, found a %s", br.Name, br.Kind)
	}
	if c.PromiscMode && br.Promisc == 0 {
		return fmt.Errorf("bridge %s: expected it promiscuous", br.Name)
	}
	if link.Kind != "veth" {
		return fmt.Errorf("interface %s: expected a veth, found a %s", link.Name, link.Kind)
	}
	port, err := s.Host.LinkByIndex(link.Peer)
	if err != nil {
		return fmt.Errorf("host's end of interface %s: %w", link.Name, err)
	}
	switch {
	case port.Kind != "veth" || port.Peer != link.Index:
		return fmt.Errorf("host's end of interface %s: not found", link.Name)
	case port.Master != br.Index:
		return fmt.Errorf("interface %s: expected it on bridge %s", port.Name, br.Name)
	case !port.Up:
		return fmt.Errorf("interface %s: expected it up, found it down", port.Name)
	}
	for _, want := range s.Prev.Interfaces {
		if want.Sandbox != "" {
			continue
		}
		for _, have := range []kernel.Link{br, port} {
			if want.Name != have.Name {
				continue
			}
			if err := attach.CheckMAC(have, want); err != nil {
				return err
			}
		}
	}
	if err := checkGateway(s, br); err != nil {
		return err
	}
	if _, ours := cni.ParseTag(port.Alias); c.IPMasq && ours { // a pair of the reference plugin has that plugin's rules
		return s.CheckMasquerade()
	}
	return nil
}

func checkGateway(s *attach.Session[Config], br kernel.Link) error {
	if !s.Conf.gateway() {
		return nil
	}
	have, err := s.Host.Addrs(br)
	if err != nil {
		return err
	}
	for _, ip := range s.Prev.IPs {
		want := netip.PrefixFrom(ip.Gateway, ip.Address.Bits())
		if ip.Gateway.IsValid() && !slices.Contains(have, want) {
			return fmt.Errorf("bridge %s: expected gateway address %s, found %v", br.Name, want, have)
		}
	}
	return nil
}
