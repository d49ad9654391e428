package nftmsg

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Destination returns the address and port to which a rule translates the destination of packets.
// It returns the first address and port of a range. The port is 0 if the rule keeps the port of the
// packet. ok is false for other rules, and for translations to an address that a map holds or that
// the kernel chooses.
func Destination(f Family, exprs []Raw) (to netip.AddrPort, ok bool) {
	values := map[uint32][]byte{}
	for _, raw := range exprs {
		switch e := raw.Read().(type) {
		case Immediate:
			values[e.Register] = e.Value
		case NAT:
			a, ok := netip.AddrFromSlice(values[e.Addr])
			if e.Type != unix.NFT_NAT_DNAT || !ok {
				return to, false
			}
			port := uint16(0)
			if v := values[e.Port]; len(v) >= 2 {
				port = binary.BigEndian.Uint16(v)
			}
			return netip.AddrPortFrom(a, port), true
		case Target:
			if e.Name != "DNAT" {
				continue
			}
			to, ok := NATRange(f, e.Info)
			if !ok || !to.Addr().IsValid() {
				return netip.AddrPort{}, false
			}
			return to, true
		}
	}
	return to, false
}

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
