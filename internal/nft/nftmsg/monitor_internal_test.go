package nftmsg

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// FuzzMonitor checks that no datagram causes a panic.
func FuzzMonitor(f *testing.F) {
	message := func(kind uint16, body []byte) []byte {
		size := unix.SizeofNlMsghdr + len(body)
		b := []byte{byte(size), byte(size >> 8), 0, 0, byte(kind), unix.NFNL_SUBSYS_NFTABLES, 0, 0}
		return append(append(b, make([]byte, 8)...), body...)
	}
	table := Table{INet, "x"}
	f.Add(append(message(unix.NFT_MSG_DELSETELEM, table.body(
		netlink.String(unix.NFTA_SET_ELEM_LIST_TABLE, "x"),
		nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, Element{Key: []byte{1}, Comment: "a"}.encode()))),
		message(unix.NFT_MSG_NEWGEN, table.body(number(unix.NFTA_GEN_PROC_PID, 7)))...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		m := &Monitor{wanted: func(Table) bool { return true }}
		_, _ = m.read(b)
	})
}
