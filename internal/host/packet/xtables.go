package packet

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// matches evaluate the conditions of iptables (struct xt_…, include/uapi/linux/netfilter). They
// return that the packet meets the condition, and whether it could be evaluated.
var matches = map[string]struct {
	size  int // of the structure
	match func(m *machine, b []byte, revision byte) (met, ok bool)
}{
	"tcp":       {12, matchTCP},
	"udp":       {9, matchUDP},
	"multiport": {32, matchMultiport},
	"conntrack": {152, matchConntrack},
	"state":     {4, matchState},
	"mark":      {9, matchMark},
	"connmark":  {9, matchConnmark},
	"addrtype":  {8, matchAddrType},
	"mac":       {12, matchMAC},
	"iprange":   {65, matchRange},
	"icmp":      {4, matchICMP},
	"icmp6":     {4, matchICMP},
	"length":    {5, matchLength},
	"rpfilter":  {1, matchRPFilter},
	"statistic": {8, matchStatistic},
}

// match evaluates a condition of iptables.
func (m *machine) match(e nftmsg.Match) bool {
	switch e.Name {
	case "comment":
		m.place.Comment = cmp.Or(m.place.Comment, netlink.Text(e.Info))
		return true
	case "limit", "hashlimit", "connlimit", "quota":
		return m.unlimited()
	}
	known, exists := matches[e.Name]
	if !exists || len(e.Info) < known.size {
		return m.unsure("iptables match " + e.Name)
	}
	met, ok := known.match(m, e.Info, e.Revision)
	if !ok {
		return m.unsure("iptables match " + e.Name)
	}
	return met
}

func short(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func word(b []byte) uint32  { return binary.NativeEndian.Uint32(b) }

// ports compares a range of source ports and one of destination ports.
func (m *machine) ports(b []byte, inverted byte) bool {
	p := m.packet
	source := p.SrcPort >= short(b) && p.SrcPort <= short(b[2:])
	destination := p.DstPort >= short(b[4:]) && p.DstPort <= short(b[6:])
	return source == (inverted&1 == 0) && destination == (inverted&2 == 0)
}

func matchTCP(m *machine, b []byte, _ byte) (met, ok bool) {
	option, mask, wanted, inverted := b[8], b[9], b[10], b[11]
	flags := m.packet.TCPFlags&mask == wanted
	return m.packet.Protocol == unix.IPPROTO_TCP && m.ports(b, inverted&3) &&
		(mask == 0 || flags == (inverted&4 == 0)), option == 0
}

func matchUDP(m *machine, b []byte, _ byte) (met, ok bool) {
	return m.packet.Protocol == unix.IPPROTO_UDP && m.ports(b, b[8]), true
}

// matchMultiport decodes struct xt_multiport_v1: flags, count, ports, which port begins a range,
// and inversion.
func matchMultiport(m *machine, b []byte, revision byte) (met, ok bool) {
	const most, ranges = 15, 32
	if revision != 1 || len(b) < ranges+most+1 || b[1] > most {
		return false, false
	}
	var has bool
	for i := 0; i < int(b[1]); i++ {
		first := short(b[2+2*i:])
		last := first
		if b[ranges+i] != 0 && i+1 < int(b[1]) {
			i++
			last = short(b[2+2*i:])
		}
		source := m.packet.SrcPort >= first && m.packet.SrcPort <= last
		destination := m.packet.DstPort >= first && m.packet.DstPort <= last
		switch b[0] {
		case 0:
			has = has || source
		case 1:
			has = has || destination
		default:
			has = has || source || destination
		}
	}
	return has == (b[ranges+most] == 0), true
}

// The conditions of the match conntrack (XT_CONNTRACK_…).
const (
	conntrackState   = 1 << 0
	conntrackProto   = 1 << 1
	conntrackOrigSrc = 1 << 2
	conntrackOrigDst = 1 << 3
	conntrackStatus  = 1 << 6
	conntrackOrigDP  = 1 << 9
	conntrackDir     = 1 << 12

	stateSNAT, stateDNAT, stateUntracked = 1 << 6, 1 << 7, 1 << 8
)

// matchConntrack decodes struct xt_conntrack_mtinfo1 to 3: eight addresses of 16 bytes, two limits
// of the life, and numbers of 2 bytes.
func matchConntrack(m *machine, b []byte, revision byte) (met, ok bool) {
	const (
		proto, destPort, flagsAt, invertedAt, stateAt, statusAt = 136, 140, 146, 148, 150, 152

		stateAlias = 1 << 13
		known      = conntrackState | conntrackProto | conntrackOrigSrc | conntrackOrigDst |
			conntrackStatus | conntrackOrigDP | conntrackDir | stateAlias
	)
	c := &m.packet.Conn
	flags, inverted := short(b[flagsAt:]), short(b[invertedAt:])
	stateMask, statusMask := uint32(short(b[stateAt:])), uint32(0)
	if revision == 1 {
		stateMask, statusMask = uint32(b[stateAt]), uint32(b[stateAt+1])
	} else if len(b) >= statusAt+2 {
		statusMask = uint32(short(b[statusAt:]))
	}
	state := c.State
	if state == Untracked {
		state = stateUntracked
	}
	if c.Status&SrcNAT != 0 {
		state |= stateSNAT
	}
	if c.Status&DstNAT != 0 {
		state |= stateDNAT
	}
	conditions := []struct {
		flag uint16
		met  bool
	}{
		{conntrackState, state&stateMask != 0},
		{conntrackProto, uint16(m.packet.Protocol) == short(b[proto:])},
		{conntrackOrigSrc, masked(c.OrigSrc, b, b[16:])},
		{conntrackOrigDst, masked(c.OrigDst, b[32:], b[48:])},
		{conntrackStatus, c.Status&statusMask != 0},
		{conntrackOrigDP, c.OrigDstPort == short(b[destPort:])},
		{conntrackDir, c.Reply == (inverted&conntrackDir != 0)},
	}
	for _, x := range conditions {
		not := inverted&x.flag != 0 && x.flag != conntrackDir
		if flags&x.flag != 0 && x.met == not {
			return false, flags&^known == 0
		}
	}
	return true, flags&^known == 0
}

// masked compares an address with one under a mask.
func masked(a netip.Addr, address, mask []byte) bool {
	for i, x := range a.AsSlice() {
		if (x^address[i])&mask[i] != 0 {
			return false
		}
	}
	return true
}

func matchState(m *machine, b []byte, _ byte) (met, ok bool) {
	return m.packet.Conn.State&word(b) != 0, true // with the same bits as in nftables
}

func matchMark(m *machine, b []byte, _ byte) (met, ok bool) {
	return (m.packet.Mark&word(b[4:]) == word(b)) == (b[8] == 0), true
}

func matchConnmark(m *machine, b []byte, _ byte) (met, ok bool) {
	return (m.packet.Conn.Mark&word(b[4:]) == word(b)) == (b[8] == 0), true
}

// matchAddrType decodes struct xt_addrtype_info_v1: types of the source, of the destination, flags.
func matchAddrType(m *machine, b []byte, revision byte) (met, ok bool) {
	const invertSource, invertDest, limits = 1, 2, 4 | 8
	source, dest, flags := short(b), short(b[2:]), word(b[4:])
	if revision != 1 || flags&limits != 0 {
		return false, false
	}
	is := func(types uint16, of bool, not uint32) bool {
		return types == 0 || (types>>m.rules.lookup.Type(m.packet, of)&1 != 0) == (flags&not == 0)
	}
	return is(source, true, invertSource) && is(dest, false, invertDest), true
}

func matchMAC(m *machine, b []byte, _ byte) (met, ok bool) {
	mac := m.packet.SrcMAC
	return bytes.Equal(mac, b[:6]) == (word(b[8:]) == 0), mac != nil
}

// matchRange decodes struct xt_iprange_mtinfo.
func matchRange(m *machine, b []byte, _ byte) (met, ok bool) {
	const source, dest, notSource, notDest = 1, 2, 1 << 4, 1 << 5
	inside := func(a netip.Addr, from, to []byte) bool {
		x := a.AsSlice()
		return bytes.Compare(x, from[:len(x)]) >= 0 && bytes.Compare(x, to[:len(x)]) <= 0
	}
	flags := b[64]
	if flags&source != 0 && inside(m.packet.Src, b, b[16:]) == (flags&notSource != 0) {
		return false, true
	}
	return flags&dest == 0 || inside(m.packet.Dst, b[32:], b[48:]) == (flags&notDest == 0), true
}

// matchICMP decodes struct ipt_icmp: type, range of codes, inversion. Type 255 is any.
func matchICMP(m *machine, b []byte, _ byte) (met, ok bool) {
	kind, code := byte(m.packet.DstPort>>8), byte(m.packet.DstPort)
	is := b[0] == 0xff || kind == b[0] && code >= b[1] && code <= b[2]
	isICMP := m.packet.Protocol == unix.IPPROTO_ICMP || m.packet.Protocol == unix.IPPROTO_ICMPV6
	return isICMP && is == (b[3]&1 == 0), true
}

func matchLength(m *machine, b []byte, _ byte) (met, ok bool) {
	n := uint16(m.packet.Length)
	return (n >= short(b) && n <= short(b[2:])) == (b[4] == 0), true
}

// matchRPFilter is the match of the reverse path filter of firewalls.
func matchRPFilter(m *machine, b []byte, _ byte) (met, ok bool) {
	const loose, invert = 1, 8
	out, found := m.rules.lookup.Out(m.packet, true)
	valid := found && (b[0]&loose != 0 || out.Index == m.packet.In.Index)
	return valid == (b[0]&invert == 0), true
}

// matchStatistic decodes the beginning of struct xt_statistic_info. A packet meets the condition at
// random, or with its number among the packets.
func matchStatistic(m *machine, _ []byte, _ byte) (met, ok bool) {
	if m.packet.Choices == nil {
		return false, false
	}
	return m.packet.Choices.choose(2) == 0, true
}

// passes reports whether a target does not decide about the packet.
func passes(target string) bool {
	switch target {
	case "LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "TEE", "CLASSIFY", "TCPMSS", "CHECKSUM", "TOS",
		"DSCP", "CT", "HMARK", "SECMARK", "CONNSECMARK", "IDLETIMER", "RATEEST", "SET", "CONNMARK":
		return true
	}
	return false
}

// target evaluates a target of iptables. Verdicts are expressions of nftables.
func (m *machine) target(e nftmsg.Target) bool {
	if passes(e.Name) {
		return true
	}
	switch e.Name {
	case "MARK":
		const size = 8
		if len(e.Info) < size {
			return m.cannot("iptables target MARK")
		}
		m.packet.Mark = m.packet.Mark&^word(e.Info[4:]) ^ word(e.Info)
		return true
	case "NOTRACK":
		m.packet.Conn.State = Untracked
		return true
	case "REJECT":
		return m.decide(nftmsg.Verdict{Code: verdictReject})
	case "MASQUERADE", "SNAT", "DNAT", "REDIRECT":
		to, ok := nftmsg.NATRange(m.place.Table.Family, e.Info)
		if !ok {
			return m.cannot("iptables target " + e.Name)
		}
		m.translate(to, e.Name == "DNAT" || e.Name == "REDIRECT")
		return m.decide(nftmsg.Verdict{Code: nftmsg.Accept})
	}
	return m.cannot("iptables target " + e.Name)
}
