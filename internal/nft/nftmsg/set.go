package nftmsg

import (
	"bytes"
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Set is a set of keys, or a map from them to data.
type Set struct {
	Table    Table
	Name     string
	Key      []Type // several are concatenated, each padded to 4 bytes
	Data     []Type // of the values of a map, [TypeVerdict] for a verdict map; nil for a set
	Interval bool   // elements can be ranges
	Timeout  bool   // elements can end by themselves
	Size     uint32 // the limit of elements, 0: none
	Comment  string // up to 254 bytes
}

// Type is the type of a key or value, as nft(8) numbers it (enum datatypes in include/datatype.h of
// nftables). The kernel only uses its size.
type Type uint32

const (
	TypeVerdict     Type = 1
	TypeIPv4Addr    Type = 7
	TypeIPv6Addr    Type = 8
	TypeEtherAddr   Type = 9
	TypeInetProto   Type = 12
	TypeInetService Type = 13
	TypeIfName      Type = 41
)

// sizes holds the size in bytes of a value of each type.
var sizes = [...]uint32{
	TypeInetProto: 1, TypeInetService: 2, TypeIPv4Addr: 4, TypeEtherAddr: 6, TypeIPv6Addr: 16,
	TypeIfName: 16,
}

// typeBits is the number of bits of each of several types.
const typeBits = 6

// numberOf returns the number of concatenated types in nft(8).
func numberOf(types []Type) (n uint32) {
	for _, t := range types {
		n = n<<typeBits | uint32(t)
	}
	return n
}

// sizeOf returns their size in bytes.
func sizeOf(types []Type) (n uint32) {
	if len(types) == 1 {
		return sizes[types[0]]
	}
	for _, t := range types {
		n += uint32(netlink.Align(int(sizes[t]))) // the kernel counts words of 4 bytes, too
	}
	return n
}

// Constants that package unix lacks.
const (
	flagConcat = 0x80 // NFT_SET_CONCAT

	nftaSetDescConcat = 2  // NFTA_SET_DESC_CONCAT
	nftaSetFieldLen   = 1  // NFTA_SET_FIELD_LEN
	nftaSetElemKeyEnd = 10 // NFTA_SET_ELEM_KEY_END
)

// names returns the attributes that identify the set in a message.
func (s Set) names(table, name uint16) []netlink.Attribute {
	return []netlink.Attribute{netlink.String(table, s.Table.Name), netlink.String(name, s.Name)}
}

// encode returns the attributes of the set; id is unique in the transaction.
func (s Set) encode(id uint32) []netlink.Attribute {
	list := append(s.names(unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME),
		number(unix.NFTA_SET_FLAGS, s.flags()),
		number(unix.NFTA_SET_KEY_TYPE, numberOf(s.Key)),
		number(unix.NFTA_SET_KEY_LEN, sizeOf(s.Key)),
		number(unix.NFTA_SET_ID, id))
	if s.Data != nil {
		data := numberOf(s.Data)
		if data == uint32(TypeVerdict) {
			data = unix.NFT_DATA_VERDICT
		}
		list = append(list, number(unix.NFTA_SET_DATA_TYPE, data),
			number(unix.NFTA_SET_DATA_LEN, sizeOf(s.Data)))
	}
	if about := s.description(); about != nil {
		list = append(list, nest(unix.NFTA_SET_DESC, about...))
	}
	if about := s.userdata(); about != nil {
		list = append(list, netlink.Bytes(unix.NFTA_SET_USERDATA, about))
	}
	return list
}

func (s Set) flags() (flags uint32) {
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.Timeout {
		flags |= unix.NFT_SET_TIMEOUT
	}
	if s.Data != nil {
		flags |= unix.NFT_SET_MAP
	}
	if len(s.Key) > 1 {
		flags |= flagConcat
	}
	return flags
}

// description returns the size of the set, and the size of each of several types, which nft(8)
// needs to list the set.
func (s Set) description() (list []netlink.Attribute) {
	if s.Size > 0 {
		list = append(list, number(unix.NFTA_SET_DESC_SIZE, s.Size))
	}
	if len(s.Key) > 1 {
		var fields []netlink.Attribute
		for _, t := range s.Key {
			fields = append(fields,
				netlink.Nest(unix.NFTA_LIST_ELEM, number(nftaSetFieldLen, sizes[t])))
		}
		list = append(list, nest(nftaSetDescConcat, fields...))
	}
	return list
}

// userdata returns the comment, and the byte order that nft(8) needs to show keys.
func (s Set) userdata() (b []byte) {
	switch {
	case s.Interval || len(s.Key) == 1 && s.Key[0] != TypeIfName:
		b = appendNumber(b, ofSetKeyOrder, networkOrder)
	case len(s.Key) == 1:
		b = appendNumber(b, ofSetKeyOrder, nativeOrder)
	}
	if s.Comment != "" {
		b = appendText(b, ofSetComment, s.Comment)
	}
	return b
}

// Element is an element of a set.
type Element struct {
	Key     []byte   `json:"key"`
	KeyEnd  []byte   `json:"keyEnd,omitzero"`  // the last key of a range, nil unless it is a range
	Value   []byte   `json:"value,omitzero"`   // in a map
	Verdict *Verdict `json:"verdict,omitzero"` // in a verdict map
	Comment string   `json:"comment,omitzero"` // up to 254 bytes
	// Timeout is the time, in whole milliseconds, after which the kernel removes the element from a
	// set with timeouts; 0: never. It is not decoded.
	Timeout time.Duration `json:"-"`
}

// encode returns the element as an element of a list.
func (e Element) encode() netlink.Attribute {
	inside := []netlink.Attribute{value(unix.NFTA_SET_ELEM_KEY, e.Key)}
	if e.KeyEnd != nil {
		inside = append(inside, value(nftaSetElemKeyEnd, e.KeyEnd))
	}
	switch {
	case e.Verdict != nil:
		inside = append(inside, nest(unix.NFTA_SET_ELEM_DATA, e.Verdict.data()))
	case e.Value != nil:
		inside = append(inside, value(unix.NFTA_SET_ELEM_DATA, e.Value))
	}
	if e.Timeout > 0 {
		ms := max(uint64(e.Timeout.Milliseconds()), 1)
		inside = append(inside,
			netlink.Bytes(unix.NFTA_SET_ELEM_TIMEOUT, binary.BigEndian.AppendUint64(nil, ms)))
	}
	if e.Comment != "" {
		inside = append(inside,
			netlink.Bytes(unix.NFTA_SET_ELEM_USERDATA,
				appendText(nil, ofElementComment, e.Comment)))
	}
	return nest(unix.NFTA_LIST_ELEM, inside...)
}

// decodeElement decodes an element as the kernel lists it.
func decodeElement(element []byte) Element {
	data := netlink.Find(element, unix.NFTA_SET_ELEM_DATA)
	e := Element{
		Key:     bytes.Clone(readValue(netlink.Find(element, unix.NFTA_SET_ELEM_KEY))),
		KeyEnd:  bytes.Clone(readValue(netlink.Find(element, nftaSetElemKeyEnd))),
		Value:   bytes.Clone(readValue(data)),
		Comment: textOf(netlink.Find(element, unix.NFTA_SET_ELEM_USERDATA), ofElementComment),
	}
	if verdict, ok := readVerdict(data); ok {
		e.Verdict = new(verdict)
	}
	return e
}
