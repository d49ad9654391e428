package nfttext

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// dataType is a type of values, as nft(8) numbers it (enum datatypes in include/datatype.h of
// nftables).
type dataType uint32

const (
	typeNFProto   dataType = 2
	typeInteger   dataType = 4
	typeString    dataType = 5
	typeIPv4      dataType = 7
	typeIPv6      dataType = 8
	typeEther     dataType = 9
	typeEtherType dataType = 10
	typeProtocol  dataType = 12
	typeService   dataType = 13
	typeICMP      dataType = 14
	typeTCPFlags  dataType = 15
	typeMark      dataType = 19
	typeIfIndex   dataType = 20
	typeCtState   dataType = 26
	typeCtDir     dataType = 27
	typeCtStatus  dataType = 28
	typeICMPv6    dataType = 29
	typePktType   dataType = 31
	typeFibAddr   dataType = 38
	typeIfName    dataType = 41
	typeNative    dataType = 60 // not a type of nft(8): a number of 2 bytes

	verdictData = 0xffffff00 // NFT_DATA_VERDICT
)

// definition describes a type.
type definition struct {
	name   string
	size   int
	native bool // numbers in the byte order of the host
	words  map[uint64]string
	flags  []string // names of bits, from the lowest
}

var definitions = sync.OnceValue(func() map[dataType]definition {
	return map[dataType]definition{
		typeNFProto:   {name: "nf_proto", size: 1, words: map[uint64]string{2: "ipv4", 10: "ipv6"}},
		typeIPv4:      {name: "ipv4_addr", size: 4},
		typeIPv6:      {name: "ipv6_addr", size: 16},
		typeEther:     {name: "ether_addr", size: 6},
		typeEtherType: {name: "ether_type", size: 2, words: map[uint64]string{0x800: "ip", 0x86dd: "ip6", 0x806: "arp", 0x8100: "vlan"}},
		typeProtocol: {name: "inet_proto", size: 1, words: map[uint64]string{1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp",
			132: "sctp"}},
		typeService:  {name: "inet_service", size: 2},
		typeICMP:     {name: "icmp_type", size: 1},
		typeICMPv6:   {name: "icmpv6_type", size: 1},
		typeTCPFlags: {name: "tcp_flag", size: 1, flags: []string{"fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"}},
		typeMark:     {name: "mark", size: 4, native: true},
		typeIfIndex:  {name: "iface_index", size: 4, native: true},
		typeCtState: {name: "ct_state", size: 4, native: true,
			flags: []string{"invalid", "established", "related", "new", "", "", "untracked"}},
		typeCtDir: {name: "ct_dir", size: 1, words: map[uint64]string{0: "original", 1: "reply"}},
		typeCtStatus: {name: "ct_status", size: 4, native: true, flags: []string{"expected", "seen-reply", "assured", "confirmed", "snat",
			"dnat"}},
		typePktType: {name: "pkt_type", size: 1, words: map[uint64]string{0: "host", 1: "broadcast", 2: "multicast", 3: "other"}},
		typeFibAddr: {name: "fib_addrtype", size: 4, native: true, words: map[uint64]string{
			unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast",
			unix.RTN_ANYCAST: "anycast", unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole",
			unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit"}},
		typeIfName: {name: "ifname", size: unix.IFNAMSIZ},
		typeNative: {name: "integer", size: 2, native: true},
	}
})

// concat is a type of concatenated values.
type concat []dataType

// split returns the parts of a type: nft(8) packs several in 6 bits each.
func split(packed, size uint32) (list concat) {
	for ; packed > 0; packed >>= 6 {
		list = append(list, dataType(packed&0x3f))
	}
	slices.Reverse(list)
	if len(list) == 0 {
		list = concat{typeInteger}
	}
	if len(list) == 1 && definitions()[list[0]].size == 0 && size == 0 {
		return concat{typeInteger}
	}
	return list
}

// typeNames returns the types of the elements of a set.
func typeNames(packed, size uint32) string {
	var names []string
	for _, t := range split(packed, size) {
		name := definitions()[t].name
		if name == "" {
			name = fmt.Sprintf("integer, %d bits", size*8)
		}
		names = append(names, name)
	}
	return strings.Join(names, " . ")
}

// format returns a key with its parts. Each part fills whole words of 4 bytes.
func (c concat) format(key []byte) string {
	var parts []string
	for i, t := range c {
		size := definitions()[t].size
		if len(c) == 1 || size == 0 || size > len(key) {
			size = len(key)
		}
		parts = append(parts, t.format(key[:size]))
		if i < len(c)-1 {
			key = key[min(netlink.Align(size), len(key)):]
		}
	}
	return strings.Join(parts, " . ")
}

// keyRange returns the keys from one to another: each part is a value, a prefix or a range.
func keyRange(c concat, from, to []byte) string {
	var parts []string
	for i, t := range c {
		size := definitions()[t].size
		if len(c) == 1 || size == 0 || size > len(from) {
			size = len(from)
		}
		parts = append(parts, t.between(from[:size], to[:size]))
		if i < len(c)-1 {
			step := min(netlink.Align(size), len(from))
			from, to = from[step:], to[step:]
		}
	}
	return strings.Join(parts, " . ")
}

// between returns a value, a prefix or a range.
func (t dataType) between(from, to []byte) string {
	first, last := t.format(from), t.format(to)
	if first == last {
		return first
	}
	if t == typeIPv4 || t == typeIPv6 {
		if bits, ok := prefixOf(from, to); ok {
			return fmt.Sprintf("%s/%d", first, bits)
		}
	}
	if t == typeIfName {
		return first // a prefix of names, which format shows
	}
	return first + "-" + last
}

// prefixOf returns the length of the prefix that a range of addresses is.
func prefixOf(from, to []byte) (bits int, ok bool) {
	a, _ := netip.AddrFromSlice(from)
	for bits = range len(from) * 8 {
		p := netip.PrefixFrom(a, bits)
		if p.Masked().Addr() == a && slices.Equal(lastOf(p), to) {
			return bits, true
		}
	}
	return 0, false
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) []byte {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	return b
}

// format returns a value as nft(8) reads it.
func (t dataType) format(b []byte) string {
	switch d := definitions()[t]; {
	case t == typeIPv4 || t == typeIPv6:
		if a, ok := netip.AddrFromSlice(b); ok {
			return a.String()
		}
	case t == typeEther && len(b) == 6:
		return net.HardwareAddr(b).String()
	case t == typeIfName || t == typeString:
		return ifName(b)
	case d.words != nil || d.flags != nil:
		return t.word(t.number(b))
	case t == typeMark:
		return fmt.Sprintf("0x%08x", t.number(b))
	}
	if len(b) > 8 {
		return fmt.Sprintf("0x%x", b)
	}
	return fmt.Sprint(t.number(b))
}

// number reads a number in the byte order of its type.
func (t dataType) number(b []byte) (n uint64) {
	if definitions()[t].native && len(b) == 2 {
		return uint64(binary.NativeEndian.Uint16(b))
	}
	if definitions()[t].native && len(b) == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	for _, x := range b[:min(len(b), 8)] {
		n = n<<8 | uint64(x)
	}
	return n
}

// word returns the name of a number, or the names of its bits.
func (t dataType) word(n uint64) string {
	d := definitions()[t]
	if name, ok := d.words[n]; ok {
		return name
	}
	var names []string
	rest := n
	for bit, name := range d.flags {
		if name != "" && rest&(1<<bit) != 0 {
			names, rest = append(names, name), rest&^(1<<bit)
		}
	}
	if len(names) == 0 || rest != 0 {
		return fmt.Sprintf("0x%x", n)
	}
	return strings.Join(names, ",")
}

// ifName returns the name of an interface. A name that ends before its data is a prefix.
func ifName(b []byte) string {
	name := netlink.Text(b)
	if len(name) == len(b) && len(b) < unix.IFNAMSIZ {
		name += "*"
	}
	return quote(name)
}
