package daemon

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// pair creates a container without an address. The peer of its eth0 on the host is srv0 with
// 192.0.2.1/24.
func pair(t *testing.T) (n *testnet.Net, client *openLink) {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth), testnet.Tool("ip"))
	n = testnet.New(t, "c")
	c := n.Container("c")
	c.Command("ip", "link", "add", "eth0", "address", "02:00:00:00:00:01", "type", "veth", "peer",
		"name", "srv0")
	c.Command("ip", "link", "set", "srv0", "netns", n.Host.Path())
	c.Command("ip", "link", "set", "eth0", "up")
	n.Host.Batch("link set srv0 up", "addr add 192.0.2.1/24 dev srv0")
	// Until then the kernel drops packets.
	for !strings.Contains(c.Command("ip", "link", "show", "eth0"), "state UP") {
		time.Sleep(time.Millisecond)
	}
	client = &openLink{testnet.NS(t, c),
		kernel.Link{Name: "eth0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}}
	c.Do(func() {
		if i, err := net.InterfaceByName("eth0"); err == nil {
			client.link.Index = i.Index
		}
	})
	return n, client
}

// server listens on the port of DHCP servers.
func server(t *testing.T, ns *testnet.Namespace) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	var err error
	ns.Do(func() { conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 67}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestExchange checks that the server receives messages of a client without an address, and that
// the client receives messages for its port alone, even with checksums that the kernel has not
// completed.
func TestExchange(t *testing.T) {
	t.Parallel()
	n, client := pair(t)
	conn, err := client.open4()
	if err != nil {
		t.Fatal(err)
	}
	srv := server(t, n.Host)
	if err := conn.broadcast(netip.Addr{}, netip.Addr{}, []byte("discover")); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1500)
	size, from, err := srv.ReadFromUDP(buffer)
	if err != nil || string(buffer[:size]) != "discover" || from.String() != "0.0.0.0:68" {
		t.Fatalf("server got %q from %v, %v", buffer[:size], from, err)
	}
	// The client does not need to have the source address.
	if err := conn.broadcast(netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.1"),
		[]byte("rebind")); err != nil {
		t.Fatal(err)
	}
	size, from, err = srv.ReadFromUDP(buffer)
	if err != nil || string(buffer[:size]) != "rebind" || from.String() != "192.0.2.7:68" {
		t.Fatalf("server got %q from %v, %v", buffer[:size], from, err)
	}
	n.Host.Command("ip", "neigh", "replace", "192.0.2.7", "lladdr", "02:00:00:00:00:01", "dev",
		"srv0")
	for _, to := range []string{"192.0.2.7:99", "192.0.2.7:68"} { // the first is for another port
		if _, err := srv.WriteToUDP([]byte("to "+to),
			net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
			t.Fatal(err)
		}
	}
	message, err := conn.receive(buffer)
	if err != nil || string(message) != "to 192.0.2.7:68" {
		t.Errorf("client got %q, %v", message, err)
	}
	time.AfterFunc(10*time.Millisecond, func() { conn.close() })
	if _, err := conn.receive(buffer); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestUnicast checks that a client with an address sends ordinary packets, and that the kernel does
// not refuse the answer.
func TestUnicast(t *testing.T) {
	t.Parallel()
	n, client := pair(t)
	n.Container("c").Batch("addr add 192.0.2.7/24 dev eth0")
	conn, err := client.open4()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	srv := server(t, n.Host)
	from, to := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.1")
	port, err := client.unicast(from, to, []byte("renew"))
	if err != nil {
		t.Fatal(err)
	}
	if err := port.sent(t.Context()); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1500)
	size, sender, err := srv.ReadFromUDP(buffer)
	if err != nil || string(buffer[:size]) != "renew" || sender.String() != "192.0.2.7:68" {
		t.Fatalf("server got %q from %v, %v", buffer[:size], sender, err)
	}
	for range 2 { // the second send would report that the port is unreachable
		if _, err := srv.WriteToUDP([]byte("ack"), sender); err != nil {
			t.Fatal(err)
		}
		if message, err := conn.receive(buffer); err != nil || string(message) != "ack" {
			t.Fatalf("client got %q, %v", message, err)
		}
	}
	if err := port.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.unicast(netip.MustParseAddr("192.0.2.8"), to, nil); !errors.Is(err,
		unix.EADDRNOTAVAIL) {
		t.Errorf("from an address that the client does not have: %v", err)
	}
}

// TestNoAddress checks that a client without an address sends nothing by unicast, because servers
// do not accept messages from 0.0.0.0.
func TestNoAddress(t *testing.T) {
	t.Parallel()
	_, client := pair(t)
	if _, err := client.unicast(netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.1"),
		[]byte("release")); err == nil {
		t.Error("no error")
	}
}

// TestSent checks that a message has not left until a node answers for the address of the server.
func TestSent(t *testing.T) {
	t.Parallel()
	n, client := pair(t)
	n.Container("c").Batch("addr add 192.0.2.7/24 dev eth0")
	from, nobody := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.99")
	port, err := client.unicast(from, nobody, []byte("release"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := port.sent(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the message has left: %v", err)
	}
}

// TestProbe checks the results for an address that is in use and one that is free, and that a
// cancelled probe returns immediately.
func TestProbe(t *testing.T) {
	t.Parallel()
	n, client := pair(t)
	n.Host.Command("ip", "link", "set", "srv0", "address", "02:00:00:00:00:02")
	by, err := client.probe(t.Context(), netip.MustParseAddr("192.0.2.1"))
	if err != nil || by.String() != "02:00:00:00:00:02" {
		t.Errorf("in use: %v, %v", by, err)
	}
	if by, err := client.probe(t.Context(), netip.MustParseAddr("192.0.2.9")); err != nil ||
		by != nil {
		t.Errorf("free: %v, %v", by, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.probe(ctx, netip.MustParseAddr("192.0.2.9")); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestNoLink checks that the error for a link that no longer exists names it.
func TestNoLink(t *testing.T) {
	t.Parallel()
	n, client := pair(t)
	n.Container("c").Batch("link del eth0")
	if _, err := client.open4(); err == nil {
		t.Error("no error")
	}
}
