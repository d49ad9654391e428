package bridge_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestPing: all addresses answer when ADD has returned, without waiting.
func TestPing(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+ipamDual)
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

// TestReachedAtOnce: packets to the first container behind a new gateway do not wait until the
// gateway has completed duplicate address detection of its link-local address, which takes half a
// minute here.
func TestReachedAtOnce(t *testing.T) {
	t.Parallel()
	for name, members := range map[string]string{"bridge": "", "gateway of a VLAN": `,"vlan":100`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if members != "" {
				testnet.Require(t, testnet.Kernel(kernel.FeatureVLANFiltering))
			}
			r := runtime(t, gateway+members+ipamDual)
			outside := r.Uplink()
			outside.Command("ip", "route", "add", "default", "via", "2001:db8::1")
			r.Host.Command("sysctl", "-qw", "net.ipv6.conf.default.dad_transmits=30")
			result := r.Add("c")
			testnet.Reaches(t, outside, result.IPs[1].Address.Addr(), true)
		})
	}
}

// TestWaitsForThePort: ADD returns when the port forwards, even if that takes a while.
func TestWaitsForThePort(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"isGateway":true`+ipam4)
	c := r.Container("c")
	late := make(chan struct{})
	interrupt := sync.OnceFunc(func() {
		c.Command("ip", "link", "set", "eth0", "down") // the port loses its carrier
		time.AfterFunc(300*time.Millisecond, func() {
			defer close(late)
			c.Command("ip", "link", "set", "eth0", "up")
		})
	})
	watched := r.Watched(func(op string) error {
		// the gateway address comes after the interface is up
		if strings.Contains(op, "10.1.2.1/24") {
			interrupt()
		}
		return nil
	})
	if _, err := watched.Do(t.Context(), r.Request(cni.Add, "c")); err != nil {
		t.Fatal(err)
	}
	ports := r.Host.Command("ip", "-d", "link", "show", "master", "br0")
	<-late
	if !strings.Contains(ports, "state UP") || !strings.Contains(ports, "state forwarding") {
		t.Errorf("when ADD returned the port was %s", ports)
	}
}

// TestSwitch: two containers without IPAM share a link.
func TestSwitch(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	for i, container := range []string{"a", "b"} {
		r.Add(container)
		r.Container(container).Command("ip", "address", "add", fmt.Sprintf("10.5.0.%d/24", i+1),
			"dev", "eth0")
	}
	testnet.Reaches(t, r.Container("a"), netip.MustParseAddr("10.5.0.2"), true)
}

// TestIPv6Off: IPv4 works with IPv6 disabled on the host and in the container.
func TestIPv6Off(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+`,"ipMasq":true`+ipam4)
	for _, ns := range []*plugintest.Namespace{r.Host, r.Container("c")} {
		ns.Command("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
			"net.ipv6.conf.default.disable_ipv6=1")
	}
	result := r.Add("c")
	r.Check("c")
	testnet.Reaches(t, r.Container("c"), result.IPs[0].Gateway, true)
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+`,"portIsolation":true`+ipam4)
	r.Add("a")
	b := r.Add("b").IPs[0].Address.Addr()
	delete(r.Conf, "portIsolation")
	open := r.Add("open").IPs[0].Address.Addr()
	testnet.Reaches(t, r.Container("a"), b, false)
	testnet.Reaches(t, r.Container("a"), open, true)
	testnet.Reaches(t, r.Container("open"), b, true)
	testnet.Reaches(t, r.Container("a"), netip.MustParseAddr("10.1.2.1"), true)
}

// TestMasquerade compares the source addresses that a host outside and a container of the same
// network see (CFG-35).
func TestMasquerade(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members string
		masq          bool
	}{
		{"true", `,"ipMasq":true`, true},
		{"false", `,"ipMasq":false,"ipMasqBackend":"iptables"`, false},
		{"by nftables", `,"ipMasq":true,"ipMasqBackend":"nftables"`, true},
		{"by iptables", `,"ipMasq":true,"ipMasqBackend":"iptables"`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, gateway+row.members+ipamDual)
			r.Add("c")
			r.Add("sibling")
			testnet.CheckSources(t, r.Net, "c", "sibling", row.masq)
		})
	}
}

// TestMasqueradeDetails compares the source addresses that a node outside sees, also after a flush
// and a repair. A sibling sees the container's own address, with and without br_netfilter.
func TestMasqueradeDetails(t *testing.T) {
	t.Parallel()
	for details, want := range map[string][2]string{
		`"v6":false`:                               {"192.0.2.1", "fd00:1::2"},
		`"excludeCIDRs":["192.0.2.0/24"]`:          {"10.1.2.2", "2001:db8::1"},
		`"toSource":["192.0.2.50","2001:db8::50"]`: {"192.0.2.50", "2001:db8::50"},
		`"dropInvalid":true`:                       {"192.0.2.1", "2001:db8::1"},
	} {
		t.Run(details, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, gateway+`,"ipMasq":true,"masquerade":{`+details+`}`+ipamDual)
			outside := r.Uplink()
			r.Add("c")
			r.Add("sibling")
			for _, when := range []string{"ADD", "repair"} {
				for i, server := range []string{"192.0.2.2", "2001:db8::2"} {
					if got := testnet.SourceSeen(t, r.Container("c"), outside,
						netip.MustParseAddr(server)); got.String() != want[i] {
						t.Errorf("after %s, %s sees %s, want %s", when, server, got, want[i])
					}
				}
				if got := testnet.SourceSeen(t, r.Container("c"), r.Container("sibling"),
					netip.MustParseAddr("10.1.2.3")); got.String() != "10.1.2.2" {
					t.Errorf("after %s, the sibling sees %s", when, got)
				}
				r.Check("c")
				r.Host.Command("nft", "flush", "ruleset")
				if err := r.Repair("c"); err != nil {
					t.Error(err)
				}
			}
			r.Del("c")
			if left := r.Host.Command("nft", "list", "ruleset"); strings.Contains(left, "tenon:") {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}

// TestNewNeighbour: if another container gets an address, its neighbours learn the new MAC address
// at once.
func TestNewNeighbour(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"isGateway":true`+ipamDual)
	r.Add("a")
	attach := func(container string) *cni.Result {
		q := r.Request(cni.Add, container)
		q.Conf["runtimeConfig"] = map[string]any{"ips": []string{"10.1.2.77", "fd00:1::77"}}
		result, err := cni.DecodeResult(r.Must(q), 0)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	for _, ip := range attach("before").IPs {
		testnet.Reaches(t, r.Container("a"), ip.Address.Addr(), true)
	}
	r.Del("before")
	// neighbours ignore changes within a second (locktime, arp(7))
	time.Sleep(1100 * time.Millisecond)
	after := attach("after")
	for _, ip := range after.IPs {
		testnet.LearnsMAC(t, r.Container("a"), ip.Address.Addr(), after.Interfaces[2].MAC)
	}
}

// TestRouterAdvertisements: a container cannot become the router of the host (CVE-2020-10749).
func TestRouterAdvertisements(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipam6)
	for _, conf := range []string{"all", "default"} {
		r.Host.Command("sysctl", "-qw", "net.ipv6.conf."+conf+".accept_ra=2")
	}
	r.Add("c")
	accepted := func() bool {
		return strings.Contains(r.Host.Command("ip", "-6", "route"), "2001:db8:bad::") ||
			strings.Contains(r.Host.Command("ip", "-6", "route"), "default") ||
			strings.Contains(r.Host.Command("ip", "-6", "address"), "2001:db8:bad:")
	}
	for range 50 {
		testnet.Advertise(t, r.Container("c"))
	}
	time.Sleep(200 * time.Millisecond)
	if accepted() {
		t.Errorf("the host follows router advertisements of a container:\n%s",
			r.Host.Command("ip", "-6", "route"))
	}
	// Without the setting of ADD the host follows the same advertisement.
	r.Host.Command("sysctl", "-qw", "net.ipv6.conf.br0.accept_ra=2")
	for end := time.Now().Add(testnet.Patience); !accepted(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the host ignores the advertisements of this test even without the setting")
		}
		testnet.Advertise(t, r.Container("c"))
	}
}
