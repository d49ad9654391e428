package nfttext

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// value is what a register holds: a property of the packet, or constant data.
type value struct {
	text string // "ip saddr"; "" for constant data
	typ  dataType
	data []byte // constant
	size int    // bytes
	mask []byte // of the property; nil: all bits
}

// printer writes one rule. It follows the registers, numbered by words of 4 bytes.
type printer struct {
	ruleset   *nftmsg.Ruleset
	table     nftmsg.Table
	values    map[uint32]value
	transport string // protocol that the rule has compared
	parts     []string
	unknown   []string // expressions that cannot be written
}

// word returns the number of the first word of a register.
func word(register uint32) uint32 {
	if register >= unix.NFT_REG32_00 {
		return register - unix.NFT_REG32_00
	}
	return (register - unix.NFT_REG_1) * 4
}

func (p *printer) load(register uint32, v value) { p.values[word(register)] = v }
func (p *printer) get(register uint32) value     { return p.values[word(register)] }
func (p *printer) add(format string, args ...any) {
	p.parts = append(p.parts, fmt.Sprintf(format, args...))
}

// find returns an attribute of an expression as a number.
func find(raw nftmsg.Raw, kind uint16) uint32 {
	if v := netlink.Find(raw.Data, kind); len(v) == 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func long(raw nftmsg.Raw, kind uint16) uint64 {
	if v := netlink.Find(raw.Data, kind); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// expr writes an expression or loads a register.
func (p *printer) expr(raw nftmsg.Raw) {
	switch e := raw.Read().(type) {
	case nftmsg.Meta:
		p.load(e.Register, meta(e.Key))
	case nftmsg.Payload:
		p.load(e.Register, p.payload(e))
	case nftmsg.Mask:
		v := p.get(find(raw, unix.NFTA_BITWISE_SREG))
		v.mask = e.Bits
		p.load(e.Register, v)
	case nftmsg.Cmp:
		p.compare(e)
	case nftmsg.Range:
		v := p.get(e.Register)
		p.add("%s %s%s-%s", v.text, map[bool]string{true: "!= "}[e.Op != unix.NFT_RANGE_EQ],
			v.typ.format(e.From), v.typ.format(e.To))
	case nftmsg.Immediate:
		p.load(e.Register, value{data: e.Value, size: len(e.Value)})
	case nftmsg.Verdict:
		p.add("%s", verdict(e))
	case nftmsg.Match:
		p.unknown = append(p.unknown, fmt.Sprintf("match %s of iptables", e.Name))
	case nftmsg.Target:
		p.unknown = append(p.unknown, fmt.Sprintf("target %s of iptables", e.Name))
	case nftmsg.NAT:
		p.nat(raw, e)
	default:
		p.other(raw)
	}
}

// other writes the expressions that Read leaves encoded.
func (p *printer) other(raw nftmsg.Raw) {
	switch raw.Name {
	case "counter":
		p.add("counter packets %d bytes %d", long(raw, unix.NFTA_COUNTER_PACKETS),
			long(raw, unix.NFTA_COUNTER_BYTES))
	case "lookup":
		p.lookup(raw)
	case "ct":
		if find(raw, unix.NFTA_CT_SREG) != 0 {
			p.add("%s set %s", ct(raw).text, p.constant(find(raw, unix.NFTA_CT_SREG), ct(raw).typ))
			return
		}
		p.load(find(raw, unix.NFTA_CT_DREG), ct(raw))
	case "meta":
		m := meta(find(raw, unix.NFTA_META_KEY))
		p.add("%s set %s", m.text, p.constant(find(raw, unix.NFTA_META_SREG), m.typ))
	case "fib":
		p.load(find(raw, unix.NFTA_FIB_DREG), fib(raw))
	case "byteorder":
		p.load(find(raw, unix.NFTA_BYTEORDER_DREG), p.get(find(raw, unix.NFTA_BYTEORDER_SREG)))
	case "masq":
		p.add("masquerade%s", flags(find(raw, unix.NFTA_MASQ_FLAGS)))
	case "redir":
		to := ""
		if r := find(raw, unix.NFTA_REDIR_REG_PROTO_MIN); r != 0 {
			to = " to :" + p.constant(r, typeService)
		}
		p.add("redirect%s%s", to, flags(find(raw, unix.NFTA_REDIR_FLAGS)))
	case "log":
		if prefix := netlink.Text(netlink.Find(raw.Data, unix.NFTA_LOG_PREFIX)); prefix != "" {
			p.add("log prefix %s", quote(prefix))
			return
		}
		p.add("log")
	case "reject":
		p.reject(raw)
	case "limit":
		p.limit(raw)
	case "notrack":
		p.add("notrack")
	default:
		p.unknown = append(p.unknown, raw.Name)
	}
}

// constant returns the value of a register as a value of a type.
func (p *printer) constant(register uint32, typ dataType) string {
	v := p.get(register)
	if v.data == nil {
		return v.text
	}
	return typ.format(v.data)
}

// compare writes a condition.
func (p *printer) compare(e nftmsg.Cmp) {
	v := p.get(e.Register)
	op := map[uint32]string{unix.NFT_CMP_NEQ: "!= ", unix.NFT_CMP_LT: "< ", unix.NFT_CMP_LTE: "<= ",
		unix.NFT_CMP_GT: "> ", unix.NFT_CMP_GTE: ">= "}[e.Op]
	whole := v.typ.format(e.Data)
	zero := len(bytes.Trim(e.Data, "\x00")) == 0
	addresses := v.typ == typeIPv4 || v.typ == typeIPv6
	size := definitions()[v.typ].size
	switch {
	case v.mask != nil && addresses && prefixLength(v.mask) >= 0:
		whole += fmt.Sprintf("/%d", prefixLength(v.mask))
	case v.mask != nil && zero && e.Op == unix.NFT_CMP_NEQ && definitions()[v.typ].flags != nil:
		op, whole = "", v.typ.word(v.typ.number(v.mask)) // any of some bits
	case v.mask != nil && definitions()[v.typ].flags != nil:
		op = fmt.Sprintf("& (%s) %s", strings.ReplaceAll(v.typ.word(v.typ.number(v.mask)), ",", "|"),
			equality(op))
		whole = strings.ReplaceAll(whole, ",", "|")
	case v.mask != nil:
		op = fmt.Sprintf("& 0x%x %s", v.typ.number(v.mask), equality(op))
		whole = fmt.Sprintf("0x%x", v.typ.number(e.Data))
	case addresses && len(e.Data) < size: // a prefix of whole bytes
		padded := append(slices.Clone(e.Data), make([]byte, size-len(e.Data))...)
		whole = fmt.Sprintf("%s/%d", v.typ.format(padded), len(e.Data)*8)
	}
	if v.typ == typeProtocol && op == "" {
		p.transport = whole
	}
	p.add("%s %s%s", v.text, op, whole)
}

func equality(op string) string {
	if op == "" {
		return "== "
	}
	return op
}

// prefixLength returns the number of leading ones of a mask, -1 if it has holes.
func prefixLength(mask []byte) (n int) {
	for i, b := range mask {
		ones := bits.LeadingZeros8(^b)
		n += ones
		if ones < 8 {
			if b<<ones != 0 || len(bytes.Trim(mask[i+1:], "\x00")) > 0 {
				return -1
			}
			return n
		}
	}
	return n
}

// lookup writes a condition on a set, or loads a value from a map.
func (p *printer) lookup(raw nftmsg.Raw) {
	name := netlink.Text(netlink.Find(raw.Data, unix.NFTA_LOOKUP_SET))
	i := slices.IndexFunc(p.ruleset.Sets, func(s nftmsg.ListedSet) bool {
		return s.Table == p.table && s.Name == name
	})
	if i < 0 {
		p.unknown = append(p.unknown, "set "+name)
		return
	}
	s := &p.ruleset.Sets[i]
	set := "@" + name
	if s.Flags&unix.NFT_SET_ANONYMOUS != 0 {
		set = "{ " + strings.Join(elements(s), ", ") + " }"
	}
	key := p.key(find(raw, unix.NFTA_LOOKUP_SREG), int(s.KeyLen))
	into := netlink.Find(raw.Data, unix.NFTA_LOOKUP_DREG)
	const inverted = 1 // NFT_LOOKUP_F_INV
	switch {
	case into == nil && find(raw, unix.NFTA_LOOKUP_FLAGS)&inverted != 0:
		p.add("%s != %s", key, set)
	case into == nil:
		p.add("%s %s", key, set)
	case s.DataType == verdictData:
		p.add("%s vmap %s", key, set)
	default:
		types := split(s.DataType, s.DataLen)
		p.load(find(raw, unix.NFTA_LOOKUP_DREG),
			value{text: fmt.Sprintf("%s map %s", key, set), typ: types[0], size: int(s.DataLen)})
	}
}

// key returns the concatenation of the registers that make up a key of a set.
func (p *printer) key(register uint32, size int) string {
	var parts []string
	for at := word(register); size > 0; {
		v, ok := p.values[at]
		if !ok || v.size == 0 {
			break
		}
		text := v.text
		if v.mask != nil {
			text += fmt.Sprintf(" & 0x%x", v.mask)
		}
		parts = append(parts, text)
		words := (v.size + 3) / 4
		at += uint32(words)
		size -= words * 4
	}
	return strings.Join(parts, " . ")
}

// nat writes a translation of addresses.
func (p *printer) nat(raw nftmsg.Raw, e nftmsg.NAT) {
	name := "snat"
	if e.Type == unix.NFT_NAT_DNAT {
		name = "dnat"
	}
	typ, family := typeIPv4, "ip"
	if e.Family == unix.NFPROTO_IPV6 {
		typ, family = typeIPv6, "ip6"
	}
	if p.table.Family == nftmsg.INet {
		name += " " + family
	}
	to := ""
	if e.Addr != 0 {
		v := p.get(e.Addr)
		if to = p.constant(e.Addr, typ); typ == typeIPv6 && e.Port != 0 && v.data != nil {
			to = "[" + to + "]"
		}
		if last := find(raw, unix.NFTA_NAT_REG_ADDR_MAX); last != 0 && last != e.Addr {
			to += "-" + p.constant(last, typ)
		}
		if v.text != "" && v.size > definitions()[typ].size {
			name, e.Port = strings.TrimSuffix(name, " "+family)+" "+family, 0 // the map has the port, too
		}
	}
	if e.Port != 0 {
		to += ":" + p.constant(e.Port, typeService)
		if last := find(raw, unix.NFTA_NAT_REG_PROTO_MAX); last != 0 && last != e.Port {
			to += "-" + p.constant(last, typeService)
		}
	}
	p.add("%s to %s%s", name, to, flags(find(raw, unix.NFTA_NAT_FLAGS)))
}

// flags returns the flags of a translation (NF_NAT_RANGE_…).
func flags(n uint32) string {
	var names []string
	for bit, name := range map[uint32]string{4: "random", 8: "persistent", 16: "fully-random"} {
		if n&bit != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if names == nil {
		return ""
	}
	return " " + strings.Join(names, ",")
}

// reject writes a refusal with its message.
func (p *printer) reject(raw nftmsg.Raw) {
	code := uint64(0)
	if v := netlink.Find(raw.Data, unix.NFTA_REJECT_ICMP_CODE); len(v) == 1 {
		code = uint64(v[0])
	}
	const icmpx, reset = 2, 1
	switch find(raw, unix.NFTA_REJECT_TYPE) {
	case reset:
		p.add("reject with tcp reset")
	case icmpx:
		names := []string{"no-route", "port-unreachable", "host-unreachable", "admin-prohibited"}
		p.add("reject with icmpx %s", names[min(code, 3)])
	default:
		family := "icmp"
		if p.table.Family == nftmsg.IPv6 {
			family = "icmpv6"
		}
		p.add("reject with %s %d", family, code)
	}
}

// limit writes a limit of packets or bytes in time.
func (p *printer) limit(raw nftmsg.Raw) {
	unit := map[uint64]string{1: "second", 60: "minute", 3600: "hour", 86400: "day", 604800: "week"}[long(raw, unix.NFTA_LIMIT_UNIT)]
	over := ""
	if find(raw, unix.NFTA_LIMIT_FLAGS)&1 != 0 {
		over = "over "
	}
	if find(raw, unix.NFTA_LIMIT_TYPE) == unix.NFT_LIMIT_PKT_BYTES {
		p.add("limit rate %s%d bytes/%s", over, long(raw, unix.NFTA_LIMIT_RATE), unit)
		return
	}
	p.add("limit rate %s%d/%s burst %d packets", over, long(raw, unix.NFTA_LIMIT_RATE), unit,
		find(raw, unix.NFTA_LIMIT_BURST))
}
