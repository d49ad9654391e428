package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
)

// ParseRequested parses a requested address, "ADDRESS" or "ADDRESS/LENGTH", and ignores the length.
func ParseRequested(s string) (netip.Addr, error) {
	if s == "" {
		// upstream's text
		return netip.Addr{}, errors.New("cannot understand ip: IP <nil> not v4 nor v6")
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		var p netip.Prefix
		p, err = netip.ParsePrefix(s)
		a = p.Addr()
	}
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("invalid IP address %s", s)
	}
	return a.Unmap(), nil
}

// Addresses returns the addresses of ips, with their prefix lengths.
func Addresses(ips []cni.IP) []netip.Prefix {
	list := make([]netip.Prefix, len(ips))
	for i, ip := range ips {
		list[i] = ip.Address
	}
	return list
}

// assign gives each set the first requested address that lies in it and in no earlier set, or the
// zero Addr.
func assign(sets []RangeSet, requested []netip.Addr) ([]netip.Addr, error) {
	var left []netip.Addr
	for _, a := range requested {
		if !slices.Contains(left, a) {
			left = append(left, a)
		}
	}
	assigned := make([]netip.Addr, len(sets))
	for i, set := range sets {
		if at := slices.IndexFunc(left, set.Contains); at >= 0 {
			assigned[i] = left[at]
			left = slices.Delete(left, at, at+1)
		}
	}
	if len(left) > 0 {
		return nil, &LeftoverError{left}
	}
	return assigned, nil
}
