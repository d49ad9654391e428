package bridge

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Amend fills in missing gateways and default routes.
func (c *Config) Amend(s *attach.Session, r *cni.Result) error {
	if !c.gateway() {
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
		if is4 := ip.Address.Addr().Is4(); c.IsDefaultGateway && !routed[is4] {
			r.Routes = append(r.Routes, cni.Route{
				Dst: netip.PrefixFrom(ip.Address.Addr(), 0).Masked(), GW: ip.Gateway,
			})
			routed[is4] = true
		}
	}
	return nil
}

// beGateway assigns the gateway addresses to the bridge, or to the gateway interface of the VLAN,
// and enables forwarding for their families. The containers of the network share these settings, so
// they are never undone.
func (c *Config) beGateway(
	ctx context.Context, s *attach.Session, br kernel.Link, r *cni.Result,
) error {
	gw := br
	if c.VLAN != 0 {
		var err error
		if gw, err = c.ensureVLANGateway(ctx, s, br); err != nil {
			return err
		}
		r.Interfaces = append(r.Interfaces, cni.Interface{Name: gw.Name, MAC: gw.MAC.String()})
	}
	if err := attach.CheckMTU6(gw, r.IPs); err != nil {
		return err
	}
	for _, ip := range r.IPs {
		added, err := c.ensureAddr(s, gw, gatewayAddr(ip))
		if err == nil && added && gw.Index == br.Index {
			br, err = pin(s, br, r.Interfaces[0].MAC)
		}
		if err != nil {
			return err
		}
	}
	return s.Forward(r.IPs)
}

// gatewayAddr returns the gateway of ip with the prefix length of ip. A gateway of the other family
// gets /32 or /128, because its prefix length is unknown.
func gatewayAddr(ip cni.IP) netip.Prefix {
	if ip.Gateway.Is4() != ip.Address.Addr().Is4() {
		return netip.PrefixFrom(ip.Gateway, ip.Gateway.BitLen())
	}
	return netip.PrefixFrom(ip.Gateway, ip.Address.Bits())
}

// ensureAddr assigns a gateway address to gw. Any other IPv4 address of gw conflicts, unless
// multipleGateways is set, and any address of an overlapping network.
func (c *Config) ensureAddr(
	s *attach.Session, gw kernel.Link, want netip.Prefix,
) (added bool, err error) {
	have, err := s.Host.Addrs.Of(gw)
	if err != nil {
		return false, err
	}
	var conflicts []netip.Prefix
	for _, a := range have {
		if a == want {
			return false, nil
		}
		other := want.Addr().Is4() && !c.MultipleGateways
		if a.Addr().Is4() == want.Addr().Is4() && (other || a.Overlaps(want)) {
			conflicts = append(conflicts, a)
		}
	}
	if len(conflicts) > 0 && !c.ForceAddress {
		return false, cni.Errorf(cni.CodeInvalidConfig,
			"%q already has an IP address different from %s", gw.Name, want).
			WithDetails(fmt.Sprintf("found %v; set forceAddress to replace it%s", conflicts,
				c.multipleHint(want, conflicts)))
	}
	for _, a := range conflicts {
		if err := s.Host.Addrs.Delete(gw, a); err != nil {
			return false, err
		}
	}
	return s.Host.Addrs.EnsureGateway(gw, want)
}

// multipleHint returns a hint at multipleGateways if it would end the conflict.
func (c *Config) multipleHint(want netip.Prefix, conflicts []netip.Prefix) string {
	if slices.ContainsFunc(conflicts, want.Overlaps) {
		return ""
	}
	return ", or multipleGateways to keep it"
}

// pin sets the MAC address that the bridge had before the container's port joined, because
// neighbours cache the gateway's address. A bridge that had none, because it lost its last port,
// keeps its current address.
func pin(s *attach.Session, br kernel.Link, before string) (kernel.Link, error) {
	if mac, err := net.ParseMAC(before); err == nil {
		br.MAC = mac
	}
	return br, s.Host.Links.EnsureMAC(br, br.MAC)
}

func (c *Config) checkGateway(s *attach.Session, br kernel.Link) error {
	if !c.gateway() || len(s.Prev.IPs) == 0 {
		return nil
	}
	gw := br
	if c.VLAN != 0 {
		var err error
		if gw, err = c.checkVLANGateway(s, br); err != nil {
			return err
		}
	}
	have, err := s.Host.Addrs.Of(gw)
	if err != nil {
		return err
	}
	for _, ip := range s.PrevIPs() {
		want := gatewayAddr(ip)
		if ip.Gateway.IsValid() && !slices.Contains(have, want) {
			return fmt.Errorf("%s %s: expected gateway address %s, found %v", gw.Kind,
				gw.Name, want, have)
		}
	}
	return nil
}
