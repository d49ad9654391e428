package ptp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common
	attach.Masq

	// MTU is the MTU of both ends of the veth pair, in bytes. 0 keeps the kernel's default, or with
	// IPAM plugin cluster the MTU of the routes.
	MTU int `json:"mtu" min:"0" max:"65535"`
	// DelegatePrefix routes the whole network of each IPv6 address to the container, not only the
	// address. The IPAM plugin must give each container a network of its own, as cluster does with
	// prefixBits.
	DelegatePrefix bool `json:"delegatePrefix"`
}

// Plugin is the definition of ptp.
var Plugin = attach.Define(plugin.Info{
	Name:  "ptp",
	About: "connects a container to the host by a routed link of its own",
	Doc:   doc,
}, attach.Traits{
	Kind: "veth",
	Texts: attach.Texts{
		NoPrev: "ptp: Required prevResult missing",
		NoLink: "ptp: Container Interface name in prevResult: %s not found",
		Kind:   "Error: Container interface %s not of type %s/p2p",
		MAC:    "ptp: Interface %s Mac %s doesn't match container Mac: %s",
	},
}, func() attach.Maker { return new(Config) })

// Validate refuses a configuration without IPAM, and an invalid MTU.
func (c *Config) Validate(call *plugin.Call) error {
	if call.IPAM.Type == "" {
		return cni.Errorf(cni.CodeInvalidConfig, "no plugin name provided").
			WithDetails("add ipam, because ptp routes addresses; use bridge for networks without addresses")
	}
	return attach.ValidateMTU(c.MTU)
}

// Make creates the veth pair.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	inside, host, err := s.AddVeth(kernel.Veth{
		Name: s.IfName, MTU: local.MTU(c.MTU, s.IPAM.Type, s.Stdin()), Host: s.Host,
		HostName: s.HostName(), Alias: s.Tag,
	})
	if err != nil {
		return nil, err
	}
	if err := s.Distrust(host); err != nil {
		return nil, err
	}
	if err := s.Host.Sysctl.SetAll([]kernel.Setting{kernel.NoDAD(host.Name)}); err != nil {
		return nil, err
	}
	if err := s.Host.Links.Up(host); err != nil {
		return nil, err
	}
	return []cni.Interface{
		{Name: host.Name, MAC: host.MAC.String()},
		{Name: inside.Name, MAC: inside.MAC.String(), Sandbox: s.Netns},
	}, nil
}

// Amend requires a gateway for each address, which IPAM plugins may omit, because the host-side
// veth gets it.
func (c *Config) Amend(s *attach.Session, r *cni.Result) error {
	for _, ip := range r.IPs {
		const hint = "ptp assigns the gateway to the host-side veth, so it must be another address of the same family"
		own := ip.Address.Addr()
		if !ip.Gateway.IsValid() {
			return cni.Errorf(cni.CodeInvalidConfig, "address %s of IPAM plugin %s has no gateway",
				ip.Address, s.IPAM.Type).WithDetails(hint)
		}
		if ip.Gateway.Is4() != own.Is4() || ip.Gateway == own {
			return cni.Errorf(cni.CodeInvalidConfig,
				"gateway %s of address %s of IPAM plugin %s cannot be assigned to the host",
				ip.Gateway, ip.Address, s.IPAM.Type).WithDetails(hint)
		}
	}
	return nil
}

// Route adds routes to the gateways themselves, before any route uses a gateway.
func (c *Config) Route(s *attach.Session, link kernel.Link, r *cni.Result) error {
	for _, rt := range gatewayRoutes(r.IPs) {
		if err := s.Sandbox.Routes.Add(link, rt); err != nil {
			return err
		}
	}
	return nil
}

// Finish routes the container's networks through their gateways, and makes the host the gateway.
func (c *Config) Finish(_ context.Context, s *attach.Session, r *cni.Result) error {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	shared := slices.DeleteFunc(slices.Clone(r.IPs), c.delegates)
	if err := leaveNetworks(s.Sandbox, link, shared); err != nil {
		return err
	}
	host, err := s.Host.Links.ByName(s.HostName())
	if err != nil {
		return err
	}
	for _, ip := range r.IPs {
		if _, err := s.Host.Addrs.EnsureGateway(host, gatewayAddr(ip)); err != nil {
			return err
		}
		// A container of another network can have the same address: it keeps its packets.
		if err := s.Host.Routes.Append(host, hostRoute(ip)); err != nil {
			return err
		}
		if c.delegates(ip) {
			if err := delegate(s.Host, host, ip); err != nil {
				return err
			}
		}
	}
	if err := s.Forward(r.IPs); err != nil {
		return err
	}
	if c.IPMasq {
		return s.Masquerade(r.IPs)
	}
	return nil
}

// Verify compares the host-side veth, and the routes to both ends, with the previous result.
func (c *Config) Verify(_ context.Context, s *attach.Session, link kernel.Link) error {
	host, err := s.CheckPair(link)
	if err != nil {
		return err
	}
	have, err := s.Host.Addrs.Of(host)
	if err != nil {
		return err
	}
	ips := s.PrevIPs()
	var toContainer []kernel.Route
	for _, ip := range ips {
		if want := gatewayAddr(ip); ip.Gateway.IsValid() && !slices.Contains(have, want) {
			return fmt.Errorf("interface %s: expected gateway address %s, found %v",
				host.Name, want, have)
		}
		toContainer = append(toContainer, hostRoute(ip))
		if c.delegates(ip) {
			toContainer = append(toContainer, prefixRoute(ip))
		}
	}
	if err := s.Host.Routes.Check(host, toContainer); err != nil {
		return err
	}
	if err := s.Sandbox.Routes.Check(link, gatewayRoutes(ips)); err != nil {
		return err
	}
	if c.IPMasq {
		return s.CheckMasquerade()
	}
	return nil
}

// gatewayAddr returns the address of the gateway on the host-side veth.
func gatewayAddr(ip cni.IP) netip.Prefix { return single(ip.Gateway) }

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
