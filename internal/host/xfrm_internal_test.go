package host

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzPolicy checks that decoding any policy of IPsec stays within it.
func FuzzPolicy(f *testing.F) {
	b := make([]byte, 168)
	copy(b[xfrmDst:], []byte{203, 0, 113, 0})
	copy(b[xfrmSrc:], []byte{10, 77, 0, 0})
	binary.NativeEndian.PutUint16(b[xfrmFamily:], unix.AF_INET)
	b[xfrmFamily+2], b[xfrmFamily+3], b[xfrmDirection], b[xfrmAction] = 24, 16, 1, xfrmBlock
	want := Policy{Src: netip.MustParsePrefix("10.77.0.0/16"), Dst: netip.MustParsePrefix("203.0.113.0/24"),
		Direction: "out", Blocks: true}
	if p, ok := readPolicy(b); !ok || p != want {
		f.Errorf("%+v, want %+v", p, want)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) { readPolicy(b) })
}
