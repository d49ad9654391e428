package netlink

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTruncatedEvents: a message of each kind that cannot be decoded counts as lost, and nothing
// else.
func TestTruncatedEvents(t *testing.T) {
	t.Parallel()
	for _, kind := range []uint16{
		unix.RTM_NEWLINK, unix.RTM_DELADDR, unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_DELNEIGH,
	} {
		data := Request{kind, 0, []byte{unix.AF_INET}}.appendTo(nil, 1)
		if got := readEvents(data); len(got) != 1 || got[0] != (Event{Lost: true}) {
			t.Errorf("kind %d: %+v", kind, got)
		}
	}
}

// FuzzLosses checks that no datagram causes a panic, and that every loss names an object.
func FuzzLosses(f *testing.F) {
	route := Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Link: 2}.message(Protocol)
	want := map[uint16]string{
		unix.RTM_DELROUTE: "route 10.9.0.0/16", unix.RTM_DELLINK: "link br0",
		unix.RTM_NEWLINK: "link br0", unix.RTM_DELADDR: "address 10.1.2.3/24",
		unix.RTM_DELRULE: "rule from 10.1.2.3/32 lookup 100", unix.RTM_NEWNETCONF: "forwarding of IPv6",
	}
	for kind, body := range map[uint16][]byte{
		unix.RTM_DELROUTE: Body(route.RtMsg, route.encode()...),
		unix.RTM_DELLINK:  Body(header(2), String(unix.IFLA_IFNAME, "br0")),
		unix.RTM_NEWLINK:  Body(header(2), String(unix.IFLA_IFNAME, "br0"), Uint32(unix.IFLA_MASTER, 3)),
		unix.RTM_DELADDR: Body(unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: 24, Index: 2},
			Bytes(unix.IFA_LOCAL, []byte{10, 1, 2, 3})),
		unix.RTM_DELRULE: Body(RuleMsg{Family: unix.AF_INET, SrcLen: 32, Action: unix.FR_ACT_TO_TBL},
			Bytes(unix.FRA_SRC, []byte{10, 1, 2, 3}), Uint32(unix.FRA_TABLE, 100)),
		unix.RTM_NEWNETCONF: Body(uint8(unix.AF_INET6), Uint32(1, 0xffffffff), Uint32(2, 0)),
	} {
		data := Request{kind, 0, body}.appendTo(nil, 1)
		list, err := readLosses(data)
		if err != nil || len(list) != 1 || list[0].Object != want[kind] {
			f.Errorf("kind %d: %+v, %v", kind, list, err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := readLosses(b)
		for _, l := range list {
			if l.Object == "" {
				t.Errorf("%+v", l)
			}
		}
	})
}
