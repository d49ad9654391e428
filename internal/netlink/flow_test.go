package netlink_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const udp = 17

// tracking returns a namespace that tracks flows from port 1000, one to each of the given ports at
// both loopback addresses.
func tracking(t testing.TB, ports ...int) *testnet.Namespace {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	ns := testnet.New(t).Host
	ns.Command("nft", "add table inet t; add chain inet t c { type filter hook output priority 0; }; add rule inet t c ct state new")
	for _, address := range []string{"127.0.0.1", "::1"} {
		var err error
		ns.Do(func() { err = send(net.ParseIP(address), ports) })
		if err != nil {
			t.Fatal(err)
		}
	}
	return ns
}

// send sends to all ports from one socket: a second socket could not bind the port while a process
// that another test starts holds a copy of the first.
func send(address net.IP, ports []int) error {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: address, Port: 1000})
	if err != nil {
		return err
	}
	defer c.Close()
	for _, p := range ports {
		if _, err := c.WriteTo([]byte("hello"), &net.UDPAddr{IP: address, Port: p}); err != nil {
			return err
		}
	}
	return nil
}

// left returns the remaining flows, as the kernel lists them.
func left(ns *testnet.Namespace) (list []string) {
	for line := range strings.Lines(ns.Command("cat", "/proc/thread-self/net/nf_conntrack")) {
		f := strings.Fields(line)
		isPort := func(w string) bool { return strings.HasPrefix(w, "dport=") }
		if i := slices.IndexFunc(f, isPort); f[2] == "udp" && i >= 0 {
			list = append(list, f[0]+" "+f[i])
		}
	}
	slices.Sort(list)
	return list
}

// TestDelete checks that exactly the matching flows are deleted, and that the kernel's list follows
// the filter.
func TestDelete(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		filter netlink.FlowFilter
		match  uint16 // port
		listed int
		want   []string
	}{
		{"one port", netlink.FlowFilter{Protocol: udp, DstPort: 53}, 53, 1,
			[]string{"ipv4 dport=54", "ipv6 dport=53", "ipv6 dport=54"}},
		{"IPv6", netlink.FlowFilter{IPv6: true, Protocol: udp, DstPort: 53}, 53, 1,
			[]string{"ipv4 dport=53", "ipv4 dport=54", "ipv6 dport=54"}},
		{"all ports", netlink.FlowFilter{Protocol: udp}, 54, 2,
			[]string{"ipv4 dport=53", "ipv6 dport=53", "ipv6 dport=54"}},
		{"another protocol", netlink.FlowFilter{Protocol: 132}, 53, 0,
			[]string{"ipv4 dport=53", "ipv4 dport=54", "ipv6 dport=53", "ipv6 dport=54"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := tracking(t, 53, 54)
			var seen []netlink.Flow
			row.filter.Match = func(f netlink.Flow) bool {
				seen = append(seen, f)
				return f.Orig.Dst.Port() == row.match
			}
			n, err := netlink.DeleteFlows(testnet.NS(t, ns), row.filter)
			if err != nil || n != 4-len(row.want) || len(seen) != row.listed {
				t.Errorf("deleted %d of %v (%v), want %d of %d", n, seen, err, 4-len(row.want),
					row.listed)
			}
			if diff := cmp.Diff(row.want, left(ns)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			for _, f := range seen {
				a := f.Orig.Dst.Addr()
				here, there := netip.AddrPortFrom(a, 1000), netip.AddrPortFrom(a, f.Orig.Dst.Port())
				want := netlink.Flow{Protocol: udp, Orig: netlink.Tuple{Src: here, Dst: there},
					Reply: netlink.Tuple{Src: there, Dst: here}}
				if f != want {
					t.Errorf("flow %v, want %v", f, want)
				}
			}
		})
	}
}

// TestNothingTracked checks that DeleteFlows succeeds in a namespace without flows.
func TestNothingTracked(t *testing.T) {
	t.Parallel()
	ns := testnet.New(t).Host
	n, err := netlink.DeleteFlows(testnet.NS(t, ns),
		netlink.FlowFilter{Protocol: udp, Match: func(netlink.Flow) bool { return true }})
	if n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// BenchmarkDelete deletes the flows of one port among many flows.
func BenchmarkDelete(b *testing.B) {
	for _, flows := range []int{10, 2000} {
		b.Run(fmt.Sprint(flows), func(b *testing.B) {
			var ports []int
			for i := range flows {
				ports = append(ports, 2000+i)
			}
			ns := testnet.NS(b, tracking(b, ports...))
			for b.Loop() {
				_, err := netlink.DeleteFlows(ns,
					netlink.FlowFilter{Protocol: udp, DstPort: 53,
						Match: func(netlink.Flow) bool { return false }})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
