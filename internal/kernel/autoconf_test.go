package kernel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestAutoconf: Autoconf returns only addresses from router advertisements, and WaitAutoconf waits
// until they can be used.
func TestAutoconf(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, host := b.veth(t)
	// Without duplicate address detection, the router can advertise at once.
	must(t, b.container.Sysctl.Set("net/ipv6/conf/eth0/accept_dad", "0"))
	must(t, b.container.Links.Up(inside))
	must(t, b.host.Links.Up(host))
	must(t, b.host.Addrs.Add(host, prefix("fd00:1::3/64")))
	must(t, b.host.Addrs.WaitDAD(t.Context(), host))
	if a, err := b.host.Addrs.Autoconf(host); err != nil || len(a.Addrs) > 0 || a.Router.IsValid() {
		t.Errorf("before: %+v, %v", a, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.host.Addrs.WaitAutoconf(short, host); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `link "veth0"`) {
		t.Errorf("without an advertisement: %v", err)
	}
	other := open(t, kernel.Begin(t.Context()), b.Host)
	waited := make(chan error)
	go func() { waited <- other.Addrs.WaitAutoconf(t.Context(), host) }()
	testnet.Advertise(t, b.Container("container"))
	must(t, <-waited)
	a, err := b.host.Addrs.Autoconf(host)
	must(t, err)
	if len(a.Addrs) != 1 || a.Addrs[0].Masked() != prefix("2001:db8:bad::/64") || !a.Router.IsLinkLocalUnicast() {
		t.Errorf("got %+v", a)
	}
	if out := b.Host.Command("ip", "-6", "address", "show", "dev", "veth0"); strings.Contains(out, "tentative") {
		t.Error(out)
	}
}
