package sbr

import (
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
)

// gateways are the gateways of the configuration, for IPv4 under true.
type gateways map[bool]netip.Addr

func parseGateways(texts []string) (gateways, error) {
	if len(texts) > 2 {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "gateways list cannot contain more than 2 entries, it has %d", len(texts)).
			WithDetails("one of IPv4, one of IPv6")
	}
	g := gateways{}
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		a = a.Unmap()
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "gateways: invalid static gateway IP address %q", text)
		}
		if _, ok := g[a.Is4()]; ok {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "gateways list contains multiple %s addresses", map[bool]string{true: "IPv4", false: "IPv6"}[a.Is4()]).
				WithDetails("one of IPv4, one of IPv6")
		}
		g[a.Is4()] = a
	}
	return g, nil
}

// of returns the gateway of the default route for an address, and whether it goes before those that the interface has.
func (g gateways) of(ip cni.IP) (gw netip.Addr, chosen bool) {
	if gw, ok := g[ip.Address.Addr().Is4()]; ok {
		return gw, true
	}
	return ip.Gateway, false
}
