package daemon_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
)

// TestSLAAC checks that the result contains the address and the router that the kernel has from
// router advertisements, even if the namespace disables them, that CHECK notices when the address
// is gone, and that DEL leaves the address to the kernel.
func TestSLAAC(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 60)
	dhcpserver.Start(t, n, dhcpserver.Router, "", 1800)
	c := n.Container("a")
	c.Command("sysctl", "-qw", "net.ipv6.conf.eth0.accept_ra=0", "net.ipv6.conf.eth0.autoconf=0",
		"net.ipv6.conf.all.forwarding=1")
	d := newNode(t, n)
	d.dhcp6("slaac")
	r := d.must(dhcp.Allocate, "a")
	if len(r.IPs) != 2 ||
		!netip.MustParsePrefix("fd00:92::/64").Contains(r.IPs[1].Address.Addr()) ||
		r.IPs[1].Address.Bits() != 64 || !r.IPs[1].Gateway.IsLinkLocalUnicast() {
		t.Fatalf("%+v", r.IPs)
	}
	for _, rt := range r.Routes {
		if rt.Dst.Addr().Is6() {
			t.Errorf("the result contains the kernel's route %+v", rt)
		}
	}
	if got := c.Command("ip", "-6", "route", "show", "default"); !strings.Contains(got,
		"via "+r.IPs[1].Gateway.String()) {
		t.Errorf("default route: %s, in the result %s", got, r.IPs[1].Gateway)
	}
	for _, verb := range []dhcp.Verb{dhcp.Check, dhcp.Allocate} {
		if again := d.must(verb, "a"); len(again.IPs) != 2 || again.IPs[1] != r.IPs[1] {
			t.Errorf("%s: %+v, before %+v", verb, again.IPs, r.IPs)
		}
	}
	d.must(dhcp.Release, "a")
	if got := d.addresses6("a"); !strings.Contains(got, r.IPs[1].Address.String()) {
		t.Errorf("after DEL: %s", got)
	}
	d.must(dhcp.Allocate, "a")
	c.Command("sysctl", "-qw", "net.ipv6.conf.eth0.accept_ra=0")
	c.Batch("addr del " + r.IPs[1].Address.String() + " dev eth0")
	if _, err := d.call(dhcp.Check, "a"); err == nil ||
		!strings.Contains(err.Error(), "no longer has an address from router advertisements") {
		t.Errorf("CHECK without the address: %v", err)
	}
}

// TestNoRouter checks that ADD fails in time without a router, and that the daemon releases the
// IPv4 address.
func TestNoRouter(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	s := dhcpserver.Start(t, n, isc, pool, 60)
	d := newNode(t, n)
	d.stop()
	d.o.ResendTimeout = 20 * time.Second
	d.start()
	d.dhcp6("slaac")
	_, err := d.call(dhcp.Allocate, "a")
	if err == nil || cni.CodeOf(err) != cni.CodeTryAgainLater || !strings.Contains(err.Error(),
		`router advertisements on link "eth0": no router has advertised`) {
		t.Errorf("%v", err)
	}
	if l, ok := d.lease("a"); ok {
		t.Errorf("still there: %+v", l)
	}
	testnet.Eventually(t, func() error {
		if !strings.Contains(s.Log(), s.Kind.Released) {
			return errors.New("the server knows of no release: " + fmt.Sprint(s.Log()))
		}
		return nil
	})
}
