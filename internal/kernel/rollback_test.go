package kernel_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// attach makes every kind of change that can be undone. Shared objects must exist.
func attach(host, container *kernel.Space) error {
	bridge, _, err := host.Links.EnsureBridge(kernel.Bridge{Name: "br0"})
	if err != nil {
		return err
	}
	mac, _ := net.ParseMAC("02:11:22:33:44:55")
	inside, outer, err := container.Links.AddVeth(kernel.Veth{
		Name: "eth0", MTU: 1400, Host: host, HostName: "veth0", Alias: "owner",
	})
	if err != nil {
		return err
	}
	old, err := host.Links.ByName("old0")
	if err != nil {
		return err
	}
	for _, change := range []func() error{
		func() error { return host.Links.SetMaster(outer, bridge) },
		func() error { return host.Links.SetPort(outer, kernel.Port{Hairpin: true, Isolated: true}) },
		func() error { return host.Links.Up(outer) },
		func() error { return container.Links.SetMAC(inside, mac) },
		func() error {
			return container.Sysctl.SetAll([]kernel.Setting{
				{Key: "net/ipv4/conf/eth0/arp_notify", Value: "1", Optional: true},
				{Key: "net/ipv6/conf/eth0/accept_dad", Value: "0", Optional: true},
				{Key: "net/ipv4/conf/all/arp_ignore", Value: "1"},
			})
		},
		func() error { return container.Addrs.Add(inside, prefix("10.1.2.3/24")) },
		func() error { return container.Addrs.Add(inside, prefix("fd00::3/64")) },
		func() error { return container.Links.Up(inside) },
		func() error {
			return container.Routes.Add(inside, kernel.Route{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1")})
		},
		func() error {
			return container.Routes.Add(inside, kernel.Route{Dst: prefix("::/0"), GW: addr("fd00::1")})
		},
		func() error { return host.Links.SetAlias(old, "taken") },
		func() error { return host.Links.SetPromisc(old, true) },
		func() error { return host.Addrs.Delete(old, prefix("10.8.0.1/24")) },
		func() error { return host.Addrs.Add(old, prefix("10.7.0.1/24")) },
		func() error { return host.Routes.Add(old, kernel.Route{Dst: prefix("10.6.0.0/16"), Table: 100}) },
		func() error {
			return host.Rules.Masquerade("owner", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.3/24"), prefix("fd00::3/64"), prefix("10.8.0.9/24")})
		},
	} {
		if err := change(); err != nil {
			return err
		}
	}
	return nil
}

// TestRollbackAfterEachFailure: each change fails once; the rollback reverts all changes before it,
// and nothing else.
func TestRollbackAfterEachFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bridge, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0"})
	must(t, err)
	must(t, b.host.Links.SetMAC(bridge, bridge.MAC)) // otherwise it changes with the ports
	b.Host.Command("ip", "link", "add", "old0", "type", "veth", "peer", "old1")
	b.Host.Command("ip", "addr", "add", "10.8.0.1/24", "brd", "+", "dev", "old0")
	b.Host.Command("ip", "link", "set", "old0", "up")
	must(t, b.host.Rules.Masquerade("before", kernel.Masq{}, []netip.Prefix{prefix("10.8.0.9/24")}))
	b.tx.Keep()
	before := b.snapshot(t)

	fault := errors.New("fault")
	for n := 1; ; n++ {
		count, failed := 0, ""
		b.begin(t, t.Context())
		b.tx.Watch(func(op string) error {
			if count++; count == n {
				failed = op
				return fault
			}
			return nil
		})
		err := attach(b.host, b.container)
		if failed == "" {
			must(t, err)
		} else if !errors.Is(err, fault) {
			t.Errorf("%s fails, but the error is %v", failed, err)
		}
		if err := b.tx.Rollback(); err != nil {
			t.Errorf("rollback after %q: %v", failed, err)
		}
		if diff := testnet.Diff(before, b.snapshot(t)); diff != "" {
			t.Errorf("left after failure of %q:\n%s", failed, diff)
		}
		if failed == "" {
			if n < 20 {
				t.Errorf("only %d changes", n-1)
			}
			return
		}
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Host.Command("ip", "link", "add", "old0", "type", "veth", "peer", "old1")
	b.Host.Command("ip", "link", "set", "old0", "up")
	var trace []string
	b.begin(t, t.Context())
	b.tx.Watch(func(op string) error {
		trace = append(trace, op)
		return nil
	})
	must(t, attach(b.host, b.container))
	want := []string{
		"add bridge br0",
		"sysctl net/ipv6/conf/br0/accept_dad=0",
		"up br0",
		"keep mac dev br0",
		"add veth eth0 (peer veth0)",
		`alias "owner" dev veth0`,
		"master br0 dev veth0",
		"port veth0 hairpin true isolated true",
		"up veth0",
		"mac 02:11:22:33:44:55 dev eth0",
		"sysctl net/ipv4/conf/eth0/arp_notify=1",
		"sysctl net/ipv6/conf/eth0/accept_dad=0",
		"sysctl net/ipv4/conf/all/arp_ignore=1",
		"addr 10.1.2.3/24 dev eth0",
		"addr fd00::3/64 dev eth0",
		"up eth0",
		"route 0.0.0.0/0 via 10.1.2.1 dev eth0",
		"route ::/0 via fd00::1 dev eth0",
		`alias "taken" dev old0`,
		"promisc true dev old0",
		"delete addr 10.8.0.1/24 dev old0",
		"addr 10.7.0.1/24 dev old0",
		"route 10.6.0.0/16 table 100 dev old0",
		"masquerade 10.1.2.3/24 fd00::3/64 10.8.0.9/24",
	}
	if diff := cmp.Diff(want, trace); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}
