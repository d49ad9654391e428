package netlink

import (
	"encoding/binary"
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// u32Selector is struct tc_u32_sel (linux/pkt_cls.h); keys follow it.
type u32Selector struct {
	Flags, OffShift, Keys, _               uint8
	OffMask, Offset, KeyOffset, HashOffset uint16
	HashMask                               uint32
}

// u32Key is struct tc_u32_key (linux/pkt_cls.h): words with a mask and a value, in network byte
// order.
type u32Key struct {
	Mask, Value     uint32
	Offset, OffMask int32
}

// Constants of linux/pkt_cls.h.
const (
	u32ClassID = 1 // TCA_U32_…
	u32Sel     = 5
	u32Act     = 7

	u32Terminal = 1 // TC_U32_TERMINAL
)

// readKeys decodes a selector.
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

// offset returns the offset of the address in the header of IPv4 (RFC 791) or IPv6 (RFC 8200).
func (m Match) offset() int {
	switch is4 := m.Prefix.Addr().Is4(); {
	case is4 && m.Dst:
		return 16
	case is4:
		return 12
	case m.Dst:
		return 24
	}
	return 8
}

// keys returns the keys that compare the prefix word by word, in network byte order.
func (m Match) keys() (keys []u32Key) {
	if !m.Prefix.IsValid() {
		return []u32Key{{}}
	}
	address := m.Prefix.Masked().Addr().AsSlice()
	mask := net.CIDRMask(m.Prefix.Bits(), m.Prefix.Addr().BitLen())
	for at := 0; at == 0 || at < (m.Prefix.Bits()+7)/8; at += 4 {
		keys = append(keys, u32Key{
			Mask:   binary.NativeEndian.Uint32(mask[at:]),
			Value:  binary.NativeEndian.Uint32(address[at:]),
			Offset: int32(m.offset() + at),
		})
	}
	return keys
}

// decodeMatch is the inverse of keys.
func decodeMatch(protocol uint16, keys []u32Key) (m Match, ok bool) {
	address := make([]byte, map[uint16]int{unix.ETH_P_IP: 4, unix.ETH_P_IPV6: 16}[protocol])
	if len(address) == 0 {
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
	if !m.Prefix.IsValid() {
		return m, false
	}
	if slices.Equal(m.keys(), keys) {
		return m, true
	}
	m.Dst = true
	return m, slices.Equal(m.keys(), keys)
}
