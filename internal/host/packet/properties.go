package packet

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// meta loads a property of the packet.
func (m *machine) meta(e nftmsg.Meta) bool {
	p := m.packet
	in, out := p.In, p.Out
	name := func(s string) bool {
		if s == "" {
			return false // the kernel ends the rule
		}
		return m.load(e.Register, pad([]byte(s), unix.IFNAMSIZ))
	}
	switch e.Key {
	case unix.NFT_META_LEN:
		return m.load(e.Register, native(uint32(p.Length)))
	case unix.NFT_META_PROTOCOL:
		return m.load(e.Register, binary.BigEndian.AppendUint16(nil, p.etherType()))
	case unix.NFT_META_NFPROTO:
		return m.load(e.Register, []byte{p.family()})
	case unix.NFT_META_L4PROTO:
		return m.load(e.Register, []byte{p.Protocol})
	case unix.NFT_META_MARK:
		return m.load(e.Register, native(p.Mark))
	case unix.NFT_META_IIF:
		return m.load(e.Register, native(uint32(in.Index)))
	case unix.NFT_META_OIF:
		return m.load(e.Register, native(uint32(out.Index)))
	case unix.NFT_META_IIFNAME:
		return m.load(e.Register, pad([]byte(in.Name), unix.IFNAMSIZ))
	case unix.NFT_META_OIFNAME:
		return m.load(e.Register, pad([]byte(out.Name), unix.IFNAMSIZ))
	case unix.NFT_META_IIFTYPE:
		return m.hardware(e.Register, in)
	case unix.NFT_META_OIFTYPE:
		return m.hardware(e.Register, out)
	case metaIIFKind:
		return name(in.Kind)
	case metaOIFKind:
		return name(out.Kind)
	case unix.NFT_META_BRI_IIFNAME:
		return name(in.Bridge)
	case unix.NFT_META_BRI_OIFNAME:
		return name(out.Bridge)
	case unix.NFT_META_PKTTYPE:
		return m.load(e.Register, []byte{unix.PACKET_HOST})
	case unix.NFT_META_SKUID:
		if in.Name != "" {
			return false // no socket sent it
		}
		return m.load(e.Register, native(p.UID))
	case metaSecPath:
		return m.load(e.Register, []byte{0})
	case unix.NFT_META_PRIORITY:
		return m.load(e.Register, native(0))
	}
	return m.cannot("meta")
}

// hardware loads the type of a device (ARPHRD_…).
func (m *machine) hardware(register uint32, i Interface) bool {
	kind := uint16(unix.ARPHRD_ETHER)
	switch {
	case i.Name == "":
		return false
	case i.Loopback:
		kind = unix.ARPHRD_LOOPBACK
	case i.Kind == "tun" || i.Kind == "wireguard":
		kind = unix.ARPHRD_NONE
	}
	return m.load(register, binary.NativeEndian.AppendUint16(nil, kind))
}

// setMeta changes the mark. Other changes do not concern a rule.
func (m *machine) setMeta(raw nftmsg.Raw) bool {
	if numberOf(raw, unix.NFTA_META_KEY) == unix.NFT_META_MARK {
		m.packet.Mark = binary.NativeEndian.Uint32(m.slot(numberOf(raw, unix.NFTA_META_SREG)))
	}
	return true
}

// ct loads or changes a property of the connection.
func (m *machine) ct(raw nftmsg.Raw) bool {
	c := &m.packet.Conn
	key := numberOf(raw, unix.NFTA_CT_KEY)
	if source := numberOf(raw, unix.NFTA_CT_SREG); source != 0 {
		switch key {
		case unix.NFT_CT_MARK:
			c.Mark = binary.NativeEndian.Uint32(m.slot(source))
		case unix.NFT_CT_LABELS: // the kernel only adds labels
			for i, b := range m.slot(source)[:len(c.Label)] {
				c.Label[i] |= b
			}
		}
		return true
	}
	register := numberOf(raw, unix.NFTA_CT_DREG)
	if c.State == Untracked && key != unix.NFT_CT_STATE {
		return false // there is no entry
	}
	src, dst, srcPort, dstPort := c.OrigSrc, c.OrigDst, c.OrigSrcPort, c.OrigDstPort
	port := func(n uint16) bool { return m.load(register, binary.BigEndian.AppendUint16(nil, n)) }
	switch key {
	case unix.NFT_CT_STATE:
		return m.load(register, native(c.State))
	case unix.NFT_CT_STATUS:
		return m.load(register, native(c.Status))
	case unix.NFT_CT_MARK:
		return m.load(register, native(c.Mark))
	case unix.NFT_CT_LABELS:
		return m.load(register, c.Label[:])
	case unix.NFT_CT_ZONE:
		return m.load(register, binary.NativeEndian.AppendUint16(nil, c.Zone))
	case unix.NFT_CT_DIRECTION:
		direction := []byte{0}
		if c.Reply {
			direction[0] = 1
		}
		return m.load(register, direction)
	case unix.NFT_CT_L3PROTOCOL:
		return m.load(register, []byte{m.packet.family()})
	case unix.NFT_CT_PROTOCOL:
		return m.load(register, []byte{m.packet.Protocol})
	}
	original := numberOf(raw, unix.NFTA_CT_DIRECTION) == 0
	if !original {
		return m.cannot("ct reply") // the translated tuple is not known before the connection exists
	}
	switch key {
	case unix.NFT_CT_SRC, unix.NFT_CT_SRC_IP, unix.NFT_CT_SRC_IP6:
		return m.load(register, src.AsSlice())
	case unix.NFT_CT_DST, unix.NFT_CT_DST_IP, unix.NFT_CT_DST_IP6:
		return m.load(register, dst.AsSlice())
	case unix.NFT_CT_PROTO_SRC:
		return port(srcPort)
	case unix.NFT_CT_PROTO_DST:
		return port(dstPort)
	}
	return m.cannot("ct")
}

// Keys of meta that package unix lacks.
const metaSecPath, metaIIFKind, metaOIFKind = 25, 26, 27 // NFT_META_SECPATH, …
