package nftmsg

import (
	"encoding/binary"
	"net/netip"
)

// NATRange decodes the first address and port of a target of iptables that translates addresses. A
// part that the target does not change is invalid or 0. ok is false if info is too short.
//
// info is struct nf_nat_ipv4_multi_range_compat, or one of nf_nat_range and nf_nat_range2, which
// begin alike (include/uapi/linux/netfilter/nf_nat.h).
func NATRange(f Family, info []byte) (to netip.AddrPort, ok bool) {
	const (
		old, current      = 20, 40 // bytes
		mapIPs, mapProtos = 1, 2   // NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED
	)
	var flags uint32
	var address, port []byte
	switch {
	case len(info) >= current:
		flags, address, port = binary.NativeEndian.Uint32(info), info[4:20], info[36:]
		if f == IPv4 {
			address = address[:4]
		}
	case len(info) >= old && f == IPv4: // the number of ranges, then one
		flags, address, port = binary.NativeEndian.Uint32(info[4:]), info[8:12], info[16:]
	default:
		return to, false
	}
	var a netip.Addr
	if flags&mapIPs != 0 {
		a, _ = netip.AddrFromSlice(address)
	}
	n := uint16(0)
	if flags&mapProtos != 0 {
		n = binary.BigEndian.Uint16(port)
	}
	return netip.AddrPortFrom(a, n), true
}
