package netlink_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// open opens a connection with a namespace.
func open(t testing.TB, ns *testnet.Namespace) *netlink.Conn {
	t.Helper()
	c, err := netlink.Open(testnet.NS(t, ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// wired creates a link with a carrier.
func wired(t testing.TB, ns *testnet.Namespace, c *netlink.Conn, name string) netlink.Link {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth))
	ns.Wire(name)
	l, err := c.Links.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// manyAddrs is more addresses than the kernel describes in one datagram.
const manyAddrs = 1500

func addAddrs(t testing.TB, c *netlink.Conn, l netlink.Link) {
	t.Helper()
	for i := range manyAddrs {
		a := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
		if err := c.Addrs.Add(l, a); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongList checks that a list of several datagrams is complete.
func TestLongList(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	c := open(t, ns)
	l := wired(t, ns, c, "w0")
	addAddrs(t, c, l)
	list, err := c.Addrs.Of(l)
	seen := map[netip.Prefix]bool{}
	for _, a := range list {
		seen[a] = a.Addr().Is4()
	}
	if err != nil || len(seen) < manyAddrs || len(seen) != len(list) {
		t.Errorf("%d addresses, %d different, %v", len(list), len(seen), err)
	}
}

// TestAbandonedList checks that the socket works after a reader abandons a list in the middle. The
// kernel refuses a second list, with EBUSY, until the first one has been read to its end.
func TestAbandonedList(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	c := open(t, ns)
	addAddrs(t, c, wired(t, ns, c, "w0"))
	fd, err := testnet.NS(t, ns).Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
		unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var x netlink.Exchange
	list := func(each func([]byte) error) error {
		_, err := netlink.List(&x, fd, unix.RTM_GETADDR, netlink.Body(unix.IfAddrmsg{}),
			func(_ []any, b []byte) ([]any, error) { return nil, each(b) })
		return err
	}
	enough := errors.New("enough")
	calls := 0
	err = list(func([]byte) error {
		calls++
		return enough
	})
	if !errors.Is(err, enough) || calls != 1 {
		t.Errorf("abandoned after %d calls: %v", calls, err)
	}
	n := 0
	if err := list(func([]byte) error { n++; return nil }); err != nil || n < manyAddrs {
		t.Errorf("%d addresses after an abandoned list: %v", n, err)
	}
}

// TestSendLosesAnswers checks that the first remaining refusal counts if the kernel drops answers
// for lack of room in the socket; without one, the loss is the error.
func TestSendLosesAnswers(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	for _, refused := range []int{-1, 0} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			t.Parallel()
			fd, err := testnet.NS(t, ns).Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
				unix.NETLINK_ROUTE)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
				t.Fatal(err)
			}
			var requests []netlink.Request
			for i := range 200 {
				index := int32(1)
				if i == refused {
					index = 4711
				}
				requests = append(requests, netlink.Request{
					Kind: unix.RTM_NEWLINK, Flags: unix.NLM_F_ACK,
					Body: netlink.Body(unix.IfInfomsg{Index: index}),
				})
			}
			at, err := new(netlink.Exchange).Send(fd, requests...)
			want, wantAt := error(unix.ENODEV), refused
			if refused < 0 {
				want, wantAt = unix.ENOBUFS, 0
			}
			if !errors.Is(err, want) || at != wantAt {
				t.Errorf("request %d: %v, want %d: %v", at, err, wantAt, want)
			}
		})
	}
}

// TestNamespace checks that a connection stays in the namespace it was opened for, whichever thread
// uses it.
func TestNamespace(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "a", "b")
	a, b := n.Container("a"), n.Container("b")
	inA, inB := open(t, a), open(t, b)
	wired(t, a, inA, "onlyhere")
	b.Do(func() {
		if _, err := inA.Links.ByName("onlyhere"); err != nil {
			t.Errorf("the link is not found from another namespace: %v", err)
		}
	})
	a.Do(func() {
		if _, err := inB.Links.ByName("onlyhere"); !errors.Is(err, netlink.ErrNoLink) {
			t.Errorf("the link is found in the other namespace: %v", err)
		}
	})
}

// TestReasons checks that an error wraps the errno and includes the kernel's text (extended ACK).
func TestReasons(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	c := open(t, ns)
	l := wired(t, ns, c, "w0")
	for _, row := range []struct {
		name string
		do   func() error
		want unix.Errno
		text string
	}{
		{"a gateway that no route leads to", func() error {
			_, err := c.Routes.Add(netlink.Route{
				Dst: netip.MustParsePrefix("10.0.0.0/8"), GW: netip.MustParseAddr("192.0.2.1"),
				Link: l.Index,
			})
			return err
		}, unix.ENETUNREACH, "network is unreachable: Nexthop has invalid gateway"},
		{"an MTU below the smallest", func() error { return c.Links.SetMTU(l, -1) }, unix.EINVAL,
			"invalid argument: mtu less than device minimum"},
		{"a qdisc twice", func() error {
			return errors.Join(c.Qdiscs.AddHooks(l, netlink.KindIngress),
				c.Qdiscs.AddHooks(l, netlink.KindIngress))
		}, unix.EEXIST, "file exists: Exclusivity flag on, cannot modify"},
		{"no text", func() error {
			return errors.Join(c.Links.SetUp(l, false), c.Links.Rename(l, "lo"))
		},
			unix.EEXIST, "file exists"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.do()
			if !errors.Is(err, row.want) || err.Error() != row.text {
				t.Errorf("got %v, want %s", err, row.text)
			}
		})
	}
}
