package hostdevice_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestTraffic: addresses can be used when ADD returns, IPv6 addresses even without a gateway, with
// every value of dad; routes have the MTU and MSS of the configuration.
func TestTraffic(t *testing.T) {
	t.Parallel()
	for _, dad := range []string{"", "off", "optimistic", "wait"} {
		t.Run("dad "+dad, func(t *testing.T) {
			t.Parallel()
			r := lab(t, `,"device":"ens1","dad":"`+dad+`","ipam":{"type":"static","addresses":[{"address":"10.96.0.7/24"},{"address":"fd00:96::7/64"}],
				"routes":[{"dst":"192.0.2.0/24","gw":"10.96.0.1","mtu":1300,"advmss":1200}]}`)
			if dad == "" {
				delete(r.Conf, "dad")
			}
			peer(r)
			r.Add("c")
			usable(t, r)
			testnet.Reaches(t, r.Container("c"), netip.MustParseAddr("10.96.0.1"), true)
			// otherwise neighbour solicitations are delayed (RFC 4429, section 3.2)
			if dad == "off" || dad == "wait" {
				testnet.Reaches(t, r.Container("c"), netip.MustParseAddr("fd00:96::1"), true)
			}
			if route := r.Container("c").
				Command("ip", "route", "show", "192.0.2.0/24"); !strings.Contains(route,
				"mtu 1300 advmss 1200") {
				t.Error(route)
			}
			r.Check("c")
			r.Container("c").Command("ip", "route", "change", "192.0.2.0/24", "via", "10.96.0.1",
				"dev", "eth0", "mtu", "1301", "advmss", "1200")
			if _, err := r.Do(t.Context(), r.Request(cni.Check, "c")); err == nil ||
				!strings.Contains(err.Error(), "mtu") {
				t.Errorf("CHECK of a route with another MTU: %v", err)
			}
		})
	}
}

// peer configures the host at the other end of the wire.
func peer(r *plugintest.Runtime) {
	r.Container("switch").Command("sysctl", "-qw", "net.ipv6.conf.wire.accept_dad=0")
	r.Container("switch").
		Batch("address add 10.96.0.1/24 dev wire", "address add fd00:96::1/64 dev wire nodad")
}

// usable fails the test if a program in the container cannot bind the IPv6 address.
func usable(t *testing.T, r *plugintest.Runtime) {
	t.Helper()
	err := r.Container("c").Run(func() error {
		c, err := net.ListenPacket("udp6", "[fd00:96::7]:0")
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
