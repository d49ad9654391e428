package nftmsg

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Expr is an expression: a step of a rule, which loads or changes a register (NFT_REG_…), ends the
// rule unless a condition is met, or decides about the packet.
type Expr interface {
	// Encode returns the expression as an element of a list.
	Encode() netlink.Attribute
}

func encoded(name string, data ...netlink.Attribute) netlink.Attribute {
	return nest(unix.NFTA_LIST_ELEM, netlink.String(unix.NFTA_EXPR_NAME, name),
		nest(unix.NFTA_EXPR_DATA, data...))
}

// Meta loads metadata of a packet. Key is NFT_META_….
type Meta struct{ Key, Register uint32 }

// Encode implements [Expr].
func (e Meta) Encode() netlink.Attribute {
	return encoded("meta", number(unix.NFTA_META_KEY, e.Key),
		number(unix.NFTA_META_DREG, e.Register))
}

// SetMeta sets metadata of a packet from a register. Key is NFT_META_….
type SetMeta struct{ Key, Register uint32 }

// Encode implements [Expr].
func (e SetMeta) Encode() netlink.Attribute {
	return encoded("meta", number(unix.NFTA_META_KEY, e.Key),
		number(unix.NFTA_META_SREG, e.Register))
}

// Ct loads a property of the packet's connection. Key is NFT_CT_….
type Ct struct{ Key, Register uint32 }

// Encode implements [Expr].
func (e Ct) Encode() netlink.Attribute {
	return encoded("ct", number(unix.NFTA_CT_KEY, e.Key), number(unix.NFTA_CT_DREG, e.Register))
}

// SetCt sets a property of the packet's connection from a register. Key is NFT_CT_…. The kernel
// adds labels and never removes any.
type SetCt struct{ Key, Register uint32 }

// Encode implements [Expr].
func (e SetCt) Encode() netlink.Attribute {
	return encoded("ct", number(unix.NFTA_CT_KEY, e.Key), number(unix.NFTA_CT_SREG, e.Register))
}

// Fib loads the result (NFT_FIB_RESULT_…) of a route lookup for the fields that flags
// (NFTA_FIB_F_…) select.
type Fib struct{ Flags, Result, Register uint32 }

// Encode implements [Expr].
func (e Fib) Encode() netlink.Attribute {
	return encoded("fib", number(unix.NFTA_FIB_DREG, e.Register),
		number(unix.NFTA_FIB_FLAGS, e.Flags), number(unix.NFTA_FIB_RESULT, e.Result))
}

// Payload loads bytes of a header (NFT_PAYLOAD_…).
type Payload struct{ Base, Offset, Len, Register uint32 }

// Encode implements [Expr].
func (e Payload) Encode() netlink.Attribute {
	return encoded("payload", number(unix.NFTA_PAYLOAD_DREG, e.Register),
		number(unix.NFTA_PAYLOAD_BASE, e.Base),
		number(unix.NFTA_PAYLOAD_OFFSET, e.Offset), number(unix.NFTA_PAYLOAD_LEN, e.Len))
}

// Mask clears the bits of a register that Bits does not contain.
type Mask struct {
	Bits     []byte
	Register uint32
}

// Encode implements [Expr].
func (e Mask) Encode() netlink.Attribute {
	return encoded("bitwise", number(unix.NFTA_BITWISE_SREG, e.Register),
		number(unix.NFTA_BITWISE_DREG, e.Register),
		number(unix.NFTA_BITWISE_LEN, uint32(len(e.Bits))), value(unix.NFTA_BITWISE_MASK, e.Bits),
		value(unix.NFTA_BITWISE_XOR, make([]byte, len(e.Bits))))
}

// NetworkOrder converts a number of 4 bytes in a register from native byte order.
type NetworkOrder struct{ Register uint32 }

// Encode implements [Expr].
func (e NetworkOrder) Encode() netlink.Attribute {
	const size = 4
	return encoded("byteorder", number(unix.NFTA_BYTEORDER_SREG, e.Register),
		number(unix.NFTA_BYTEORDER_DREG, e.Register),
		number(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON), number(unix.NFTA_BYTEORDER_LEN,
			size), number(unix.NFTA_BYTEORDER_SIZE, size))
}

// Cmp is the condition that a comparison of a register with data has the result Op (NFT_CMP_…).
type Cmp struct {
	Op, Register uint32
	Data         []byte
}

// Encode implements [Expr].
func (e Cmp) Encode() netlink.Attribute {
	return encoded("cmp", number(unix.NFTA_CMP_SREG, e.Register), number(unix.NFTA_CMP_OP, e.Op),
		value(unix.NFTA_CMP_DATA, e.Data))
}

// Range is the condition that a register is in a range, or outside it, depending on Op
// (NFT_RANGE_…).
type Range struct {
	Op, Register uint32
	From, To     []byte
}

// Encode implements [Expr].
func (e Range) Encode() netlink.Attribute {
	return encoded("range", number(unix.NFTA_RANGE_SREG, e.Register),
		number(unix.NFTA_RANGE_OP, e.Op),
		value(unix.NFTA_RANGE_FROM_DATA, e.From), value(unix.NFTA_RANGE_TO_DATA, e.To))
}

// Lookup is the condition that a set contains a key, which begins in a register.
type Lookup struct {
	Set      string
	Register uint32
	Not      bool // inverts the condition
}

// Encode implements [Expr].
func (e Lookup) Encode() netlink.Attribute {
	list := []netlink.Attribute{netlink.String(unix.NFTA_LOOKUP_SET, e.Set),
		number(unix.NFTA_LOOKUP_SREG, e.Register)}
	if e.Not {
		list = append(list, number(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV))
	}
	return encoded("lookup", list...)
}

// Map loads the value that a map has for a register into the register Into, which is
// NFT_REG_VERDICT for a verdict map. It is also the condition that the map has a value.
type Map struct {
	Set            string
	Register, Into uint32
}

// Encode implements [Expr].
func (e Map) Encode() netlink.Attribute {
	return encoded("lookup", netlink.String(unix.NFTA_LOOKUP_SET, e.Set),
		number(unix.NFTA_LOOKUP_SREG, e.Register), number(unix.NFTA_LOOKUP_DREG, e.Into))
}

// Masq sets the source of a packet to an address of its outgoing interface.
type Masq struct{}

// Encode implements [Expr].
func (Masq) Encode() netlink.Attribute { return encoded("masq") }

// NAT sets the source or destination (NFT_NAT_…) of a packet from registers.
type NAT struct {
	Type, Family uint32 // the family is NFPROTO_…
	Addr         uint32 // the register with the address
	Port         uint32 // the register with the port, 0 to keep the port
}

// Encode implements [Expr].
func (e NAT) Encode() netlink.Attribute {
	list := []netlink.Attribute{
		number(unix.NFTA_NAT_TYPE, e.Type), number(unix.NFTA_NAT_FAMILY, e.Family),
		number(unix.NFTA_NAT_REG_ADDR_MIN, e.Addr),
	}
	if e.Port != 0 {
		list = append(list, number(unix.NFTA_NAT_REG_PROTO_MIN, e.Port))
	}
	return encoded("nat", list...)
}

// Counter counts the packets that reach it.
type Counter struct{ Packets, Bytes uint64 }

// Encode implements [Expr].
func (e Counter) Encode() netlink.Attribute {
	long := func(kind uint16, n uint64) netlink.Attribute {
		return netlink.Bytes(kind, binary.BigEndian.AppendUint64(nil, n))
	}
	return encoded("counter", long(unix.NFTA_COUNTER_BYTES, e.Bytes),
		long(unix.NFTA_COUNTER_PACKETS, e.Packets))
}

// Verdict decides about the packet.
type Verdict struct {
	Code  int32  `json:"code"`           // NF_DROP, …, NFT_RETURN, …
	Chain string `json:"chain,omitzero"` // of NFT_JUMP and NFT_GOTO
}

// The codes of the kernel that package unix lacks (include/uapi/linux/netfilter.h).
const Drop, Accept = 0, 1

// Encode implements [Expr].
func (v Verdict) Encode() netlink.Attribute {
	return encoded("immediate", number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT),
		nest(unix.NFTA_IMMEDIATE_DATA, v.data()))
}

// data encodes the verdict where a message holds a value.
func (v Verdict) data() netlink.Attribute {
	list := []netlink.Attribute{number(unix.NFTA_VERDICT_CODE, uint32(v.Code))}
	if v.Chain != "" {
		list = append(list, netlink.String(unix.NFTA_VERDICT_CHAIN, v.Chain))
	}
	return nest(unix.NFTA_DATA_VERDICT, list...)
}

// readVerdict decodes a verdict where a message holds a value.
func readVerdict(data []byte) (v Verdict, ok bool) {
	inside := netlink.Find(data, unix.NFTA_DATA_VERDICT)
	v.Code = int32(readNumber(netlink.Find(inside, unix.NFTA_VERDICT_CODE)))
	v.Chain = netlink.Text(netlink.Find(inside, unix.NFTA_VERDICT_CHAIN))
	return v, inside != nil
}
