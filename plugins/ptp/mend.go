package ptp

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Mend implements [attach.Mender]: it restores the host-side veth, its addresses, the routes
// between both ends, and forwarding.
func (c *Config) Mend(
	_ context.Context, s *attach.Session, link kernel.Link, m *session.Mending,
) error {
	ips := s.PrevIPs()
	if err := c.mendInside(s, link, ips, m); err != nil {
		return err
	}
	host, err := s.MendHostEnd(m)
	if err != nil {
		return err
	}
	if err := s.MendGateways(host, gatewayAddr, func(want netip.Prefix) error {
		_, err := s.Host.Addrs.EnsureGateway(host, want)
		return err
	}, m); err != nil {
		return err
	}
	for _, ip := range ips {
		// A container of another network can have the same address: it keeps its packets.
		mendRoute(s.Host, host, hostRoute(ip), "", s.Host.Routes.Append, m)
		if c.delegates(ip) {
			mendRoute(s.Host, host, prefixRoute(ip), "", s.Host.Routes.Add, m)
		}
	}
	return s.MendForwarding(ips, m)
}

// mendInside restores the routes to the gateways, and through them to the networks.
func (c *Config) mendInside(
	s *attach.Session, link kernel.Link, ips []cni.IP, m *session.Mending,
) error {
	where := " in " + s.ContainerID
	for _, rt := range gatewayRoutes(ips) {
		mendRoute(s.Sandbox, link, rt, where, s.Sandbox.Routes.Add, m)
	}
	have, err := s.Sandbox.Routes.All(kernel.TableMain)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		network := ip.Address.Masked()
		if c.delegates(ip) || network.IsSingleIP() || !ip.Gateway.IsValid() {
			continue
		}
		var through, onLink []kernel.Route
		for _, rt := range have {
			switch {
			case rt.Dst != network || rt.Link != link.Index:
			case rt.Gateway().IsValid():
				through = append(through, rt)
			default: // the kernel adds it together with an address
				onLink = append(onLink, rt)
			}
		}
		if len(onLink) == 0 && s.Sandbox.Routes.Check(link, []kernel.Route{{Dst: network}}) == nil {
			continue
		}
		m.Fix(routeName(kernel.Route{Dst: network, GW: ip.Gateway}, link)+where, func() error {
			for _, rt := range through {
				if err := s.Sandbox.Routes.Delete(link, rt); err != nil {
					return err
				}
			}
			return leaveNetworks(s.Sandbox, link, []cni.IP{ip})
		})
	}
	return nil
}

// mendRoute restores a route with add, if it is missing. where follows its name.
func mendRoute(
	space *kernel.Space, link kernel.Link, rt kernel.Route, where string,
	add func(kernel.Link, kernel.Route) error, m *session.Mending,
) {
	if space.Routes.Check(link, []kernel.Route{rt}) != nil {
		m.Fix(routeName(rt, link)+where, func() error { return add(link, rt) })
	}
}

func routeName(rt kernel.Route, link kernel.Link) string {
	return fmt.Sprintf("route %s dev %s", rt, link.Name)
}
