package netlink

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Attribute is an attribute as it is sent: length, type and value, and zeros up to where the next
// may begin. The type may have flags (NLA_F_…); most that hold others do without NLA_F_NESTED.
type Attribute []byte

// Bytes is an attribute with any value. One that is longer than an attribute can say is cut, as the
// kernel takes none of that length.
func Bytes(kind uint16, value []byte) Attribute {
	value = value[:min(len(value), math.MaxUint16-unix.SizeofRtAttr)]
	size := unix.SizeofRtAttr + len(value)
	a := binary.NativeEndian.AppendUint16(make(Attribute, 0, Align(size)), uint16(size))
	a = binary.NativeEndian.AppendUint16(a, kind)
	return append(a, value...)[:Align(size)]
}

// Uint8 is an attribute with a number.
func Uint8(kind uint16, n uint8) Attribute { return Bytes(kind, []byte{n}) }

// Uint16 is an attribute with a number in the byte order of the machine.
func Uint16(kind, n uint16) Attribute {
	return Bytes(kind, binary.NativeEndian.AppendUint16(nil, n))
}

// Uint32 is an attribute with a number in the byte order of the machine.
func Uint32(kind uint16, n uint32) Attribute {
	return Bytes(kind, binary.NativeEndian.AppendUint32(nil, n))
}

// Uint64 is an attribute with a number in the byte order of the machine.
func Uint64(kind uint16, n uint64) Attribute {
	return Bytes(kind, binary.NativeEndian.AppendUint64(nil, n))
}

// String is an attribute with a string that ends with a zero.
func String(kind uint16, text string) Attribute { return Bytes(kind, append([]byte(text), 0)) }

// Nest is an attribute that holds others.
func Nest(kind uint16, inside ...Attribute) Attribute { return Bytes(kind, slices.Concat(inside...)) }

// Struct is an attribute with a structure of C, as [Body] has one.
func Struct(kind uint16, value any, inside ...Attribute) Attribute {
	return Bytes(kind, Body(value, inside...))
}

// Netfilter is what messages of netfilter have before their attributes: struct nfgenmsg.
type Netfilter struct {
	Family   uint8   // AF_…, or NFPROTO_…
	Version  uint8   // NFNETLINK_V0, which is 0
	Resource [2]byte // of some messages, in network byte order
}

// Body is what follows the header of a message: a structure of C, without holes and in the byte
// order of the machine, zeros up to where something may begin, and attributes.
func Body(about any, attributes ...Attribute) []byte {
	size := Align(max(binary.Size(about), 0))
	for _, a := range attributes {
		size += len(a)
	}
	b, err := binary.Append(make([]byte, 0, size), binary.NativeEndian, about)
	if err != nil {
		panic(err) // no structure of fixed size
	}
	b = append(b, make([]byte, Align(len(b))-len(b))...)
	for _, a := range attributes {
		b = append(b, a...)
	}
	return b
}

// ReadBody is the inverse of [Body]: it fills the structure that about points to, and returns the
// attributes. The error is EBADMSG if there are not enough bytes.
func ReadBody(body []byte, about any) (attributes []byte, err error) {
	n, err := binary.Decode(body, binary.NativeEndian, about)
	if err != nil {
		return nil, unix.EBADMSG
	}
	return body[min(Align(n), len(body)):], nil
}

// Attributes are those in b, by type without its flags.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) { eachAttribute(b, yield) }
}

// eachAttribute is not part of [Attributes], which the compiler then inlines: loops over attributes
// allocate nothing.
func eachAttribute(b []byte, yield func(uint16, []byte) bool) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if !yield(kind, b[unix.SizeofRtAttr:size]) {
			return
		}
		b = b[min(Align(size), len(b)):]
	}
}

// Find returns the value of an attribute in a list, nil if it is absent.
func Find(list []byte, want uint16) []byte {
	for kind, v := range Attributes(list) {
		if kind == want {
			return v
		}
	}
	return nil
}

// Text reads a string that ends with a zero, or does not.
func Text(value []byte) string {
	text, _, _ := bytes.Cut(value, []byte{0})
	return string(text)
}

// Align is where something may begin at the earliest after n bytes.
func Align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
