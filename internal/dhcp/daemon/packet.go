package daemon

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
)

// The ports of DHCP.
const (
	clientPort, serverPort   = 68, 67
	clientPort6, serverPort6 = 546, 547 // RFC 8415 section 7.2
)

const (
	ipLen, udpLen = 20, 8
	protocolUDP   = 17
	ttl           = 64
)

// errOther reports that a packet is not a UDP packet to the port.
var errOther = errors.New("not a UDP packet to the port")

// udp returns an IPv4 packet with a UDP datagram.
func udp(from, to netip.AddrPort, payload []byte) []byte {
	b := make([]byte, ipLen+udpLen, ipLen+udpLen+len(payload))
	b[0] = 4<<4 | ipLen/4
	binary.BigEndian.PutUint16(b[2:], uint16(ipLen+udpLen+len(payload)))
	b[8], b[9] = ttl, protocolUDP
	copy(b[12:], from.Addr().AsSlice())
	copy(b[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(sum(0, b[:ipLen])))
	u := b[ipLen:]
	binary.BigEndian.PutUint16(u, from.Port())
	binary.BigEndian.PutUint16(u[2:], to.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(udpLen+len(payload)))
	b = append(b, payload...)
	c := checksum(pseudo(b[:ipLen], b[ipLen:]))
	if c == 0 { // 0 stands for no checksum
		c = 0xffff
	}
	binary.BigEndian.PutUint16(b[ipLen+6:], c)
	return b
}

// parseUDP returns the UDP payload of an IPv4 packet to a port, and its source. With partial it
// does not check the UDP checksum: the kernel leaves the checksum to hardware, and a packet between
// two virtual links never passes hardware. For all other packets, including fragments and damaged
// packets, the error is errOther.
func parseUDP(
	b []byte, port uint16, partial bool,
) (payload []byte, from netip.AddrPort, err error) {
	if len(b) < ipLen || b[0]>>4 != 4 {
		return nil, from, errOther
	}
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < ipLen || total < header+udpLen || total > len(b) || b[9] != protocolUDP ||
		binary.BigEndian.Uint16(b[6:])&0x3fff != 0 ||
		checksum(sum(0, b[:header])) != 0 {
		return nil, from, errOther
	}
	u := b[header:total]
	size := int(binary.BigEndian.Uint16(u[4:]))
	if binary.BigEndian.Uint16(u[2:]) != port || size < udpLen || size > len(u) {
		return nil, from, errOther
	}
	if !partial && binary.BigEndian.Uint16(u[6:]) != 0 &&
		checksum(pseudo(b[:ipLen], u[:size])) != 0 {
		return nil, from, errOther
	}
	return u[udpLen:size],
		netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:])), binary.BigEndian.Uint16(u)), nil
}

// pseudo sums a datagram with the pseudo header of its IP header.
func pseudo(ip, datagram []byte) uint32 {
	return sum(sum(protocolUDP+uint32(len(datagram)), ip[12:20]), datagram)
}

func sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func checksum(s uint32) uint16 {
	for s>>16 != 0 {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

const (
	arpLen     = 28
	arpRequest = 1
)

// arpProbe returns an ARP request for an address with the sender 0.0.0.0 (RFC 5227 section 1.1),
// which changes no ARP cache.
func arpProbe(mac net.HardwareAddr, address netip.Addr) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, arpRequest}
	b = append(b, mac...)
	b = append(b, 0, 0, 0, 0)
	b = append(b, make([]byte, 6)...)
	return append(b, address.AsSlice()...)
}

// claims returns the sender of an ARP packet if the sender has an address or probes it. It returns
// nil if the sender is mac itself.
func claims(b []byte, mac net.HardwareAddr, address netip.Addr) net.HardwareAddr {
	if len(b) < arpLen || string(b[:6]) != "\x00\x01\x08\x00\x06\x04" {
		return nil
	}
	sender, from, target := net.HardwareAddr(b[8:14]), netip.AddrFrom4([4]byte(b[14:])),
		netip.AddrFrom4([4]byte(b[24:]))
	probe := b[7] == arpRequest && from.IsUnspecified() && target == address
	if sender.String() == mac.String() || from != address && !probe {
		return nil
	}
	return append(net.HardwareAddr(nil), sender...)
}
