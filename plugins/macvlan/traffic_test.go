package macvlan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// outside4 and outside6 are the addresses of the other host.
var outside4, outside6 = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")

// TestPing: as soon as ADD has returned, containers reach the other host and, if the mode allows
// it, each other. A container sends no neighbour solicitations from an optimistic address (RFC
// 4429, section 3.2), so ADD waits here.
func TestPing(t *testing.T) {
	t.Parallel()
	for mode, siblings := range map[string]bool{"bridge": true, "private": false, "vepa": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r, outside := runtime(t, `,"dad":"wait","mode":"`+mode+`"`+ipam)
			a, b := r.Add("a"), r.Add("b")
			for i, ip := range a.IPs {
				testnet.Reaches(t, outside, ip.Address.Addr(), true)
				testnet.Reaches(t, r.Container("a"), b.IPs[i].Address.Addr(), siblings)
			}
			testnet.Reaches(t, r.Container("b"), outside4, true)
			testnet.Reaches(t, r.Container("b"), outside6, true)
		})
	}
}

// TestPassthru: one container has the parent exclusively, with its MAC address. A second ADD fails
// without effect on the first container.
func TestPassthru(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, `,"dad":"wait","mode":"passthru"`+ipam)
	a := r.Add("a")
	if want := show(t, r.Host, "uplink").Address; a.Interfaces[0].MAC != want {
		t.Errorf("MAC %s, want %s", a.Interfaces[0].MAC, want)
	}
	testnet.Reaches(t, r.Container("a"), outside4, true)
	r.Container("b")
	before := r.State()
	r.Refused(r.Request(cni.Add, "b"), cni.CodeIOFailure)
	r.Unchanged(before)
	testnet.Reaches(t, r.Container("a"), outside6, true)
}

// TestSwitch: without ipam the containers share one link.
func TestSwitch(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, "")
	for i, container := range []string{"a", "b"} {
		r.Add(container)
		r.Container(container).
			Command("ip", "address", "add", fmt.Sprintf("10.5.0.%d/24", i+1), "dev", "eth0")
	}
	testnet.Reaches(t, r.Container("a"), netip.MustParseAddr("10.5.0.2"), true)
}

// TestAddressesCanBeBound: sockets can bind the addresses as soon as ADD returns, with every value
// of dad.
func TestAddressesCanBeBound(t *testing.T) {
	t.Parallel()
	for _, dad := range []string{"optimistic", "wait", "off"} {
		t.Run(dad, func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t,
				`,"dad":"`+
					dad+`","ipam":{"type":"host-local","ranges":[[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::10"}]]}`)
			address := r.Add("c").IPs[0].Address.Addr()
			err := r.Container("c").Run(func() error {
				c, err := net.ListenUDP("udp",
					net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 0)))
				if err != nil {
					return err
				}
				return c.Close()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDuplicate: with "wait", ADD fails for an address of another host and leaves nothing behind.
// With "optimistic", CHECK fails, unless the other host answers before ADD has returned.
func TestDuplicate(t *testing.T) {
	t.Parallel()
	const static = `,"ipam":{"type":"static","addresses":[{"address":"2001:db8::2/64"}]}`
	t.Run("wait", func(t *testing.T) {
		t.Parallel()
		r, _ := runtime(t, `,"dad":"wait"`+static)
		r.Container("c")
		before := r.State()
		plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInternal),
			"duplicate address detection failed for 2001:db8::2/64")
		r.Unchanged(before)
	})
	t.Run("optimistic", func(t *testing.T) {
		t.Parallel()
		testnet.Require(t, testnet.OptimisticDAD)
		r, _ := runtime(t, static)
		q := r.Request(cni.Add, "c")
		result, err := r.Do(t.Context(), q)
		q.Command, q.Conf["prevResult"] = cni.Check, json.RawMessage(result)
		for end := time.Now().Add(testnet.Patience); err == nil; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("CHECK has not reported the duplicate")
			}
			_, err = r.Do(t.Context(), q)
		}
		plugintest.Says(t, err, "duplicate address detection failed for 2001:db8::2/64")
	})
}

// TestParentIsDown: ADD does not wait for answers on a parent that is down.
func TestParentIsDown(t *testing.T) {
	t.Parallel()
	for _, dad := range []string{"optimistic", "wait", "off"} {
		t.Run(dad, func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, `,"dad":"`+dad+`"`+ipam)
			r.Host.Command("ip", "link", "set", "uplink", "down")
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			defer cancel()
			if _, err := r.Do(ctx, r.Request(cni.Add, "c")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNewNeighbour: after an address has moved to another container, other hosts learn the new MAC
// address.
func TestNewNeighbour(t *testing.T) {
	t.Parallel()
	for _, dad := range []string{"optimistic", "wait", "off"} {
		t.Run(dad, func(t *testing.T) {
			t.Parallel()
			r, outside := runtime(t, `,"dad":"`+dad+`"`+ipam)
			attach := func(container string) *cni.Result {
				q := r.Request(cni.Add, container)
				q.Conf["runtimeConfig"] = map[string]any{"ips": []string{"192.0.2.77",
					"2001:db8::77"}}
				result, err := cni.DecodeResult(r.Must(q), 0)
				if err != nil {
					t.Fatal(err)
				}
				return result
			}
			for _, ip := range attach("before").IPs {
				testnet.Reaches(t, outside, ip.Address.Addr(), true)
			}
			r.Del("before")
			// ARP ignores changes of younger entries (locktime, arp(7))
			time.Sleep(1100 * time.Millisecond)
			after := attach("after")
			for _, ip := range after.IPs {
				testnet.LearnsMAC(t, outside, ip.Address.Addr(), after.Interfaces[0].MAC)
				// it answers as soon as it may solicit the sender's address
				if dad != "optimistic" {
					testnet.Reaches(t, outside, ip.Address.Addr(), true)
				}
			}
		})
	}
}

// TestRouterAdvertisements: router advertisements during and after ADD change nothing. Without the
// sysctls that ADD sets they would.
func TestRouterAdvertisements(t *testing.T) {
	t.Parallel()
	r, outside := runtime(t, ipam)
	c := r.Container("c")
	c.Command("sysctl", "-qw", "net.ipv6.conf.all.accept_ra=2", "net.ipv6.conf.default.accept_ra=2")
	changes := 0
	watched := r.Watched(func(string) error {
		changes++
		testnet.Advertise(t, outside)
		return nil
	})
	if _, err := watched.Do(t.Context(), r.Request(cni.Add, "c")); err != nil {
		t.Fatal(err)
	}
	testnet.Advertise(t, outside)
	time.Sleep(200 * time.Millisecond)
	if followed(c) || changes < 10 {
		t.Errorf("after %d advertisements:\n%s", changes, c.Command("ip", "-6", "route"))
	}
	c.Command("sysctl", "-qw", "net.ipv6.conf.eth0.accept_ra=2")
	for end := time.Now().Add(testnet.Patience); !followed(c); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no container follows the advertisements of this test")
		}
		testnet.Advertise(t, outside)
	}
}

// followed reports whether a container has an address, a route or a router from an advertisement.
func followed(ns *plugintest.Namespace) bool {
	return strings.Contains(ns.Command("ip", "-6", "address"), "2001:db8:bad:") ||
		strings.Contains(ns.Command("ip", "-6", "route"), "2001:db8:bad:") ||
		strings.Contains(ns.Command("ip", "-6", "route"), "default via fe80")
}
