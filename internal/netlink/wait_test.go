package netlink_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// pair creates a veth pair between the host and container c, down.
func pair(t *testing.T) (n *testnet.Net, c *netlink.Conn, l netlink.Link) {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth))
	n = testnet.New(t, "c")
	c = open(t, n.Container("c"))
	index, err := c.Links.AddVeth(netlink.Veth{Name: "eth0", Peer: "far",
		PeerNS: testnet.NS(t, n.Host)})
	if err != nil {
		t.Fatal(err)
	}
	if l, err = c.Links.ByIndex(index); err != nil {
		t.Fatal(err)
	}
	return n, c, l
}

// meanwhile runs a command in the background. The test ends after the command.
func meanwhile(t *testing.T, ns *testnet.Namespace, command ...string) {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- ns.Try(command...) }()
	t.Cleanup(func() {
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// TestWaitUp checks that the wait ends when the peer comes up, or with the cause of its context.
func TestWaitUp(t *testing.T) {
	t.Parallel()
	n, c, l := pair(t)
	if err := c.Links.SetUp(l, true); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := c.Links.WaitUp(soon, l)
	// the kernel sets the state a little later
	states := regexp.MustCompile(`(down|unknown), not up: context deadline exceeded$`)
	if !errors.Is(err, context.DeadlineExceeded) || !states.MatchString(err.Error()) {
		t.Errorf("without a carrier: %v", err)
	}
	meanwhile(t, n.Host, "ip", "link", "set", "far", "up")
	late, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	if err := c.Links.WaitUp(late, l); err != nil {
		t.Error(err)
	}
}

// TestAwaitLinks checks that Await calls done again after a change, and returns its error.
func TestAwaitLinks(t *testing.T) {
	t.Parallel()
	n, c, l := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	meanwhile(t, n.Container("c"), "ip", "link", "set", "eth0", "mtu", "1300")
	err := c.Links.Await(ctx, l, func() (bool, error) {
		now, err := c.Links.ByIndex(l.Index)
		return now.MTU == 1300, err
	})
	if err != nil {
		t.Error(err)
	}
	wrong := errors.New("wrong")
	if err := c.Links.Await(ctx, l, func() (bool, error) { return false, wrong }); !errors.Is(err,
		wrong) {
		t.Errorf("error of done: %v", err)
	}
}

// TestWaitDAD checks that an address of the peer is a duplicate, and that WaitDAD does not wait for
// a link that is down.
func TestWaitDAD(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureIPv6))
	n, c, l := pair(t)
	n.Host.Batch("address add fd00::9/64 dev far nodad", "link set far up")
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	own, taken := netip.MustParsePrefix("fd00::1/64"), netip.MustParsePrefix("fd00::9/64")
	if err := c.Addrs.Add(l, own); err != nil {
		t.Fatal(err)
	}
	if err := c.Addrs.WaitDAD(ctx, l); err != nil {
		t.Errorf("down: %v", err)
	}
	if err := errors.Join(c.Links.SetUp(l, true), c.Links.WaitUp(ctx, l),
		c.Addrs.WaitDAD(ctx, l)); err != nil {
		t.Errorf("up: %v", err)
	}
	if err := c.Addrs.Add(l, taken); err != nil {
		t.Fatal(err)
	}
	err := c.Addrs.WaitDAD(ctx, l)
	if d := (*netlink.DuplicateError)(nil); !errors.As(err, &d) || d.Addr != taken ||
		d.Link != "eth0" {
		t.Errorf("duplicate: %v", err)
	}
	if list, err := c.Addrs.Duplicates(l); err != nil || len(list) != 1 || list[0] != taken {
		t.Errorf("duplicates %v, %v", list, err)
	}
}

// TestMadeUndone checks that a link is deleted again if its index cannot be looked up.
func TestMadeUndone(t *testing.T) {
	t.Parallel()
	refusal := func(number uint32, e unix.Errno) []byte {
		return packet(unix.NLMSG_ERROR, 0, number, netlink.Body(-int32(e)))
	}
	for _, row := range []struct {
		name string
		undo unix.Errno
	}{{"deleted", 0}, {"vanished", unix.ENODEV}, {"stays", unix.EPERM}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.answer(t, refusal(1, 0), refusal(2, unix.ENOMEM), refusal(3, row.undo))
			_, err := w.Links.Add(netlink.NewLink{Name: "d0", Kind: "dummy"})
			if !errors.Is(err, unix.ENOMEM) || errors.Is(err,
				unix.EPERM) != (row.undo == unix.EPERM) || errors.Is(err, unix.ENODEV) {
				t.Errorf("got %v", err)
			}
			var kinds []uint16
			for _, e := range w.asked() {
				kinds = append(kinds, binary.NativeEndian.Uint16(e.datagram[4:]))
			}
			if len(kinds) != 3 || kinds[0] != unix.RTM_NEWLINK || kinds[1] != unix.RTM_GETLINK ||
				kinds[2] != unix.RTM_DELLINK {
				t.Errorf("requests %v", kinds)
			}
		})
	}
}

// TestLargeRequest checks that a request that is larger than the send buffer enlarges the buffer.
func TestLargeRequest(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	fd, err := testnet.NS(t, ns).Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
		unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var requests []netlink.Request
	for i := range 20000 {
		index := int32(1)
		if i == 12345 {
			index = 4711
		}
		requests = append(requests, netlink.Request{Kind: unix.RTM_NEWLINK,
			Body: netlink.Body(unix.IfInfomsg{Index: index})})
	}
	if at, err := new(netlink.Exchange).Send(fd, requests...); at != 12345 ||
		!errors.Is(err, unix.ENODEV) {
		t.Errorf("request %d: %v", at, err)
	}
}

// TestRoutesSame checks that a route is the same in another table, with another protocol, and as
// the only hop of a multipath route, but not with another metric.
func TestRoutesSame(t *testing.T) {
	t.Parallel()
	r := netlink.Route{Dst: netip.MustParsePrefix("fd00::/64"),
		GW: netip.MustParseAddr("fd00:1::1"), Link: 3}
	own := netlink.OwnRoute(r)
	if !own.Same(own.In(1000)) || own.Same(own.WithPriority(7)) ||
		!own.WithPriority(7).WithPriority(0).Same(own) {
		t.Error("tables and metrics")
	}
	hop := netlink.Body(unix.RtNexthop{Len: 28, Ifindex: 3},
		netlink.Bytes(unix.RTA_GATEWAY, r.GW.AsSlice()))
	body := func(hops ...byte) []byte {
		return netlink.Body(unix.RtMsg{Family: unix.AF_INET6, Dst_len: 64,
			Protocol: unix.RTPROT_STATIC, Type: unix.RTN_UNICAST},
			netlink.Bytes(unix.RTA_DST, r.Dst.Addr().AsSlice()), netlink.Uint32(unix.RTA_TABLE,
				254), netlink.Bytes(unix.RTA_MULTIPATH, hops))
	}
	for n, hops := range [][]byte{1: hop, 2: append(hop, hop...)} {
		if n == 0 {
			continue
		}
		w := newWire(t)
		w.answer(t, done(1), append(packet(unix.RTM_NEWROUTE, unix.NLM_F_MULTI, 2, body(hops...)),
			done(2)...))
		list, err := w.Routes.Stored(netlink.Link{Index: 3})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if same := list[0].Same(own); same != (n == 1) || len(list[0].Gateways()) != n {
			t.Errorf("%d hops: same %v, gateways %v", n, same, list[0].Gateways())
		}
	}
}
