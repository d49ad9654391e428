package attach_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
	"github.com/tenon-cni/tenon/invoke"
)

// newRouted returns a bench with its containers on a bridge with a router. Its IPAM plugin brings
// the interface up, enables router advertisements if accept is true, and waits for them. It reports
// a static address and the addresses that the kernel configured.
func newRouted(t *testing.T, accept bool, patience time.Duration) (*bench, *dhcpserver.Server) {
	t.Helper()
	pool := verbs{}
	b := newBench(t, pair{}, pool)
	testnet.Require(t, testnet.Kernel(kernel.FeatureBridge))
	dhcpserver.Bridge(b.Net)
	b.plugin = define(pair{make: func(ctx context.Context, s *session) ([]cni.Interface, error) {
		made, err := (&pair{}).Make(ctx, s)
		if err == nil {
			b.Host.Batch("link set " + made[0].Name + " master br0")
		}
		return made, err
	}})
	pool[cni.Add] = func(ctx context.Context, _ invoke.Call) ([]byte, bool) {
		found, err := b.advertised(t, ctx, accept, patience)
		if err != nil {
			t.Error(err)
			return nil, false
		}
		ips := `{"address":"10.92.0.2/24"}`
		for _, p := range found.Addrs {
			ips += fmt.Sprintf(`,{"address":"%s","gateway":"%s"}`, p, found.Router)
		}
		return []byte(`{"cniVersion":"1.1.0","ips":[` + ips + `]}`), true
	}
	return b, dhcpserver.Start(t, b.Net, dhcpserver.Router, "", 1800)
}

func (b *bench) advertised(t *testing.T, ctx context.Context, accept bool, patience time.Duration) (found kernel.Autoconf, err error) {
	tx := kernel.Begin(ctx)
	space, err := tx.Open(testnet.NS(t, b.Container("c")))
	if err != nil {
		return found, err
	}
	defer space.Close()
	defer tx.Keep()
	link, err := space.Links.ByName("eth0")
	if err == nil && accept {
		err = space.Sysctl.Set("net/ipv6/conf/eth0/accept_ra", "2")
	}
	if err == nil {
		err = space.Links.Up(link)
	}
	if err != nil {
		return found, err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := space.Addrs.WaitAutoconf(wait, link); err != nil && (accept || !errors.Is(err, context.DeadlineExceeded)) {
		return found, err
	}
	return space.Addrs.Autoconf(link)
}

// TestNoAdvertisements: while IPAM gets addresses over the interface, the kernel accepts no
// advertisements from routers, because the result would not contain their addresses.
func TestNoAdvertisements(t *testing.T) {
	t.Parallel()
	b, _ := newRouted(t, false, 4*time.Second)
	if r := b.add(); len(r.IPs) != 1 {
		t.Errorf("got %+v", r.IPs)
	}
	if got := b.inside("ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "global") + b.inside("ip", "-6", "route", "show", "default"); got != "" {
		t.Errorf("got %s", got)
	}
}

// TestAutoconfigured: the kernel keeps maintaining an address that it got from router
// advertisements and that IPAM reports. The interface has it once, it and the default route last as
// long as the router announces, and CHECK fails when it is gone.
func TestAutoconfigured(t *testing.T) {
	t.Parallel()
	b, router := newRouted(t, true, 20*time.Second)
	b.Host.Batch("link set lo up", "addr add 2001:db8::1/128 dev lo nodad")
	r := b.add()
	want := r.IPs[1].Address.String()
	if got := b.inside("ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "global"); strings.Count(got, "fd00:92::") != 1 || !strings.Contains(got, want) {
		t.Errorf("addresses: %s, in the result %s", got, want)
	}
	if err := b.call(cni.Check); err != nil {
		t.Error(err)
	}
	router.Stop()
	router.Start("", 3600)
	for what, args := range map[string][]string{
		"valid_lft": {"ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "global"},
		"expires":   {"ip", "-6", "route", "show", "default"},
	} {
		testnet.Eventually(t, func() error {
			text, seconds := b.inside(args...), 0
			if _, after, ok := strings.Cut(text, what+" "); ok {
				fmt.Sscanf(after, "%dsec", &seconds)
			}
			if seconds <= 1800 || seconds > 3600 || strings.Count(text, what) != 1 {
				return fmt.Errorf("%s %d after the router announced a longer lifetime: %s", what, seconds, text)
			}
			return nil
		})
	}
	testnet.Reaches(t, b.Container("c"), netip.MustParseAddr("2001:db8::1"), true) // by the default route
	b.inside("sysctl", "-qw", "net.ipv6.conf.eth0.accept_ra=0")
	b.inside("ip", "addr", "del", want, "dev", "eth0")
	wantError(t, b.call(cni.Check), cni.CodeInternal, want)
}
