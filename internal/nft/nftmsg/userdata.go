package nftmsg

import (
	"encoding/binary"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// The kernel stores data of nft(8) with rules, sets and elements without interpreting it: entries
// of one byte for the type, one for the length, and the value (include/libnftnl/udata.h of
// libnftnl).

// The types of entries.
const (
	ofRuleComment, ofElementComment = 0, 0
	ofSetKeyOrder, ofSetComment     = 0, 7
)

// The values of ofSetKeyOrder (enum byteorder in include/datatype.h of nftables).
const nativeOrder, networkOrder = 1, 2

// appendNumber appends an entry with a number.
func appendNumber(b []byte, kind byte, n uint32) []byte {
	return binary.NativeEndian.AppendUint32(append(b, kind, 4), n)
}

// appendText appends an entry with a text of up to 254 bytes.
func appendText(b []byte, kind byte, text string) []byte {
	b = append(b, kind, byte(len(text)+1))
	return append(append(b, text...), 0)
}

// textOf returns the text of the first entry of a type, "" if it is absent.
func textOf(userdata []byte, kind byte) string {
	for len(userdata) >= 2 && len(userdata) >= 2+int(userdata[1]) {
		value := userdata[2 : 2+int(userdata[1])]
		if userdata[0] == kind {
			return netlink.Text(value)
		}
		userdata = userdata[2+len(value):]
	}
	return ""
}
