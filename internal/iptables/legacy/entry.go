package legacy

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// entry is a rule of a table.
type entry struct {
	ip      []byte // struct ipt_ip or ip6t_ip6
	matches []nftmsg.Match
	target  string // "" for a verdict or a jump
	info    []byte // of the target
	verdict int32  // verdict…; others that are not negative are offsets of chains
	chain   string // the chain that begins after this entry
	next    uint32 // offset
}

// Verdicts of struct xt_standard_target.
const verdictAccept, verdictDrop, verdictQueue, verdictReturn = -2, -1, -4, -5

func number(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

// entry decodes the entry at an offset.
func (t *table) entry(at uint32) (e entry, err error) {
	head := t.header()
	if int(at)+head > len(t.blob) {
		return e, errBlob
	}
	b := t.blob[at:]
	target, next := int(number(b[t.offsets:])), int(number(b[t.offsets+2:]))
	if target < head || next < target+targetHeader+4 || next > len(b) {
		return e, errBlob
	}
	e.ip, e.next = b[:t.offsets], at+uint32(next)
	for rest := b[head:target]; len(rest) > 0; {
		if len(rest) < targetHeader {
			return e, errBlob
		}
		size := int(number(rest))
		if size < targetHeader || size > len(rest) {
			return e, errBlob
		}
		name, revision := nameAt(rest)
		e.matches = append(e.matches, nftmsg.Match{Name: name, Revision: revision, Info: rest[targetHeader:size]})
		rest = rest[size:]
	}
	e.target, _ = nameAt(b[target:])
	e.info = b[target+targetHeader : next]
	switch e.target {
	case "":
		e.verdict = int32(binary.NativeEndian.Uint32(e.info))
	case "ERROR":
		e.chain = netlink.Text(e.info)
		if int(e.next) >= len(t.blob) {
			e.chain = "end of the table"
		}
	}
	return e, nil
}

// nameAt returns the name and the revision of a match or a target.
func nameAt(b []byte) (string, byte) {
	const length = 29
	return netlink.Text(b[2 : 2+length]), b[2+length]
}

// The flags of struct ipt_ip and ip6t_ip6.
const (
	invertIn, invertOut          = 0x01, 0x02
	invertTOS                    = 0x04
	invertSource, invertDest     = 0x08, 0x10
	invertFragment               = 0x20
	invertProtocol               = 0x40
	flagFragment, flagGoto4      = 0x01, 0x02 // IPv4
	flagProtocol, flagTOS, goto6 = 0x01, 0x02, 0x04
)

// exprs returns a rule as expressions of nftables.
func (t *table) exprs(e entry, at uint32) ([]nftmsg.Raw, error) {
	n := t.address
	names := 4 * n
	rest := e.ip[names+4*unix.IFNAMSIZ:]
	protocol, flags, inverted := number(rest), rest[2], rest[3]
	other, jumps := flags&flagFragment != 0 || inverted&invertFragment != 0, flags&flagGoto4 == 0
	if t.number == nftmsg.IPv6 {
		flags, inverted = rest[3], rest[4]
		other, jumps = flags&flagTOS != 0 || inverted&invertTOS != 0, flags&goto6 == 0
		if flags&flagProtocol == 0 {
			protocol = 0
		}
	}
	var list []nftmsg.Expr
	list = append(list, addressIs(t.source, e.ip[:n], e.ip[2*n:3*n], inverted&invertSource != 0)...)
	list = append(list, addressIs(t.dest, e.ip[n:2*n], e.ip[3*n:4*n], inverted&invertDest != 0)...)
	list = append(list, nameIs(unix.NFT_META_IIFNAME, e.ip[names:], inverted&invertIn != 0)...)
	list = append(list, nameIs(unix.NFT_META_OIFNAME, e.ip[names+unix.IFNAMSIZ:], inverted&invertOut != 0)...)
	if protocol != 0 {
		list = append(list, nftmsg.Meta{Key: unix.NFT_META_L4PROTO, Register: unix.NFT_REG_1},
			comparison([]byte{byte(protocol)}, inverted&invertProtocol != 0))
	}
	if other {
		list = append(list, nftmsg.Match{Name: "fragment or tos"})
	}
	for _, m := range e.matches {
		list = append(list, m)
	}
	end, err := t.end(e, at, jumps)
	if err != nil {
		return nil, err
	}
	if end != nil {
		list = append(list, end)
	}
	raw := make([]nftmsg.Raw, len(list))
	for i, x := range list {
		raw[i] = nftmsg.RawOf(x)
	}
	return raw, nil
}

// end returns the verdict or the target; nil for a rule that only counts.
func (t *table) end(e entry, at uint32, jumps bool) (nftmsg.Expr, error) {
	switch {
	case e.target != "":
		return nftmsg.Target{Name: e.target, Info: e.info}, nil
	case e.verdict == verdictAccept:
		return nftmsg.Verdict{Code: nftmsg.Accept}, nil
	case e.verdict == verdictDrop:
		return nftmsg.Verdict{Code: nftmsg.Drop}, nil
	case e.verdict == verdictReturn:
		return nftmsg.Verdict{Code: unix.NFT_RETURN}, nil
	case e.verdict == verdictQueue:
		const queue = 3 // NF_QUEUE
		return nftmsg.Verdict{Code: queue}, nil
	case e.verdict < 0:
		return nil, errBlob
	case uint32(e.verdict) == e.next:
		return nil, nil // a rule without a target
	}
	name, ok := t.chains[uint32(e.verdict)]
	if !ok {
		return nil, errBlob
	}
	v := nftmsg.Verdict{Code: unix.NFT_JUMP, Chain: name}
	if !jumps {
		v.Code = unix.NFT_GOTO
	}
	return v, nil
}

func comparison(data []byte, not bool) nftmsg.Cmp {
	c := nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: unix.NFT_REG_1, Data: data}
	if not {
		c.Op = unix.NFT_CMP_NEQ
	}
	return c
}

// addressIs compares an address of the packet under a mask.
func addressIs(offset uint32, address, mask []byte, not bool) []nftmsg.Expr {
	if !slices.ContainsFunc(mask, func(b byte) bool { return b != 0 }) && !not {
		return nil
	}
	return []nftmsg.Expr{
		nftmsg.Payload{Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: offset, Len: uint32(len(address)),
			Register: unix.NFT_REG_1},
		nftmsg.Mask{Bits: mask, Register: unix.NFT_REG_1},
		comparison(address, not),
	}
}

// nameIs compares the name of an interface, up to the end of its mask.
func nameIs(key uint32, b []byte, not bool) []nftmsg.Expr {
	name, mask := b[:unix.IFNAMSIZ], b[2*unix.IFNAMSIZ:3*unix.IFNAMSIZ]
	n := 0
	for n < len(mask) && mask[n] != 0 {
		n++
	}
	if n == 0 {
		return nil
	}
	return []nftmsg.Expr{nftmsg.Meta{Key: key, Register: unix.NFT_REG_1}, comparison(name[:n], not)}
}
