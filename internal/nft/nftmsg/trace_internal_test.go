package nftmsg

import (
	"errors"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// traceMessage returns a message about the policy of a chain.
func traceMessage() []byte {
	body := Table{INet, "fw"}.body(netlink.String(unix.NFTA_TRACE_TABLE, "fw"),
		netlink.String(unix.NFTA_TRACE_CHAIN, "transit"), number(unix.NFTA_TRACE_ID, 7),
		netlink.Bytes(unix.NFTA_TRACE_NETWORK_HEADER, []byte{0x45}),
		netlink.Bytes(unix.NFTA_TRACE_TRANSPORT_HEADER, []byte{8}),
		number(unix.NFTA_TRACE_TYPE, unix.NFT_TRACETYPE_POLICY), number(unix.NFTA_TRACE_POLICY, Accept))
	size := unix.SizeofNlMsghdr + len(body)
	header := []byte{byte(size), byte(size >> 8), 0, 0, unix.NFT_MSG_TRACE,
		unix.NFNL_SUBSYS_NFTABLES, 0, 0}
	return append(append(header, make([]byte, 8)...), body...)
}

// TestReadTrace checks that all messages of a datagram are decoded, and that a datagram that is too
// short counts as lost events.
func TestReadTrace(t *testing.T) {
	t.Parallel()
	message := traceMessage()
	want := TraceEvent{Table: Table{INet, "fw"}, Chain: "transit", Kind: unix.NFT_TRACETYPE_POLICY,
		Verdict: Verdict{Code: Accept}, Packet: 7, Network: []byte{0x45}, Transport: []byte{8}}
	got, err := readTrace(append(message[:len(message):len(message)], message...))
	if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], want) ||
		!reflect.DeepEqual(got[1], want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := readTrace(message[:len(message)-4]); !errors.Is(err, netlink.ErrOverrun) {
		t.Errorf("a truncated message: %+v, %v", got, err)
	}
}

// FuzzTrace checks that no datagram causes a panic.
func FuzzTrace(f *testing.F) {
	f.Add(traceMessage())
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = readTrace(b) })
}
