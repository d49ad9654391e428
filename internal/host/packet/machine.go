package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// machine evaluates one rule. Its registers are as in the kernel: 16 of 4 bytes (NFT_REG32_…),
// which are also 4 of 16 bytes (NFT_REG_…).
type machine struct {
	*walker
	place     Place
	registers [64]byte
	verdict   *nftmsg.Verdict
	doubt     string // the part that could not be evaluated
	limited   bool   // the rule has a limit
	perhaps   string // a condition that could not be evaluated, in a rule that goes on
}

// run evaluates the rule. It returns nil if the rule does not decide about the packet. A condition
// that cannot be evaluated raises a doubt only if the packet meets all others.
func (m *machine) run(rule nftmsg.ListedRule) *nftmsg.Verdict {
	for _, e := range rule.Exprs {
		if m.step(e) {
			continue
		}
		if m.perhaps != "" && m.verdict != nil {
			m.doubt, m.verdict = m.perhaps, nil
		}
		if m.limited && m.verdict != nil {
			m.result.Limits = append(m.result.Limits, m.place)
		}
		return m.verdict
	}
	return nil
}

// slot returns the bytes from a register on.
func (m *machine) slot(register uint32) []byte {
	switch {
	case register >= unix.NFT_REG32_00 && register <= unix.NFT_REG32_15:
		return m.registers[(register-unix.NFT_REG32_00)*4:]
	case register >= unix.NFT_REG_1 && register <= unix.NFT_REG_4:
		return m.registers[(register-unix.NFT_REG_1)*16:]
	}
	return make([]byte, len(m.registers)) // not a register of data
}

// load fills a register, padded to words of 4 bytes.
func (m *machine) load(register uint32, value []byte) bool {
	slot := m.slot(register)
	n := copy(slot, value)
	clear(slot[n:min(netlink.Align(n), len(slot))])
	return true
}

// unsure goes on after a condition of iptables that cannot be evaluated.
func (m *machine) unsure(part string) bool {
	m.perhaps = part
	return true
}

// cannot ends a rule that cannot be evaluated.
func (m *machine) cannot(part string) bool {
	m.doubt = part
	return false
}

// unlimited assumes that a limit is not exhausted.
func (m *machine) unlimited() bool {
	m.limited = true
	return true
}

func (m *machine) decide(v nftmsg.Verdict) bool {
	m.verdict = &v
	return false
}

// step evaluates an expression and reports whether the rule goes on.
func (m *machine) step(raw nftmsg.Raw) bool {
	switch e := raw.Read().(type) {
	case nftmsg.Meta:
		return m.meta(e)
	case nftmsg.Payload:
		return m.payload(e)
	case nftmsg.Mask:
		// The source register differs from the destination in rules of other programs.
		return m.bitwise(raw)
	case nftmsg.Cmp:
		return compare(m.slot(e.Register)[:len(e.Data)], e.Op, e.Data)
	case nftmsg.Range:
		value := m.slot(e.Register)[:len(e.From)]
		inside := bytes.Compare(value, e.From) >= 0 && bytes.Compare(value, e.To) <= 0
		return inside == (e.Op == unix.NFT_RANGE_EQ)
	case nftmsg.Immediate:
		return m.load(e.Register, e.Value)
	case nftmsg.Verdict:
		return m.decide(e)
	case nftmsg.Match:
		return m.match(e)
	case nftmsg.Target:
		if m.perhaps != "" && !passes(e.Name) {
			return m.cannot(m.perhaps)
		}
		return m.target(e)
	case nftmsg.Counter:
		m.place.Packets, m.place.Counted = e.Packets, true
		return true
	}
	return m.other(raw)
}

// other evaluates the expressions that Read leaves encoded.
func (m *machine) other(raw nftmsg.Raw) bool {
	if m.perhaps != "" && slices.Contains([]string{"nat", "masq", "redir", "notrack"}, raw.Name) {
		return m.cannot(m.perhaps)
	}
	switch raw.Name {
	case "log", "dynset", "objref", "last", "dup", "flow_offload":
		return true // they do not decide about this packet
	case "limit", "quota", "connlimit":
		return m.unlimited()
	case "notrack":
		m.packet.Conn.State = Untracked
		return true
	case "bitwise":
		return m.bitwise(raw)
	case "byteorder":
		return m.byteorder(raw)
	case "lookup":
		return m.lookup(raw)
	case "ct":
		return m.ct(raw)
	case "meta":
		return m.setMeta(raw)
	case "fib":
		return m.fib(raw)
	case "numgen":
		return m.number(raw)
	case "nat", "masq", "redir":
		return m.nat(raw)
	case "reject":
		return m.decide(nftmsg.Verdict{Code: verdictReject})
	case "queue":
		return m.decide(nftmsg.Verdict{Code: verdictQueue})
	}
	return m.cannot(raw.Name)
}

func numberOf(raw nftmsg.Raw, kind uint16) uint32 {
	if v := netlink.Find(raw.Data, kind); len(v) == 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func valueOf(raw nftmsg.Raw, kind uint16) []byte {
	return netlink.Find(netlink.Find(raw.Data, kind), unix.NFTA_DATA_VALUE)
}

// compare compares as memcmp does.
func compare(a []byte, op uint32, b []byte) bool {
	c := bytes.Compare(a, b)
	switch op {
	case unix.NFT_CMP_EQ:
		return c == 0
	case unix.NFT_CMP_NEQ:
		return c != 0
	case unix.NFT_CMP_LT:
		return c < 0
	case unix.NFT_CMP_LTE:
		return c <= 0
	case unix.NFT_CMP_GT:
		return c > 0
	case unix.NFT_CMP_GTE:
		return c >= 0
	}
	return false
}

func (m *machine) payload(e nftmsg.Payload) bool {
	var header []byte
	switch e.Base {
	case unix.NFT_PAYLOAD_LL_HEADER:
		header = m.packet.link()
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		header = m.packet.network()
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		header = m.packet.transport()
	}
	end := int(e.Offset) + int(e.Len)
	if e.Register == 0 || e.Len > 64 {
		return m.cannot("a change of the packet")
	}
	if end > len(header) {
		if header == nil && e.Base == unix.NFT_PAYLOAD_LL_HEADER {
			return m.cannot("link layer header")
		}
		return false // the kernel ends the rule, too
	}
	return m.load(e.Register, header[e.Offset:end])
}

// Attributes of bitwise that package unix lacks.
const bitwiseOp, bitwiseData = 6, 7 // NFTA_BITWISE_OP, NFTA_BITWISE_DATA

func (m *machine) bitwise(raw nftmsg.Raw) bool {
	from := m.slot(numberOf(raw, unix.NFTA_BITWISE_SREG))
	size := int(numberOf(raw, unix.NFTA_BITWISE_LEN))
	mask, xor := valueOf(raw, unix.NFTA_BITWISE_MASK), valueOf(raw, unix.NFTA_BITWISE_XOR)
	if numberOf(raw, bitwiseOp) != 0 || size > 16 || len(mask) < size || len(xor) < size {
		return m.cannot("bitwise")
	}
	result := make([]byte, size)
	for i := range result {
		result[i] = from[i]&mask[i] ^ xor[i]
	}
	return m.load(numberOf(raw, unix.NFTA_BITWISE_DREG), result)
}

func (m *machine) byteorder(raw nftmsg.Raw) bool {
	from := m.slot(numberOf(raw, unix.NFTA_BYTEORDER_SREG))
	size := int(numberOf(raw, unix.NFTA_BYTEORDER_SIZE))
	length := int(numberOf(raw, unix.NFTA_BYTEORDER_LEN))
	if size < 2 || length > 16 || length%size != 0 {
		return m.cannot("byteorder")
	}
	result := slices.Clone(from[:length])
	if binary.NativeEndian.Uint16([]byte{0, 1}) != 1 { // not big-endian
		for word := range slices.Chunk(result, size) {
			slices.Reverse(word)
		}
	}
	return m.load(numberOf(raw, unix.NFTA_BYTEORDER_DREG), result)
}

// lookup looks a key up in a set, a map or a verdict map.
func (m *machine) lookup(raw nftmsg.Raw) bool {
	name := netlink.Text(netlink.Find(raw.Data, unix.NFTA_LOOKUP_SET))
	set := m.rules.sets[chainKey{m.base.Table, name}]
	if set == nil || set.KeyLen > 64 {
		return m.cannot("set " + name)
	}
	e := find(set, m.slot(numberOf(raw, unix.NFTA_LOOKUP_SREG))[:set.KeyLen])
	if inverted := numberOf(raw, unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0; inverted {
		return e == nil
	}
	if e == nil {
		return false
	}
	if netlink.Find(raw.Data, unix.NFTA_LOOKUP_DREG) == nil {
		return true
	}
	if e.Verdict != nil {
		return m.decide(*e.Verdict)
	}
	return m.load(numberOf(raw, unix.NFTA_LOOKUP_DREG), e.Value)
}

// find returns the element for a key, nil if there is none.
func find(s *nftmsg.ListedSet, key []byte) *nftmsg.Element {
	for i := range s.Elements {
		if e := &s.Elements[i]; contains(s, e, key) {
			return e
		}
	}
	return s.CatchAll
}

func contains(s *nftmsg.ListedSet, e *nftmsg.Element, key []byte) bool {
	if !s.Intervals || e.KeyEnd == nil {
		return bytes.Equal(pad(e.Key, len(key)), key)
	}
	fields := s.Fields
	if fields == nil {
		fields = []uint32{s.KeyLen}
	}
	first, last := pad(e.Key, len(key)), pad(e.KeyEnd, len(key))
	for _, size := range fields { // each padded to 4 bytes
		n, step := int(size), min(netlink.Align(int(size)), len(key))
		if n > len(key) || bytes.Compare(key[:n], first[:n]) < 0 || bytes.Compare(key[:n], last[:n]) > 0 {
			return false
		}
		key, first, last = key[step:], first[step:], last[step:]
	}
	return true
}

func pad(b []byte, size int) []byte {
	if len(b) >= size {
		return b[:size]
	}
	return append(slices.Clone(b), make([]byte, size-len(b))...)
}

// fib asks about a route. Keys are the type of an address and the interface of the route.
func (m *machine) fib(raw nftmsg.Raw) bool {
	flags := numberOf(raw, unix.NFTA_FIB_FLAGS)
	source := flags&unix.NFTA_FIB_F_SADDR != 0
	register := numberOf(raw, unix.NFTA_FIB_DREG)
	switch numberOf(raw, unix.NFTA_FIB_RESULT) {
	case unix.NFT_FIB_RESULT_ADDRTYPE:
		return m.load(register, native(m.rules.lookup.Type(m.packet, source)))
	case unix.NFT_FIB_RESULT_OIF, unix.NFT_FIB_RESULT_OIFNAME:
		out, ok := m.rules.lookup.Out(m.packet, source)
		if flags&unix.NFTA_FIB_F_IIF != 0 && out.Index != m.packet.In.Index {
			ok = false
		}
		if flags&unix.NFTA_FIB_F_PRESENT != 0 {
			present := []byte{0}
			if ok {
				present[0] = 1
			}
			return m.load(register, present)
		}
		if !ok {
			out = Interface{}
		}
		if numberOf(raw, unix.NFTA_FIB_RESULT) == unix.NFT_FIB_RESULT_OIF {
			return m.load(register, native(uint32(out.Index)))
		}
		return m.load(register, pad([]byte(out.Name), unix.IFNAMSIZ))
	}
	return m.cannot("fib")
}

// Attributes of numgen (enum nft_ng_attributes).
const numgenDreg, numgenModulus, numgenOffset = 1, 2, 4

// number generates a number, at random or by counting.
func (m *machine) number(raw nftmsg.Raw) bool {
	modulus := numberOf(raw, numgenModulus)
	if m.packet.Choices == nil || modulus == 0 || modulus > maxModulus {
		return m.cannot("numgen")
	}
	n := numberOf(raw, numgenOffset) + uint32(m.packet.Choices.choose(int(modulus)))
	return m.load(numberOf(raw, numgenDreg), native(n))
}

// maxModulus limits the numbers that are tried.
const maxModulus = 1 << 10

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// nat translates the source or the destination.
func (m *machine) nat(raw nftmsg.Raw) bool {
	p := m.packet
	destination := raw.Name == "redir"
	addrRegister, portRegister := uint32(0), uint32(0)
	switch raw.Name {
	case "nat":
		destination = numberOf(raw, unix.NFTA_NAT_TYPE) == unix.NFT_NAT_DNAT
		addrRegister = numberOf(raw, unix.NFTA_NAT_REG_ADDR_MIN)
		portRegister = numberOf(raw, unix.NFTA_NAT_REG_PROTO_MIN)
	case "redir":
		portRegister = numberOf(raw, unix.NFTA_REDIR_REG_PROTO_MIN)
	}
	addr := netip.Addr{}
	if addrRegister != 0 {
		addr, _ = netip.AddrFromSlice(m.slot(addrRegister)[:p.Src.BitLen()/8])
	}
	port := uint16(0)
	if portRegister != 0 {
		port = binary.BigEndian.Uint16(m.slot(portRegister))
	}
	m.translate(netip.AddrPortFrom(addr, port), destination)
	return m.decide(nftmsg.Verdict{Code: nftmsg.Accept})
}

// translate changes the packet. An invalid address stands for one that the kernel chooses: of the
// outgoing interface for a source, of this host for a destination. A translation that changes
// nothing leaves no trace in the status of the connection.
func (m *machine) translate(to netip.AddrPort, destination bool) {
	p := m.packet
	m.translated = true
	m.result.NAT = append(m.result.NAT, m.place)
	addr, port, of, status := &p.Src, &p.SrcPort, p.Out, uint32(SrcNAT)
	if destination {
		addr, port, of, status = &p.Dst, &p.DstPort, p.In, DstNAT
	}
	before, beforePort := *addr, *port
	if to.Addr().IsValid() {
		*addr = to.Addr()
	} else if destination && m.hook == unix.NF_INET_LOCAL_OUT { // nf_nat_redirect.c
		*addr = netip.IPv6Loopback()
		if p.is4() {
			*addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
	} else if own, ok := m.rules.lookup.Own(of.Index, p.is4()); ok {
		*addr = own
	}
	if to.Port() != 0 {
		*port = to.Port()
	}
	if *addr != before || *port != beforePort {
		p.Conn.Status |= status
	}
}
