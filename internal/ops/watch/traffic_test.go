package watch_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/watch"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// echo serves TCP connections and UDP datagrams on port 80 of a container until the test ends.
func (h *host) echo(container string) {
	h.t.Helper()
	var l net.Listener
	var u net.PacketConn
	h.Container(container).Do(func() {
		var err, other error
		l, err = net.Listen("tcp", ":80")
		u, other = net.ListenPacket("udp", ":80")
		must(h.t, errors.Join(err, other))
	})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { defer c.Close(); _, _ = io.Copy(c, c) })
		}
	})
	running.Go(func() {
		for b := make([]byte, 64); ; {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(b[:n], from)
		}
	})
	h.t.Cleanup(func() { l.Close(); u.Close(); running.Wait() })
}

// dial opens a connection from a namespace.
func dial(t *testing.T, from *testnet.Namespace, protocol, to string) (c net.Conn) {
	t.Helper()
	from.Do(func() {
		var err error
		if c, err = net.DialTimeout(protocol, to, testnet.Patience); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends text and waits for the same text.
func exchange(c net.Conn, text string) error {
	if err := c.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != text {
		return fmt.Errorf("sent %q, got %q", text, b)
	}
	return nil
}

// TestTraffic: while the rules of an attachment are deleted and repaired, other attachments lose no
// packet, and established connections survive a flush of the rule set.
func TestTraffic(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(3)
	h.echo("c1")
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
			if err := errors.Join(exchange(datagrams, fmt.Sprintf("datagram %9d", i)),
				exchange(bridged, "bridged")); err != nil {
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
	must(t, exchange(translated, "before the flush"))
	nft("flush ruleset")(h)
	h.waitFor(restored)
	// The kernel translates nothing while no chain does, so the connection is silent meanwhile.
	if err := exchange(translated, "after the flush"); err != nil {
		t.Error("established connection:", err)
	}
	if err := exchange(dial(t, outside, "tcp", published), "new"); err != nil {
		t.Error("new connection:", err)
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
