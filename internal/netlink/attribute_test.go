package netlink_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// TestBody checks the encoding of a structure without holes, followed by attributes of each type,
// all aligned to four bytes.
func TestBody(t *testing.T) {
	t.Parallel()
	about := struct {
		A uint8
		_ [3]byte
		B int32
	}{1, [3]byte{}, -2}
	got := netlink.Body(about,
		netlink.Uint8(1, 0x11), netlink.Uint16(2, 0x1122), netlink.Uint32(3, 0x11223344),
		netlink.Uint64(4, 0x1122334455667788),
		netlink.String(5, "eth0"), netlink.Bytes(6, nil),
		netlink.Nest(7|unix.NLA_F_NESTED, netlink.Uint8(1, 2),
			netlink.Struct(2, about, netlink.Uint8(3, 4))),
	)
	littleEndian := "01000000" + "feffffff" +
		"05000100" + "11000000" + "06000200" + "22110000" + "08000300" + "44332211" + "0c000400" +
		"8877665544332211" +
		"09000500" + "6574683000000000" + "04000600" +
		"20000780" + "05000100" + "02000000" + "14000200" + "01000000" + "feffffff" + "05000300" +
		"04000000"
	bigEndian := "01000000" + "fffffffe" +
		"00050001" + "11000000" + "00060002" + "11220000" + "00080003" + "11223344" + "000c0004" +
		"1122334455667788" +
		"00090005" + "6574683000000000" + "00040006" +
		"00208007" + "00050001" + "02000000" + "00140002" + "01000000" + "fffffffe" + "00050003" +
		"04000000"
	want := littleEndian
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		want = bigEndian
	}
	if got := hex.EncodeToString(got); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	read := about
	read.A, read.B = 0, 0
	rest, err := netlink.ReadBody(got, &read)
	if err != nil || read != about || len(rest) != len(got)-8 {
		t.Errorf("read %v, %d bytes left, %v", read, len(rest), err)
	}
	if _, err := netlink.ReadBody(got[:7], &read); !errors.Is(err, unix.EBADMSG) {
		t.Errorf("one byte too few: %v", err)
	}
}

// TestLongAttribute checks that an overlong attribute is truncated: it neither swallows the next
// attribute nor leaves bytes that are read as one.
func TestLongAttribute(t *testing.T) {
	t.Parallel()
	var kinds []uint16
	for kind, v := range netlink.Attributes(append(netlink.Bytes(1, make([]byte, 70000)),
		netlink.Uint8(2, 3)...)) {
		kinds = append(kinds, kind)
		if kind == 1 && len(v) != math.MaxUint16-unix.SizeofRtAttr || kind == 2 &&
			!bytes.Equal(v, []byte{3}) {
			t.Errorf("attribute %d has %d bytes", kind, len(v))
		}
	}
	if len(kinds) != 2 {
		t.Errorf("attributes %v", kinds)
	}
}

// FuzzAttributes checks that the attributes of any input follow each other within it, and that
// encoding them again restores the input.
func FuzzAttributes(f *testing.F) {
	f.Add(netlink.Body(uint32(1), netlink.String(1, "eth0"), netlink.Nest(2, netlink.Uint32(3, 4))))
	f.Add([]byte(netlink.String(1, "eth0")))
	f.Add([]byte{3, 0, 1, 0})
	f.Add([]byte{5, 0, 1, 0, 7})
	f.Add([]byte{0xff, 0xff, 1, 0, 7, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		n := 0
		for kind, v := range netlink.Attributes(b) {
			n++
			again = append(again, netlink.Bytes(kind, v)...)
		}
		if len(again) > netlink.Align(len(b)) {
			t.Fatalf("%d bytes of %d", len(again), len(b))
		}
		var third []byte
		for kind, v := range netlink.Attributes(again) {
			n--
			third = append(third, netlink.Bytes(kind, v)...)
		}
		if n != 0 || !bytes.Equal(again, third) {
			t.Fatalf("got %x, want %x", third, again)
		}
	})
}
