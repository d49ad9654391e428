package daemon_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
)

// dhcp6 returns the key of the configuration.
func (d *node) dhcp6(value string) {
	d.conf = strings.Replace(d.conf, `"type": "dhcp"`, `"type": "dhcp", "dhcp6": "`+value+`"`, 1)
}

// addresses6 returns the IPv6 addresses of a container's eth0, except for the link-local one.
func (d *node) addresses6(container string) string {
	return d.n.Container(container).Command("ip", "-6", "-o", "addr", "show", "dev", "eth0",
		"scope", "global")
}

// TestServers6 checks against real DHCPv6 servers that an address is granted in addition to the
// IPv4 address, renewed, kept over a restart of the daemon, and released.
func TestServers6(t *testing.T) {
	t.Parallel()
	for _, k := range dhcpserver.Kinds6 {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			n := dhcpserver.NewNet(t, "a")
			dhcpserver.Start(t, n, isc, pool, 60)
			s := dhcpserver.StartRenewing(t, n, k, "fd00:92::100,fd00:92::200", 4)
			d := newNode(t, n)
			d.dhcp6("stateful")
			r := d.add("a")
			if len(r.IPs) != 2 || !strings.HasPrefix(r.IPs[1].Address.String(), "fd00:92::") ||
				r.IPs[1].Address.Bits() != 128 {
				t.Fatalf("%+v\n%s", r.IPs, s.Log())
			}
			renews := strings.Count(strings.ToUpper(s.Log()), "RENEW")
			testnet.Eventually(t, func() error {
				if strings.Count(strings.ToUpper(s.Log()), "RENEW") == renews {
					return fmt.Errorf("not renewed: %s", s.Log())
				}
				return nil
			})
			d.stop()
			d.start()
			if got := d.must(dhcp.Check, "a"); len(got.IPs) != 2 || got.IPs[1] != r.IPs[1] {
				t.Errorf("%v, before %v", got.IPs, r.IPs)
			}
			s.Pause(300 * time.Millisecond)
			d.must(dhcp.Release, "a")
			if !strings.Contains(s.Log(), k.Released) { // the daemon waits for the answer
				t.Errorf("the server has not logged a release: %s", s.Log())
			}
			if left := d.addresses6("a"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}

// TestLost6 checks that the daemon removes an address that no server renews.
func TestLost6(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 60)
	s := dhcpserver.Start(t, n, dhcpserver.Kinds6[0], "fd00:92::100,fd00:92::200", 6)
	d := newNode(t, n)
	d.dhcp6("stateful")
	d.add("a")
	s.Stop()
	testnet.Eventually(t, func() error {
		if _, err := d.call(dhcp.Check, "a"); err == nil ||
			!strings.Contains(err.Error(), "no DHCPv6 lease") {
			return fmt.Errorf("CHECK: %v", err)
		}
		return nil
	})
	if left := d.addresses6("a"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestDUID checks that servers recognise a container after its interface was created again with
// another MAC address, and with another daemon.
func TestDUID(t *testing.T) {
	t.Parallel()
	for _, k := range dhcpserver.Kinds6 {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			n := dhcpserver.NewNet(t, "a", "b")
			dhcpserver.Start(t, n, isc, pool, 60)
			dhcpserver.Start(t, n, k, "fd00:92::100,fd00:92::200", 60)
			d := newNode(t, n)
			d.dhcp6("stateful")
			had := d.must(dhcp.Allocate, "a").IPs[1]
			d.stop()
			n.Container("a").Batch("link del eth0")
			dhcpserver.PlugIn(n, "a")
			d.start()
			if got := d.must(dhcp.Allocate, "a").IPs[1]; got != had {
				t.Errorf("%v, before %v", got, had)
			}
			if other := d.must(dhcp.Allocate, "b").IPs[1]; other == had {
				t.Errorf("another container has %v too", other)
			}
		})
	}
}

// TestDuplicate6 checks that the daemon declines an address that another node has, and that the
// server grants another one: before the address is used, and later, when the kernel has detected
// the duplicate.
func TestDuplicate6(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 60)
	n.Host.Batch("addr add fd00:92::100/64 dev br0 nodad")
	// The server begins with the first address.
	s := dhcpserver.Start(t, n, dhcpserver.Kinds6[1], "fd00:92::100,fd00:92::102", 60)
	d := newNode(t, n)
	d.stop()
	d.o.LookEvery = 100 * time.Millisecond
	d.start()
	d.dhcp6("stateful")
	r := d.add("a")
	if got := r.IPs[1].Address.String(); got != "fd00:92::101/128" {
		t.Errorf("got %s", got)
	}
	if log := s.Log(); strings.Count(log, "DHCP6_DECLINE_LEASE ") != 1 ||
		!strings.Contains(log, "fd00:92::100 ") {
		t.Errorf("server: %s", log)
	}
	n.Host.Batch("addr add fd00:92::101/64 dev br0 nodad")
	n.Container("a").Batch("addr del fd00:92::101/128 dev eth0",
		"addr add fd00:92::101/128 dev eth0")
	testnet.Eventually(t, func() error {
		r, err := d.call(dhcp.Check, "a")
		if err == nil && r.IPs[1].Address.String() != "fd00:92::102/128" {
			err = fmt.Errorf("has %v", r.IPs)
		}
		return err
	})
	if got := d.addresses6("a"); strings.Contains(got, "fd00:92::101") ||
		!strings.Contains(got, "fd00:92::102/128") {
		t.Errorf("got %s", got)
	}
}

// TestStateless6 checks that the daemon requests only settings.
func TestStateless6(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 60)
	dhcpserver.Start(t, n, dhcpserver.Kinds6[0], "fd00:92::100,fd00:92::200", 60)
	d := newNode(t, n)
	d.dhcp6("stateless")
	r := d.add("a")
	if len(r.IPs) != 1 || fmt.Sprint(r.DNS.Nameservers) != "[fd00:92::1]" {
		t.Errorf("%+v", r)
	}
	d.must(dhcp.Release, "a")
}
