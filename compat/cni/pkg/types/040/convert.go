package types040

import (
	"errors"

	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
	"github.com/containernetworking/cni/pkg/types/internal/results"
)

// supported are the versions of this package.
var supported = []string{"0.3.0", "0.3.1", ImplementedSpecVersion}

func init() {
	older := []string{"0.1.0", types020.ImplementedSpecVersion}
	results.RegisterDecoder(supported, NewResult)
	results.RegisterConverter(supported, supported, results.Typed(convert))
	results.RegisterConverter(older, supported, results.Typed(from020))
	results.RegisterConverter(supported, older, results.Typed(to020))
}

// convert returns a deep copy of r with the version to.
func convert(r *Result, to string) (types.Result, error) {
	return &Result{
		CNIVersion: to,
		Interfaces: results.Copies(r.Interfaces),
		IPs:        results.Copies(r.IPs),
		Routes:     results.Copies(r.Routes),
		DNS:        *r.DNS.Copy(),
	}, nil
}

// from020 puts the IPv4 address before the IPv6 address and joins their routes in the same order.
func from020(r *types020.Result, to string) (types.Result, error) {
	converted := &Result{CNIVersion: to, DNS: *r.DNS.Copy()}
	add := func(family string, ip *types020.IPConfig) {
		if ip == nil {
			return
		}
		converted.IPs = append(converted.IPs,
			&IPConfig{Version: family, Address: ip.IP, Gateway: ip.Gateway})
		for _, route := range ip.Routes {
			converted.Routes = append(converted.Routes, route.Copy())
		}
	}
	add("4", r.IP4)
	add("6", r.IP6)
	return converted, nil
}

// to020 keeps the first address of each family, and of the routes of these families the destination
// and the gateway.
func to020(r *Result, to string) (types.Result, error) {
	converted := &types020.Result{CNIVersion: to, DNS: *r.DNS.Copy()}
	for _, ip := range r.IPs {
		switch {
		case ip == nil:
		case ip.Version == "4" && converted.IP4 == nil:
			converted.IP4 = &types020.IPConfig{IP: ip.Address, Gateway: ip.Gateway}
		case ip.Version == "6" && converted.IP6 == nil:
			converted.IP6 = &types020.IPConfig{IP: ip.Address, Gateway: ip.Gateway}
		}
	}
	if converted.IP4 == nil && converted.IP6 == nil {
		return nil, errors.New("cannot convert: no valid IP addresses")
	}
	for _, route := range r.Routes {
		if route == nil {
			continue
		}
		ip := converted.IP6
		if route.Dst.IP.To4() != nil {
			ip = converted.IP4
		}
		if ip != nil {
			ip.Routes = append(ip.Routes, types.Route{Dst: route.Dst, GW: route.GW})
		}
	}
	return converted, nil
}
