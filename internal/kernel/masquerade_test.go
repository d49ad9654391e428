package kernel_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// outside is a namespace beyond the host, with a server that answers with the client's address.
type outside struct {
	*bench
	ns *testnet.Namespace
}

// connect connects container, host and outside, with routes in both directions, for IPv4 and IPv6.
func connect(t *testing.T) *outside {
	t.Helper()
	b := setup(t)
	o := &outside{bench: b, ns: b.Container("outside")}
	out := open(t, b.tx, o.ns)
	must(t, b.host.Sysctl.Ensure([]kernel.Setting{{Key: "net/ipv4/ip_forward", Value: "1"}}))
	must(t, b.host.Sysctl.Ensure([]kernel.Setting{{Key: "net/ipv6/conf/all/forwarding", Value: "1"}}))
	for _, s := range []*kernel.Space{b.host, b.container, out} {
		must(t, s.Sysctl.Ensure([]kernel.Setting{{Key: "net/ipv6/conf/default/accept_dad", Value: "0"}}))
	}
	for _, pair := range []struct {
		space              *kernel.Space
		name               string
		inside4, host4     string
		inside6, host6     string
		through4, through6 string
	}{
		{b.container, "veth0", "10.1.2.3/24", "10.1.2.1/24", "fd01::3/64", "fd01::1/64", "10.1.2.1", "fd01::1"},
		{out, "veth1", "10.1.9.9/24", "10.1.9.1/24", "fd09::9/64", "fd09::1/64", "10.1.9.1", "fd09::1"},
	} {
		inside, host, err := pair.space.Links.AddVeth(kernel.Veth{Name: "eth0", Host: b.host, HostName: pair.name})
		must(t, err)
		must(t, pair.space.Addrs.Add(inside, prefix(pair.inside4)))
		must(t, pair.space.Addrs.Add(inside, prefix(pair.inside6)))
		must(t, b.host.Addrs.Add(host, prefix(pair.host4)))
		must(t, b.host.Addrs.Add(host, prefix(pair.host6)))
		must(t, pair.space.Links.Up(inside))
		must(t, b.host.Links.Up(host))
		must(t, pair.space.Links.WaitUp(t.Context(), inside))
		must(t, b.host.Links.WaitUp(t.Context(), host))
		// Even without detection, the addresses take a moment.
		must(t, pair.space.Addrs.WaitDAD(t.Context(), inside))
		must(t, b.host.Addrs.WaitDAD(t.Context(), host))
		must(t, pair.space.Routes.Add(inside, kernel.Route{Dst: prefix("0.0.0.0/0"), GW: addr(pair.through4)}))
		must(t, pair.space.Routes.Add(inside, kernel.Route{Dst: prefix("::/0"), GW: addr(pair.through6)}))
	}
	return o
}

// sees returns the container's address as a server outside sees it.
func (o *outside) sees(t *testing.T, server string) string {
	t.Helper()
	var listener net.PacketConn
	o.ns.Do(func() {
		var err error
		listener, err = net.ListenPacket("udp", net.JoinHostPort(server, "0"))
		must(t, err)
	})
	defer listener.Close()
	o.Container("container").Do(func() {
		c, err := net.Dial("udp", listener.LocalAddr().String())
		must(t, err)
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		must(t, err)
	})
	must(t, listener.SetReadDeadline(time.Now().Add(testnet.Patience)))
	_, from, err := listener.ReadFrom(make([]byte, 16))
	must(t, err)
	return netip.MustParseAddrPort(from.String()).Addr().String()
}

func TestMasqueradedTraffic(t *testing.T) {
	t.Parallel()
	o := connect(t)
	check := func(when, want4, want6 string) {
		t.Helper()
		if got := o.sees(t, "10.1.9.9"); got != want4 {
			t.Errorf("%s: seen as %s, want %s", when, got, want4)
		}
		if got := o.sees(t, "fd09::9"); got != want6 {
			t.Errorf("%s: seen as %s, want %s", when, got, want6)
		}
	}
	check("without masquerading", "10.1.2.3", "fd01::3")
	o.tx.Keep()
	must(t, o.host.Rules.Masquerade("owner", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.3/24"), prefix("fd01::3/64")}))
	check("masqueraded", "10.1.9.1", "fd09::1")
	must(t, o.tx.Rollback())
	check("after rollback", "10.1.2.3", "fd01::3")
	must(t, o.host.Rules.Masquerade("owner", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.3/16"), prefix("fd01::3/12")}))
	check("to its own network", "10.1.2.3", "fd01::3")
}

func TestMasqueradeWithinTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.host.Rules.Masquerade("first", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.3/24")}))
	b.tx.Keep()
	before := b.snapshot(t)
	must(t, b.host.Rules.Masquerade("second", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.3/24"), prefix("fd00::3/64")}))
	list, err := b.host.Rules.Held(nft.Masquerading)
	must(t, err)
	if len(list) != 4 || slices.ContainsFunc(list, func(h kernel.Held) bool { return h.Comment != "second" }) {
		t.Errorf("got %v", list)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
	held, err := b.host.Rules.Remove(nft.Masquerading, func(tag string) bool { return strings.HasPrefix(tag, "fir") })
	if len(held) != 2 || err != nil {
		t.Errorf("removed %v, %v", held, err)
	}
}
