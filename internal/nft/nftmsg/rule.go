package nftmsg

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Rule is a rule that exists.
type Rule struct {
	Handle  uint64
	Comment string // of nft(8)
	Exprs   []Raw
}

// Raw is an expression as the kernel lists it. Encode returns it unchanged.
type Raw struct {
	Name string `json:"name"`
	Data []byte `json:"data,omitzero"` // attributes
}

// Encode implements [Expr].
func (r Raw) Encode() netlink.Attribute { return encoded(r.Name, r.Data) }

// decodeRule decodes the attributes of a rule.
func decodeRule(attributes []byte) (r Rule) {
	if handle := netlink.Find(attributes, unix.NFTA_RULE_HANDLE); len(handle) == 8 {
		r.Handle = binary.BigEndian.Uint64(handle)
	}
	r.Comment = textOf(netlink.Find(attributes, unix.NFTA_RULE_USERDATA), ofRuleComment)
	exprs := bytes.Clone(netlink.Find(attributes, unix.NFTA_RULE_EXPRESSIONS))
	for _, e := range netlink.Attributes(exprs) {
		r.Exprs = append(r.Exprs, decodeExpr(e))
	}
	return r
}

func decodeExpr(attributes []byte) Raw {
	return Raw{
		Name: netlink.Text(netlink.Find(attributes, unix.NFTA_EXPR_NAME)),
		Data: netlink.Find(attributes, unix.NFTA_EXPR_DATA),
	}
}

// Immediate loads a value.
type Immediate struct {
	Register uint32
	Value    []byte
}

// Encode implements [Expr].
func (e Immediate) Encode() netlink.Attribute {
	return encoded("immediate", number(unix.NFTA_IMMEDIATE_DREG, e.Register),
		value(unix.NFTA_IMMEDIATE_DATA, e.Value))
}

// Match is a condition of iptables.
type Match struct {
	Name     string
	Revision byte
	Info     []byte
}

// Target is a target of iptables.
type Target struct {
	Name string
	Info []byte
}

// Read decodes a [Meta], [Payload], [Mask], [Cmp], [Range], [Immediate], [NAT], [Verdict], [Match],
// [Target] or [Counter]. It returns other expressions unchanged.
func (r Raw) Read() any {
	n := r.numbers()
	data := func(kind uint16) []byte { return netlink.Find(r.Data, kind) }
	switch r.Name {
	case "meta":
		if n[unix.NFTA_META_SREG] == 0 { // else it sets metadata
			return Meta{Key: n[unix.NFTA_META_KEY], Register: n[unix.NFTA_META_DREG]}
		}
	case "payload":
		return Payload{
			Base: n[unix.NFTA_PAYLOAD_BASE], Offset: n[unix.NFTA_PAYLOAD_OFFSET],
			Len: n[unix.NFTA_PAYLOAD_LEN], Register: n[unix.NFTA_PAYLOAD_DREG],
		}
	case "cmp":
		return Cmp{Op: n[unix.NFTA_CMP_OP], Register: n[unix.NFTA_CMP_SREG],
			Data: readValue(data(unix.NFTA_CMP_DATA))}
	case "bitwise":
		xor := bytes.Trim(readValue(data(unix.NFTA_BITWISE_XOR)), "\x00")
		if n[bitwiseOp] == 0 && len(xor) == 0 {
			return Mask{Bits: readValue(data(unix.NFTA_BITWISE_MASK)),
				Register: n[unix.NFTA_BITWISE_DREG]}
		}
	case "range":
		return Range{
			Op: n[unix.NFTA_RANGE_OP], Register: n[unix.NFTA_RANGE_SREG],
			From: readValue(data(unix.NFTA_RANGE_FROM_DATA)),
			To:   readValue(data(unix.NFTA_RANGE_TO_DATA)),
		}
	case "nat":
		return NAT{
			Type: n[unix.NFTA_NAT_TYPE], Family: n[unix.NFTA_NAT_FAMILY],
			Addr: n[unix.NFTA_NAT_REG_ADDR_MIN], Port: n[unix.NFTA_NAT_REG_PROTO_MIN],
		}
	case "immediate":
		if verdict, ok := readVerdict(data(unix.NFTA_IMMEDIATE_DATA)); ok {
			return verdict
		}
		return Immediate{Register: n[unix.NFTA_IMMEDIATE_DREG],
			Value: readValue(data(unix.NFTA_IMMEDIATE_DATA))}
	case "match":
		return Match{
			Name: netlink.Text(data(unix.NFTA_MATCH_NAME)), Revision: byte(n[unix.NFTA_MATCH_REV]),
			Info: data(unix.NFTA_MATCH_INFO),
		}
	case "counter":
		return Counter{Packets: longIn(r.Data, unix.NFTA_COUNTER_PACKETS),
			Bytes: longIn(r.Data, unix.NFTA_COUNTER_BYTES)}
	case "target":
		return Target{Name: netlink.Text(data(unix.NFTA_TARGET_NAME)),
			Info: data(unix.NFTA_TARGET_INFO)}
	}
	return r
}

// bitwiseOp is NFTA_BITWISE_OP, which package unix lacks. Its zero value is NFT_BITWISE_MASK_XOR.
const bitwiseOp = 6

// maxNumbered is greater than the type of any attribute that is read as a number.
const maxNumbered = 8

// numbers returns the values that are numbers, by their type.
func (r Raw) numbers() (n [maxNumbered]uint32) {
	for kind, v := range netlink.Attributes(r.Data) {
		if kind < maxNumbered {
			n[kind] = readNumber(v)
		}
	}
	return n
}

// RawOf returns an expression as the kernel would list it.
func RawOf(e Expr) Raw {
	return decodeExpr(e.Encode()[unix.SizeofRtAttr:])
}

// Encode implements [Expr].
func (e Match) Encode() netlink.Attribute {
	return encoded("match", netlink.String(unix.NFTA_MATCH_NAME, e.Name),
		number(unix.NFTA_MATCH_REV, uint32(e.Revision)), netlink.Bytes(unix.NFTA_MATCH_INFO, e.Info))
}

// Encode implements [Expr].
func (e Target) Encode() netlink.Attribute {
	return encoded("target", netlink.String(unix.NFTA_TARGET_NAME, e.Name),
		number(unix.NFTA_TARGET_REV, 0), netlink.Bytes(unix.NFTA_TARGET_INFO, e.Info))
}

// Counter returns what a counter has counted; ok is false for another expression.
func (r Raw) Counter() (packets, bytes uint64, ok bool) {
	return longIn(r.Data, unix.NFTA_COUNTER_PACKETS), longIn(r.Data, unix.NFTA_COUNTER_BYTES),
		r.Name == "counter"
}
