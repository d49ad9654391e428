package hostnat

import (
	"encoding/binary"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// match decodes a match of iptables (struct xt_…, include/uapi/linux/netfilter). It counts matches
// that it cannot decode as other conditions.
func (r *Rule) match(name string, revision byte, info []byte) {
	understood := false
	switch name {
	case "comment":
		r.Comment, understood = netlink.Text(info), true
	case "tcp":
		understood = r.tcp(info)
	case "udp":
		understood = r.udp(info)
	case "sctp":
		understood = r.sctp(info)
	case "multiport":
		understood = r.multiport(revision, info)
	case "addrtype":
		understood = r.addrType(revision, info)
	}
	if !understood {
		r.Others = append(r.Others, name)
	}
}

// number decodes a number in native byte order.
func number(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

const invertSource, invertDest = 1, 2

// destination stores the ports of a match with a range of source ports and a range of destination
// ports. ok is false if the match has a condition on the source.
func (r *Rule) destination(source, dest PortRange, inverted byte) (ok bool) {
	everything := PortRange{0, 0xffff}
	not := inverted&invertDest != 0
	if (dest != everything || not) && !r.setPorts(dest, not) {
		return false
	}
	return source == everything && inverted&invertSource == 0
}

// setPorts stores a condition on the ports, unless the rule has one already.
func (r *Rule) setPorts(ports PortRange, not bool) (ok bool) {
	if len(r.Ports.Ranges) > 0 {
		return false
	}
	r.Ports = Ports{[]PortRange{ports}, not}
	return true
}

// tcp decodes struct xt_tcp.
func (r *Rule) tcp(b []byte) bool {
	const size = 12
	if len(b) < size {
		return false
	}
	option, flagMask, inverted := b[8], b[9], b[11]
	ok := r.destination(PortRange{number(b), number(b[2:])},
		PortRange{number(b[4:]), number(b[6:])}, inverted)
	return ok && option == 0 && flagMask == 0 && inverted&^(invertSource|invertDest) == 0
}

// udp decodes struct xt_udp.
func (r *Rule) udp(b []byte) bool {
	const size = 9
	return len(b) >= size && r.destination(
		PortRange{number(b), number(b[2:])}, PortRange{number(b[4:]), number(b[6:])}, b[8])
}

// sctp decodes the ports of struct xt_sctp_info, unless it has other conditions.
func (r *Rule) sctp(b []byte) bool {
	const (
		flags    = 284 // after ports, chunk map, type of match, flag info and its count
		destOnly = 2   // XT_SCTP_DEST_PORTS
	)
	if len(b) < flags+8 || binary.NativeEndian.Uint32(b[flags:]) != destOnly {
		return false
	}
	inverted := binary.NativeEndian.Uint32(b[flags+4:])
	return r.destination(PortRange{0, 0xffff}, PortRange{number(b), number(b[2:])}, byte(inverted))
}

// multiport decodes struct xt_multiport and xt_multiport_v1 with destination ports.
func (r *Rule) multiport(revision byte, b []byte) bool {
	const (
		most      = 15
		ofDest    = 1
		size      = 2 + 2*most
		revision1 = size + most + 1
	)
	if len(b) < size || revision > 1 || revision == 1 && len(b) < revision1 ||
		b[0] != ofDest || b[1] > most || len(r.Ports.Ranges) > 0 {
		return false
	}
	count := int(b[1])
	port := func(i int) uint16 { return number(b[2+2*i:]) }
	var p Ports
	for i := 0; i < count; i++ {
		one := PortRange{port(i), port(i)}
		if revision == 1 && b[size+i] != 0 && i+1 < count { // the next port is the end of the range
			i++
			one.Last = port(i)
		}
		p.Ranges = append(p.Ranges, one)
	}
	p.Not = revision == 1 && b[size+most] != 0
	r.Ports = p
	return count > 0
}

// addrType decodes struct xt_addrtype_info and xt_addrtype_info_v1.
func (r *Rule) addrType(revision byte, b []byte) bool {
	const size0, size1 = 12, 8
	if revision > 1 || revision == 0 && len(b) < size0 || revision == 1 && len(b) < size1 {
		return false
	}
	source, dest := AddrType{Types: number(b)}, AddrType{Types: number(b[2:])}
	flags := binary.NativeEndian.Uint32(b[4:])
	if revision == 0 {
		source.Not, dest.Not = flags != 0, binary.NativeEndian.Uint32(b[8:]) != 0
		flags = 0
	} else {
		source.Not, dest.Not = flags&invertSource != 0, flags&invertDest != 0
	}
	if r.SourceType.Types != 0 || r.DestType.Types != 0 {
		return false // a second addrtype match
	}
	r.SourceType, r.DestType = source, dest
	return flags&^(invertSource|invertDest) == 0
}
