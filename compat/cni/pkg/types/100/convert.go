package types100

import (
	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	"github.com/containernetworking/cni/pkg/types/internal/results"
)

// supported are the versions of this package.
var supported = []string{"1.0.0", ImplementedSpecVersion}

func init() {
	from020 := results.Typed(func(r *types020.Result, to string) (types.Result, error) {
		return throughOldLists(r, to)
	})
	to020 := results.Typed(func(r *Result, to string) (types.Result, error) {
		return throughOldLists(r, to)
	})
	oldest := []string{"0.1.0", types020.ImplementedSpecVersion}
	old := []string{"0.3.0", "0.3.1", types040.ImplementedSpecVersion}
	results.RegisterDecoder(supported, NewResult)
	results.RegisterConverter(supported, supported, results.Typed(convert))
	results.RegisterConverter(old, supported, results.Typed(from040))
	results.RegisterConverter(supported, old, results.Typed(to040))
	results.RegisterConverter(oldest, supported, from020)
	results.RegisterConverter(supported, oldest, to020)
}

// convert returns a copy of r with the version to. The copy shares all lists with r.
func convert(r *Result, to string) (types.Result, error) {
	c := *r
	c.CNIVersion = to
	return &c, nil
}

// throughOldLists converts a result to or from 0.2.0 by way of 0.4.0, which loses nothing more.
func throughOldLists(r types.Result, to string) (types.Result, error) {
	lists, err := results.Convert(r, types040.ImplementedSpecVersion)
	if err != nil {
		return nil, err
	}
	return results.Convert(lists, to)
}

// from040 drops the versions of addresses. Elements that are nil stay nil, so that indexes of
// interfaces stay valid.
func from040(r *types040.Result, to string) (types.Result, error) {
	converted := &Result{
		CNIVersion: to,
		Routes:     results.Copies(r.Routes),
		DNS:        *r.DNS.Copy(),
	}
	for _, i := range r.Interfaces {
		var c *Interface
		if i != nil {
			c = &Interface{Name: i.Name, Mac: i.Mac, Sandbox: i.Sandbox}
		}
		converted.Interfaces = append(converted.Interfaces, c)
	}
	for _, ip := range r.IPs {
		var c *IPConfig
		if ip = ip.Copy(); ip != nil {
			c = &IPConfig{Interface: ip.Interface, Address: ip.Address, Gateway: ip.Gateway}
		}
		converted.IPs = append(converted.IPs, c)
	}
	return converted, nil
}

// to040 derives the versions of addresses and drops the members of interfaces that 1.1.0
// introduced. Elements that are nil stay nil.
func to040(r *Result, to string) (types.Result, error) {
	converted := &types040.Result{
		CNIVersion: to,
		Routes:     results.Copies(r.Routes),
		DNS:        *r.DNS.Copy(),
	}
	for _, i := range r.Interfaces {
		var c *types040.Interface
		if i != nil {
			c = &types040.Interface{Name: i.Name, Mac: i.Mac, Sandbox: i.Sandbox}
		}
		converted.Interfaces = append(converted.Interfaces, c)
	}
	for _, ip := range r.IPs {
		var c *types040.IPConfig
		if ip = ip.Copy(); ip != nil {
			c = &types040.IPConfig{
				Version:   family(ip),
				Interface: ip.Interface,
				Address:   ip.Address,
				Gateway:   ip.Gateway,
			}
		}
		converted.IPs = append(converted.IPs, c)
	}
	return converted, nil
}

// family returns the version of an address as 0.4.0 writes it; an invalid address counts as IPv6.
func family(ip *IPConfig) string {
	if ip.Address.IP.To4() != nil {
		return "4"
	}
	return "6"
}
