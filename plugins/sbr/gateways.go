package sbr

import (
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// gateways are the gateways of the configuration; the key is true for IPv4.
type gateways map[bool]netip.Addr

func parseGateways(texts []string) (gateways, error) {
	if len(texts) > 2 {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"gateways list cannot contain more than 2 entries, it has %d", len(texts)).
			WithDetails("set at most one IPv4 and one IPv6 gateway")
	}
	g := gateways{}
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		a = a.Unmap()
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return nil, cni.Errorf(cni.CodeInvalidConfig,
				"gateways: invalid static gateway IP address %q", text)
		}
		if _, ok := g[a.Is4()]; ok {
			family := map[bool]string{true: "IPv4", false: "IPv6"}[a.Is4()]
			return nil, cni.Errorf(cni.CodeInvalidConfig,
				"gateways list contains multiple %s addresses", family).
				WithDetails("set at most one IPv4 and one IPv6 gateway")
		}
		g[a.Is4()] = a
	}
	return g, nil
}

// of returns the gateway of the default route for an address, unless the kernel would refuse it.
// chosen reports whether it comes from the configuration and therefore replaces the gateways of the
// interface.
func (g gateways) of(ip cni.IP) (gw netip.Addr, chosen bool) {
	if gw, ok := g[ip.Address.Addr().Is4()]; ok {
		return gw, true
	}
	if !defaultRoute(ip.Address.Addr(), ip.Gateway).Possible() {
		return netip.Addr{}, false
	}
	return ip.Gateway, false
}

// defaultRoute returns the default route of the family of addr through gw.
func defaultRoute(addr, gw netip.Addr) kernel.Route {
	return kernel.Route{Dst: netip.PrefixFrom(addr, 0).Masked(), GW: gw}
}

// warn logs the gateways that cannot be used in a route.
func (g gateways) warn(s *chained.Session, ips []cni.IP) {
	for _, ip := range ips {
		if gw, _ := g.of(ip); !gw.IsValid() && ip.Gateway.IsValid() {
			s.Log.Warn(
				"no default route for an IPv6 address with an IPv4 gateway: the kernel has no "+
					"such routes", "address", ip.Address, "gateway", ip.Gateway)
		}
	}
}
