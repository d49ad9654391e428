package netlink

import (
	"encoding/binary"
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// u32Selector is struct tc_u32_sel (linux/pkt_cls.h), which keys follow.
type u32Selector struct {
	Flags, OffShift, Keys, _               uint8
	OffMask, Offset, KeyOffset, HashOffset uint16
	HashMask                               uint32
}

// u32Key is struct tc_u32_key (linux/pkt_cls.h): the words with a mask and a value are in the byte
// order of the network.
type u32Key struct {
	Mask, Value     uint32
	Offset, OffMask int32
}

// Of linux/pkt_cls.h.
const (
	u32ClassID = 1 // TCA_U32_…
	u32Sel     = 5
	u32Act     = 7

	u32Terminal = 1 // TC_U32_TERMINAL
)

// readKeys reads a selector.
func readKeys(selector []byte) ([]u32Key, error) {
	var about u32Selector
	rest, err := ReadBody(selector, &about)
	if err != nil {
		return nil, err
	}
	keys := make([]u32Key, about.Keys)
	_, err = ReadBody(rest, keys)
	return keys, err
}

// Where addresses are in the headers of IPv4 (RFC 791) and IPv6 (RFC 8200).
const (
	source4, destination4 = 12, 16
	source6, destination6 = 8, 24
)

// keys compare the prefix word by word. The words are in the byte order of the network.
func (m Match) keys() (keys []u32Key) {
	if !m.Prefix.IsValid() {
		return []u32Key{{}}
	}
	offset := source6
	switch is4 := m.Prefix.Addr().Is4(); {
	case is4 && m.Dst:
		offset = destination4
	case is4:
		offset = source4
	case m.Dst:
		offset = destination6
	}
	address := m.Prefix.Masked().Addr().AsSlice()
	mask := net.CIDRMask(m.Prefix.Bits(), m.Prefix.Addr().BitLen())
	for at := 0; at == 0 || at < (m.Prefix.Bits()+7)/8; at += 4 {
		keys = append(keys, u32Key{
			Mask:   binary.NativeEndian.Uint32(mask[at:]),
			Value:  binary.NativeEndian.Uint32(address[at:]),
			Offset: int32(offset + at),
		})
	}
	return keys
}

// decodeMatch is the inverse of keys.
func decodeMatch(protocol uint16, keys []u32Key) (m Match, ok bool) {
	if len(keys) == 0 {
		return m, false
	}
	address := make([]byte, 4)
	switch offset := keys[0].Offset; protocol {
	case unix.ETH_P_IP:
		m.Dst = offset == destination4
	case unix.ETH_P_IPV6:
		m.Dst = offset == destination6
		address = make([]byte, 16)
	default:
		return m, slices.Equal(m.keys(), keys)
	}
	if 4*len(keys) > len(address) {
		return m, false
	}
	length := 0
	for i, k := range keys {
		binary.NativeEndian.PutUint32(address[4*i:], k.Value)
		length += bits.OnesCount32(k.Mask)
	}
	a, _ := netip.AddrFromSlice(address)
	m.Prefix = netip.PrefixFrom(a, length)
	return m, m.Prefix.IsValid() && slices.Equal(m.keys(), keys)
}
