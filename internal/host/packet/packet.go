// Package packet evaluates the rule sets of a namespace for one packet, as the kernel would: the
// base chains of a hook by their priority, jumps, sets and maps, translations, and the conditions
// and targets of iptables. A rule that it cannot evaluate is reported and counts as not matching,
// so that a caller can say so. The package is pure: it works on what package host has read.
package packet

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Packet is a packet at a hook, with what rules can ask about it.
type Packet struct {
	Src, Dst         netip.Addr
	Protocol         uint8  // IPPROTO_…
	SrcPort, DstPort uint16 // of TCP and UDP; type and code of ICMP are in DstPort
	TCPFlags         uint8  // 2: SYN
	Length           int    // bytes of the network layer, headers included
	TTL              uint8
	SrcMAC, DstMAC   net.HardwareAddr // at bridge hooks
	In, Out          Interface        // no name: none; since Linux 5.6, postrouting knows In, too
	Mark             uint32
	UID              uint32 // of the sender, in packets of this host
	Conn             Connection

	// Restored is the destination of a reply to a packet with a translated source. The hook
	// prerouting or output gives it to the packet where translations of destinations have their
	// place among the base chains (NF_IP_PRI_NAT_DST).
	Restored netip.AddrPort

	// Choices decides conditions that are met at random; nil: they cannot be evaluated.
	Choices *Choices
}

// restore gives the packet its destination Restored.
func (p *Packet) restore() {
	if p.Restored.IsValid() {
		p.Dst, p.DstPort, p.Restored = p.Restored.Addr(), p.Restored.Port(), netip.AddrPort{}
	}
}

// Interface is the incoming or outgoing interface of a packet.
type Interface struct {
	Index    int
	Name     string
	Kind     string
	Loopback bool
	Bridge   string // the bridge of a port
}

// Connection is the entry of a packet in the connection table.
type Connection struct {
	State  uint32 // one bit: Invalid, Established, Related, New, Untracked
	Status uint32 // IPS_…
	Reply  bool   // the packet goes from the destination to the source of the connection
	Mark   uint32
	Label  [16]byte
	Zone   uint16
	// The connection as its first packet asked for it.
	OrigSrc, OrigDst         netip.Addr
	OrigSrcPort, OrigDstPort uint16
}

// The states of connections, as nftables and iptables number them (NF_CT_STATE_BIT).
const (
	Invalid     = 1
	Established = 2
	Related     = 4
	New         = 8
	Untracked   = 64
)

// Status bits of a connection (enum ip_conntrack_status).
const (
	SeenReply = 1 << 1
	Assured   = 1 << 2
	Confirmed = 1 << 3
	SrcNAT    = 1 << 4
	DstNAT    = 1 << 5
)

// is4 reports whether the packet is IPv4.
func (p *Packet) is4() bool { return p.Src.Is4() }

// family returns NFPROTO_IPV4 or NFPROTO_IPV6.
func (p *Packet) family() uint8 {
	if p.is4() {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

// etherType returns ETH_P_IP or ETH_P_IPV6.
func (p *Packet) etherType() uint16 {
	if p.is4() {
		return unix.ETH_P_IP
	}
	return unix.ETH_P_IPV6
}

// link encodes the Ethernet header, nil if the packet has none.
func (p *Packet) link() []byte {
	if len(p.SrcMAC) != 6 || len(p.DstMAC) != 6 {
		return nil
	}
	b := append(append([]byte{}, p.DstMAC...), p.SrcMAC...)
	return binary.BigEndian.AppendUint16(b, p.etherType())
}

// network encodes the header of the network layer.
func (p *Packet) network() []byte {
	src, dst := p.Src.AsSlice(), p.Dst.AsSlice()
	if p.is4() {
		const size = 20
		b := make([]byte, size)
		b[0], b[6], b[8], b[9] = 4<<4|size/4, 1<<6 /* do not fragment */, p.TTL, p.Protocol
		binary.BigEndian.PutUint16(b[2:], uint16(p.Length))
		copy(b[12:], src)
		copy(b[16:], dst)
		return b
	}
	const size = 40
	b := make([]byte, size)
	b[0], b[6], b[7] = 6<<4, p.Protocol, p.TTL
	binary.BigEndian.PutUint16(b[4:], uint16(max(p.Length-size, 0)))
	copy(b[8:], src)
	copy(b[24:], dst)
	return b
}

// transport encodes the header of the transport layer.
func (p *Packet) transport() []byte {
	switch p.Protocol {
	case unix.IPPROTO_TCP:
		b := make([]byte, 20)
		binary.BigEndian.PutUint16(b, p.SrcPort)
		binary.BigEndian.PutUint16(b[2:], p.DstPort)
		b[12], b[13] = 5<<4, p.TCPFlags
		return b
	case unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, unix.IPPROTO_DCCP:
		b := make([]byte, 8)
		binary.BigEndian.PutUint16(b, p.SrcPort)
		binary.BigEndian.PutUint16(b[2:], p.DstPort)
		return b
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		b := make([]byte, 8)
		binary.BigEndian.PutUint16(b, p.DstPort)
		return b
	}
	return nil
}
