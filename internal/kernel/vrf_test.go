package kernel_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// vrf creates a VRF with a routing table.
func (b *bench) vrf(t testing.TB, name string, table uint32) kernel.Link {
	t.Helper()
	vrf, err := b.container.Links.Add(kernel.NewLink{Name: name, Kind: "vrf", Table: table})
	must(t, err)
	must(t, b.container.Links.Up(vrf))
	return vrf
}

// withVRF creates a VRF and a container with addresses and routes of every kind on eth0, except
// routes of a next hop object and routes to the networks of the addresses.
func withVRF(t *testing.T) (b *bench, inside, vrf kernel.Link) {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVRF))
	b, _ = storing(t)
	b.Container("container").Batch("nexthop delete id 5", "address add fe80::77/64 dev eth0 nodad",
		"address add fd00::33 peer fd00::44/128 dev eth0 nodad", "address add fd00::55/64 dev eth0 nodad noprefixroute",
		"address add fd00::66/64 dev eth0 nodad valid_lft 1000 preferred_lft 500",
		"route add fd66::/32 via fd00::1 dev eth0 src fd00::66 metric 3")
	// Routes through gateways stay.
	b.Container("container").Batch("route delete 10.1.2.0/24", "route delete fd00::/64")
	vrf = b.vrf(t, "red", 5000)
	b.tx.Keep()
	inside, err := b.container.Links.ByName("eth0")
	must(t, err)
	return b, inside, vrf
}

// unicast lists the routes by destination and preference, without the name of the given table.
func unicast(ns *testnet.Namespace, table string) []string {
	var list []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(ns.Command("ip", fields("-d -o "+family+" route show table all type unicast")...)) {
			list = append(list, strings.TrimSpace(strings.Replace(line, " table "+table+" ", " ", 1)))
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(fields(a)[1], fields(b)[1]) })
	return list
}

var lifetime = regexp.MustCompile(`[0-9]+sec`)

// addresses lists eth0's addresses in the order of the kernel, without remaining lifetimes.
func addresses(ns *testnet.Namespace) string {
	return lifetime.ReplaceAllString(ns.Command("ip", fields("-o address show dev eth0")...), "")
}

// TestVRF is: joining and leaving a VRF, and a rollback, change only the table of
// the routes, whether the kernel keeps addresses or not.
func TestVRF(t *testing.T) {
	t.Parallel()
	for _, keep := range []string{"0", "1"} {
		t.Run("keep_addr_on_down="+keep, func(t *testing.T) {
			t.Parallel()
			b, inside, vrf := withVRF(t)
			ns := b.Container("container")
			ns.Command("sysctl", "-qw", "net.ipv6.conf.eth0.keep_addr_on_down="+keep, "net.ipv6.conf.eth0.accept_dad=1")
			before, addrs, routes := b.snapshot(t), addresses(ns), unicast(ns, "main")
			same := func(table string) {
				t.Helper()
				if diff := cmp.Diff(addrs, addresses(ns)); diff != "" {
					t.Errorf("addresses:\n%s", diff)
				}
				if diff := cmp.Diff(routes, unicast(ns, table)); diff != "" {
					t.Errorf("routes:\n%s", diff)
				}
			}
			must(t, b.container.Routes.JoinVRF(t.Context(), inside, vrf))
			same("5000")
			joined := b.snapshot(t)
			must(t, b.tx.Rollback())
			same("main")
			b.unchanged(t, before)

			must(t, b.container.Routes.JoinVRF(t.Context(), inside, vrf))
			b.tx.Keep()
			member, err := b.container.Links.ByName("eth0")
			must(t, err)
			must(t, b.container.Routes.LeaveVRF(t.Context(), member, vrf))
			same("main")
			b.unchanged(t, before)
			must(t, b.tx.Rollback())
			same("5000")
			b.unchanged(t, joined)
		})
	}
}

// TestVRFFailure: if the kernel refuses a step, the former state is restored.
func TestVRFFailure(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, prepare, says string
	}{
		// Afterwards its source is an address of the VRF, and invalid in other tables.
		{"a route that cannot be restored", "route add 10.19.0.0/16 dev eth0 src 10.1.2.3 table 1001", "10.19.0.0/16"},
		{"the link cannot be a member", "link add blue type vrf table 9", "join vrf red dev blue"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b, inside, vrf := withVRF(t)
			b.Container("container").Command("ip", fields(row.prepare)...)
			if l, err := b.container.Links.ByName("blue"); err == nil {
				inside = l
			}
			before, addrs := b.snapshot(t), addresses(b.Container("container"))
			err := b.container.Routes.JoinVRF(t.Context(), inside, vrf)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("error %v does not contain %q", err, row.says)
			}
			b.unchanged(t, before)
			if diff := cmp.Diff(addrs, addresses(b.Container("container"))); diff != "" {
				t.Errorf("addresses:\n%s", diff)
			}
		})
	}
}

// TestVRFNextHopObject: JoinVRF refuses a route with a next hop object, which the kernel would
// delete and other routes may use.
func TestVRFNextHopObject(t *testing.T) {
	t.Parallel()
	b, inside, vrf := withVRF(t)
	b.Container("container").Batch("nexthop add id 5 via 10.1.2.9 dev eth0 onlink", "route add 10.16.0.0/16 nhid 5")
	before := b.snapshot(t)
	if err := b.container.Routes.JoinVRF(t.Context(), inside, vrf); err == nil || !strings.Contains(err.Error(), "10.16.0.0/16") {
		t.Errorf("error %v does not name the route", err)
	}
	b.unchanged(t, before)
}

// TestVRFAndDAD: JoinVRF waits for duplicate address detection in progress, and does not repeat it;
// without a carrier the kernel detects duplicates later. A canceled call leaves nothing behind.
func TestVRFAndDAD(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVRF))
	begin := func(t *testing.T, carrier bool, address string) (*bench, kernel.Link, kernel.Link) {
		t.Helper()
		b := setup(t)
		inside, host := b.veth(t)
		vrf := b.vrf(t, "red", 5000)
		b.tx.Keep()
		must(t, b.container.Links.Up(inside))
		if carrier {
			must(t, b.host.Links.Up(host))
			must(t, b.container.Links.WaitUp(t.Context(), inside))
		}
		b.Host.Command("ip", fields("address add fd00::4/64 dev veth0 nodad")...)
		must(t, b.container.Addrs.Add(inside, prefix(address)))
		return b, inside, vrf
	}
	state := func(b *bench) string { return addresses(b.Container("container")) }
	t.Run("in progress", func(t *testing.T) {
		t.Parallel()
		b, inside, vrf := begin(t, true, "fd00::3/64")
		must(t, b.container.Routes.JoinVRF(t.Context(), inside, vrf))
		if s := state(b); strings.Contains(s, "tentative") || !strings.Contains(s, "fd00::3/64") {
			t.Error(s)
		}
	})
	t.Run("duplicate", func(t *testing.T) {
		t.Parallel()
		b, inside, vrf := begin(t, true, "fd00::4/64")
		err := b.container.Routes.JoinVRF(t.Context(), inside, vrf)
		if d := new(kernel.DuplicateError); !errors.As(err, &d) {
			t.Errorf("%v, want a duplicate", err)
		}
		if l, err := b.container.Links.ByName("eth0"); err != nil || l.Master != 0 {
			t.Errorf("master %d, %v", l.Master, err)
		}
	})
	t.Run("no carrier", func(t *testing.T) {
		t.Parallel()
		b, inside, vrf := begin(t, false, "fd00::3/64")
		must(t, b.container.Routes.JoinVRF(t.Context(), inside, vrf))
		if s := state(b); !strings.Contains(s, "fd00::3/64 scope global tentative") {
			t.Error(s)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		t.Parallel()
		b, inside, vrf := begin(t, true, "fd00::3/64")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.container.Routes.JoinVRF(ctx, inside, vrf); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if l, err := b.container.Links.ByName("eth0"); err != nil || l.Master != 0 {
			t.Errorf("master %d, %v", l.Master, err)
		}
	})
}
