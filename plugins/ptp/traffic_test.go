package ptp_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestPing: all addresses answer when ADD has returned, without waiting.
func TestPing(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipamDual)
	a := r.Add("a")
	for _, ip := range a.IPs {
		testnet.Reaches(t, r.Container("a"), ip.Gateway, true)
		testnet.Reaches(t, r.Host, ip.Address.Addr(), true)
	}
	b := r.Add("b")
	for i := range b.IPs {
		testnet.Reaches(t, r.Container("b"), a.IPs[i].Address.Addr(), true)
		testnet.Reaches(t, r.Container("a"), b.IPs[i].Address.Addr(), true)
	}
}

// TestPingFromASingleAddress: the gateway can be outside the network of the address.
func TestPingFromASingleAddress(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		static(`{"address":"203.0.113.7/32","gateway":"169.254.1.1"},{"address":"2001:db8:7::7/128","gateway":"2001:db8:8::1"}`,
			`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`))
	outside := r.Uplink()
	for _, ip := range r.Add("c").IPs {
		testnet.Reaches(t, r.Container("c"), ip.Gateway, true)
	}
	// addresses of the host, through the default route
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		testnet.Reaches(t, r.Container("c"), netip.MustParseAddr(address), true)
	}
	outside.Command("ip", "route", "add", "203.0.113.7/32", "via", "192.0.2.1")
	testnet.Reaches(t, outside, netip.MustParseAddr("203.0.113.7"), true)
}

// TestMasquerade compares the source addresses that a host outside and a container of the same
// network see (CFG-35).
func TestMasquerade(t *testing.T) {
	t.Parallel()
	for members, masq := range map[string]bool{
		"": false, `,"ipMasq":true`: true, `,"ipMasq":true,"ipMasqBackend":"iptables"`: true,
	} {
		t.Run(members, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, members+ipamDual)
			r.Add("c")
			r.Add("sibling")
			testnet.CheckSources(t, r.Net, "c", "sibling", masq)
		})
	}
}

// TestReuse: an address is released only when no link uses it any more, and its next holder is the
// only one.
func TestReuse(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		`,"ipMasq":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/30"}],[{"subnet":"fd00:7::/126","rangeEnd":"fd00:7::2"}]]}`)
	owners := func() (n int) {
		for family, address := range map[string]string{"-4": "10.1.2.2", "-6": "fd00:7::2"} {
			n += strings.Count(r.Host.Command("ip", family, "route", "show", address), " dev ")
		}
		return n
	}
	released := 0
	watched := r.Watched(func(op string) error {
		if strings.HasPrefix(op, "release ") && strings.Contains(op, " held by ") {
			released++
			if n := owners(); n != 0 {
				t.Errorf("%s: the host still has %d routes", op, n)
			}
		}
		return nil
	})
	for i := range 5 {
		container := fmt.Sprintf("c%d", i)
		r.Add(container)
		if n := owners(); n != 2 {
			t.Errorf("%d routes to two addresses", n)
		}
		r.Refused(r.Request(cni.Add, "waiting"), cni.CodeTryAgainLater)
		if _, err := watched.Do(t.Context(), r.Request(cni.Del, container)); err != nil {
			t.Error(err)
		}
	}
	if released != 2*5 {
		t.Errorf("%d addresses were released, want 10", released)
	}
}
