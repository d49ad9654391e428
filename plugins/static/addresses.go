package static

import (
	"net/netip"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/plugin"
)

// addresses returns the addresses of the capability ips. Without it, it returns the addresses of
// args.cni.ips, or else the configured addresses and the addresses of CNI_ARGS.
func (c *Config) addresses(call *plugin.Call) ([]cni.IP, error) {
	if c.IPAM == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "IPAM config missing 'ipam' key")
	}
	configured := c.IPAM.Addresses
	var ips []cni.IP
	var err error
	switch {
	case len(call.RuntimeConfig.IPs) > 0:
		ips, err = requested(call.RuntimeConfig.IPs, configured)
	case len(call.ConfArgs.CNI.IPs) > 0:
		ips, err = requested(call.ConfArgs.CNI.IPs, configured)
	default:
		ips, err = withArgs(call, configured)
	}
	if err != nil {
		return nil, err
	}
	if call.Version < cni.V030 && !ipam.DistinctFamilies(ips) {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"CNI version %v does not support more than 1 address per family", call.Version).
			WithDetails("use cniVersion 0.3.0 or newer")
	}
	return ips, nil
}

// withArgs returns the configured addresses and the addresses of CNI_ARGS. GATEWAY applies only to
// addresses of CNI_ARGS.
func withArgs(call *plugin.Call, configured []Address) ([]cni.IP, error) {
	var ips []cni.IP
	for _, a := range configured {
		p, err := parsePrefix(a.Address)
		if err != nil {
			return nil, cni.Errorf(cni.CodeInvalidConfig,
				"the 'address' field is expected to be in CIDR notation, got: '%s'", a.Address)
		}
		ips = append(ips, cni.IP{Address: p, Gateway: a.Gateway.Unmap()})
	}
	asked, err := fromArgs(call.Args, configured)
	return append(ips, asked...), err
}

// fromArgs returns the addresses of CNI_ARGS.
func fromArgs(text string, configured []Address) ([]cni.IP, error) {
	args, err := cni.ParseArgs(text)
	if err != nil {
		return nil, err
	}
	var ips []cni.IP
	for _, s := range items(args, "IP") {
		ip, ok := parse(s, configured)
		if !ok {
			return nil, cni.Errorf(cni.CodeInvalidEnvironment,
				"the 'ip' field is expected to be in CIDR notation, got: '%s'", s)
		}
		ips = append(ips, ip)
	}
	for _, s := range items(args, "GATEWAY") {
		gw, err := netip.ParseAddr(s)
		if err != nil {
			return nil, cni.Errorf(cni.CodeInvalidEnvironment, "invalid gateway address: %s", s)
		}
		for i := range ips {
			if ips[i].Address.Contains(gw.Unmap()) {
				ips[i].Gateway = gw.Unmap()
			}
		}
	}
	return ips, nil
}

// items returns the values of a key of CNI_ARGS, which are separated by commas.
func items(args cni.Args, key string) []string {
	text, _ := args.Get(key)
	if text == "" {
		return nil
	}
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// requested parses addresses that were requested in JSON.
func requested(texts []string, configured []Address) ([]cni.IP, error) {
	var ips []cni.IP
	for _, s := range texts {
		ip, ok := parse(s, configured)
		if !ok {
			return nil, cni.Errorf(cni.CodeInvalidConfig,
				"an entry in the 'ips' field is NOT in CIDR notation, got: '%s'", s).
				WithDetails("add a prefix length: no network in ipam.addresses contains the address")
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// parse reads a requested address. An address without a prefix length takes length and gateway from
// the configured address with a network that contains it.
func parse(s string, configured []Address) (ip cni.IP, ok bool) {
	if p, err := parsePrefix(s); err == nil {
		return cni.IP{Address: p}, true
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return cni.IP{}, false
	}
	addr = addr.Unmap()
	for _, a := range configured {
		if p, err := parsePrefix(a.Address); err == nil && p.Contains(addr) {
			return cni.IP{Address: netip.PrefixFrom(addr, p.Bits()), Gateway: a.Gateway.Unmap()}, true
		}
	}
	return cni.IP{}, false
}

// parsePrefix parses an address with its prefix length. An IPv4 address in the notation of IPv6,
// such as ::ffff:10.1.2.3/120, becomes an IPv4 address, as in upstream.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	const mapped = 96 // bits of ::ffff:0:0/96
	if err == nil && p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p, err
}
