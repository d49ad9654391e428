package ptp

import (
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// gatewayRoutes returns a route from the container to each gateway, with the first address that
// uses it as the source.
func gatewayRoutes(ips []cni.IP) []kernel.Route {
	var routes []kernel.Route
	for _, ip := range firsts(ips, func(ip cni.IP) netip.Addr { return ip.Gateway }) {
		if ip.Gateway.IsValid() {
			routes = append(routes, kernel.Route{
				Dst: single(ip.Gateway), Scope: kernel.ScopeLink, Src: ip.Address.Addr(),
			})
		}
	}
	return routes
}

// leaveNetworks replaces the kernel's on-link routes for the networks of the addresses by routes
// through the gateways.
func leaveNetworks(space *kernel.Space, link kernel.Link, ips []cni.IP) error {
	have, err := space.Routes.All(kernel.TableMain)
	if err != nil {
		return err
	}
	for _, ip := range firsts(ips, func(ip cni.IP) netip.Prefix { return ip.Address.Masked() }) {
		network := ip.Address.Masked()
		if network.IsSingleIP() {
			continue
		}
		for _, rt := range have {
			if rt.Dst != network || rt.Link != link.Index || rt.Gateway().IsValid() {
				continue
			}
			if err := space.Routes.Delete(link, rt); err != nil {
				return err
			}
		}
		if err := space.Routes.Add(link, kernel.Route{
			Dst: network, GW: ip.Gateway, Src: ip.Address.Addr(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// hostRoute returns the route from the host to an address of the container.
func hostRoute(ip cni.IP) kernel.Route {
	return kernel.Route{Dst: single(ip.Address.Addr()), Scope: kernel.ScopeHost}
}

// delegates reports whether the container gets the whole network of an address.
func (c *Config) delegates(ip cni.IP) bool {
	return c.DelegatePrefix && ip.Address.Addr().Is6() && !ip.Address.IsSingleIP()
}

// prefixRoute returns the route from the host to the network of an address, for delegatePrefix.
func prefixRoute(ip cni.IP) kernel.Route {
	return kernel.Route{Dst: ip.Address.Masked(), GW: ip.Address.Addr()}
}

// delegate routes the network of an address to the container. It refuses a network that has a route
// through another interface: the kernel would distribute the packets. In the container the kernel's
// route to the network stays, because a route through the gateway would return packets to addresses
// that nothing uses, until their hop limit ends.
func delegate(space *kernel.Space, link kernel.Link, ip cni.IP) error {
	rt := prefixRoute(ip)
	if err := space.Routes.Add(link, rt); err != nil {
		return err
	}
	// after the change, so that of two concurrent calls at least one sees the other's route
	have, err := space.Routes.All(kernel.TableMain)
	if err != nil {
		return err
	}
	for _, other := range have {
		if other.Dst == rt.Dst && other.Link != link.Index {
			return cni.Errorf(cni.CodeInvalidConfig,
				"delegatePrefix: network %s already has the route %s", rt.Dst, other).
				WithDetails("use an IPAM plugin that gives each container a network of its own, " +
					"such as cluster with a pool that has prefixBits")
		}
	}
	return nil
}

// firsts returns the first address for each key.
func firsts[K comparable](ips []cni.IP, key func(cni.IP) K) []cni.IP {
	var list []cni.IP
	seen := map[K]bool{}
	for _, ip := range ips {
		if k := key(ip); !seen[k] {
			seen[k] = true
			list = append(list, ip)
		}
	}
	return list
}
