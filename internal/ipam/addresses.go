package ipam

import (
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
)

// Addresses returns the addresses of ips, with their prefix lengths.
func Addresses(ips []cni.IP) []netip.Prefix {
	list := make([]netip.Prefix, len(ips))
	for i, ip := range ips {
		list[i] = ip.Address
	}
	return list
}
