package netlink

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Attribute is an encoded attribute: length, type and value, padded with zeros. The type may have
// flags (NLA_F_…); most nested attributes are sent without NLA_F_NESTED.
type Attribute []byte

// Bytes returns an attribute with any value. It truncates a value that is too long for the length
// field, because the kernel accepts no attribute of that length.
func Bytes(kind uint16, value []byte) Attribute {
	value = value[:min(len(value), math.MaxUint16-unix.SizeofRtAttr)]
	size := unix.SizeofRtAttr + len(value)
	a := binary.NativeEndian.AppendUint16(make(Attribute, 0, Align(size)), uint16(size))
	a = binary.NativeEndian.AppendUint16(a, kind)
	return append(a, value...)[:Align(size)]
}

// Uint8 returns an attribute with a number.
func Uint8(kind uint16, n uint8) Attribute { return Bytes(kind, []byte{n}) }

// Uint16 returns an attribute with a number in native byte order.
func Uint16(kind, n uint16) Attribute {
	return Bytes(kind, binary.NativeEndian.AppendUint16(nil, n))
}

// Uint32 returns an attribute with a number in native byte order.
func Uint32(kind uint16, n uint32) Attribute {
	return Bytes(kind, binary.NativeEndian.AppendUint32(nil, n))
}

// Uint64 returns an attribute with a number in native byte order.
func Uint64(kind uint16, n uint64) Attribute {
	return Bytes(kind, binary.NativeEndian.AppendUint64(nil, n))
}

// String returns an attribute with a zero-terminated string.
func String(kind uint16, text string) Attribute { return Bytes(kind, append([]byte(text), 0)) }

// Nest returns an attribute that contains other attributes.
func Nest(kind uint16, inside ...Attribute) Attribute {
	return Bytes(kind, slices.Concat(inside...))
}

// Struct returns an attribute with a C structure, encoded as by [Body].
func Struct(kind uint16, value any, inside ...Attribute) Attribute {
	return Bytes(kind, Body(value, inside...))
}

// Netfilter is the header of netfilter messages before their attributes: struct nfgenmsg.
type Netfilter struct {
	Family   uint8   // AF_…, or NFPROTO_…
	Version  uint8   // NFNETLINK_V0, which is 0
	Resource [2]byte // only in some messages, in network byte order
}

// Body encodes the part of a message after the header: a C structure without holes, in native byte
// order and padded with zeros, and attributes.
func Body(about any, attributes ...Attribute) []byte {
	size := Align(max(binary.Size(about), 0))
	for _, a := range attributes {
		size += len(a)
	}
	b, err := binary.Append(make([]byte, 0, size), binary.NativeEndian, about)
	if err != nil {
		panic(err) // about has no fixed size
	}
	b = append(b, make([]byte, Align(len(b))-len(b))...)
	for _, a := range attributes {
		b = append(b, a...)
	}
	return b
}

// ReadBody is the inverse of [Body]: it fills the structure that about points to, and returns the
// attributes. The error is EBADMSG if body is too short.
func ReadBody(body []byte, about any) (attributes []byte, err error) {
	n, err := binary.Decode(body, binary.NativeEndian, about)
	if err != nil {
		return nil, unix.EBADMSG
	}
	return body[min(Align(n), len(body)):], nil
}

// Attributes iterates over the attributes in b, by type without flags.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) { eachAttribute(b, yield) }
}

// eachAttribute is separate from [Attributes] so that the compiler inlines the latter: then loops
// over attributes allocate nothing.
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

// Text returns the string in value, up to its terminating zero if it has one.
func Text(value []byte) string {
	text, _, _ := bytes.Cut(value, []byte{0})
	return string(text)
}

// Align rounds n up to the alignment of messages and attributes, in bytes.
func Align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
