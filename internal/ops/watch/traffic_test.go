package watch_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/watch"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// dial opens a connection from a namespace that ends with the test.
func dial(t *testing.T, from *testnet.Namespace, network, to string) net.Conn {
	t.Helper()
	c, err := testnet.Dial(from, network, to)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestTraffic: while the rules of an attachment are deleted and repaired, other attachments lose no
// packet, and established connections survive a flush of the rule set.
func TestTraffic(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(3)
	testnet.Echo(t, h.Container("c1"), 80)
	outside := h.Uplink()
	h.watch(nil)
	address := "10.1.0.3:80"
	published := fmt.Sprintf("192.0.2.1:%d", 8000+h.Container("c1").Number)
	bridged := dial(t, h.Container("c2"), "tcp", address)
	translated := dial(t, outside, "tcp", published)
	datagrams := dial(t, h.Container("c2"), "udp", address)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { // a lost datagram would never be answered
		for i := 0; ; i++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := errors.Join(testnet.Exchange(datagrams, fmt.Sprintf("datagram %9d", i)),
				testnet.Exchange(bridged, "bridged")); err != nil {
				ended <- fmt.Errorf("round %d: %w", i, err)
				return
			}
		}
	}()
	restored := func(e watch.Event) bool { return e.Restored > 0 }
	nft("delete element inet tenon masq4 { 10.1.0.2 }")(h)
	h.waitFor(restored)
	h.Host.Command("nft", "add table ip foreign; flush table ip foreign; delete table ip foreign")
	inside("route del default")(h)
	h.waitFor(restored)
	must(t, testnet.Exchange(translated, "before the flush"))
	nft("flush ruleset")(h)
	h.waitFor(restored)
	// The kernel translates nothing while no chain does, so the connection is silent meanwhile.
	if err := testnet.Exchange(translated, "after the flush"); err != nil {
		t.Error("established connection:", err)
	}
	if err := testnet.Exchange(dial(t, outside, "tcp", published), "new"); err != nil {
		t.Error("new connection:", err)
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
