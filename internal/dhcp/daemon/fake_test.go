package daemon_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// answer runs a server that broadcasts the test's answers to each question. stop ends it.
func answer(
	t *testing.T, n *testnet.Net, to func(question *v4.Message) (answers [][]byte),
) (stop func()) {
	t.Helper()
	n.Host.Batch("route replace 255.255.255.255 dev br0")
	var conn *net.UDPConn
	var err error
	n.Host.Do(func() { conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: daemon.ServerPort}) })
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		buffer := make([]byte, 4096)
		for {
			size, _, err := conn.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			question, err := v4.Decode(buffer[:size])
			if err != nil {
				t.Error(err)
				continue
			}
			for _, b := range to(question) {
				if _, err := conn.WriteToUDP(b, &net.UDPAddr{IP: net.IPv4bcast,
					Port: daemon.ClientPort}); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			}
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			conn.Close()
			served.Wait()
		})
	}
	t.Cleanup(stop)
	return stop
}

// grant answers a question with 10.92.0.66/24 from 10.92.0.1 for some seconds, and with options. It
// does not answer a release.
func grant(question *v4.Message, seconds byte, options ...v4.Option) (answers [][]byte) {
	kind, ok := map[v4.Type]v4.Type{v4.Discover: v4.Offer, v4.Request: v4.ACK}[question.Type()]
	if !ok {
		return nil
	}
	m := &v4.Message{Reply: true, XID: question.XID, MAC: question.MAC,
		Your: netip.MustParseAddr("10.92.0.66")}
	m.Set(v4.OptType, []byte{byte(kind)})
	m.Set(v4.OptServerID, []byte{10, 92, 0, 1})
	m.Set(v4.OptSubnetMask, []byte{255, 255, 255, 0})
	m.Set(v4.OptLeaseTime, []byte{0, 0, 0, seconds})
	for _, o := range options {
		m.Set(o.Code, o.Value)
	}
	return [][]byte{m.Encode()}
}

// sent is a message of a client as it arrives at the bridge.
type sent struct {
	*v4.Message
	from, to netip.Addr
}

// overhear returns the messages that clients send after the call.
func overhear(t *testing.T, n *testnet.Net) (heard func() []sent) {
	t.Helper()
	fd, ethIP := -1, binary.NativeEndian.Uint16([]byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff})
	n.Host.Do(func() {
		br0, err := net.InterfaceByName("br0")
		if err == nil {
			fd, err = unix.Socket(unix.AF_PACKET,
				unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		}
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ethIP, Ifindex: br0.Index})
		}
		if err != nil {
			t.Error(err)
		}
	})
	f := os.NewFile(uintptr(fd), "br0")
	if f == nil {
		t.FailNow()
	}
	var mu sync.Mutex
	var all []sent
	var listening sync.WaitGroup
	listening.Go(func() {
		buffer := make([]byte, 4096)
		for {
			size, err := f.Read(buffer)
			if err != nil {
				return
			}
			b, from, err := daemon.ParseUDP(buffer[:size], daemon.ServerPort, true)
			if err != nil {
				continue
			}
			if m, err := v4.Decode(b); err == nil && !m.Reply {
				mu.Lock()
				all = append(all, sent{m, from.Addr(), netip.AddrFrom4([4]byte(buffer[16:20]))})
				mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		f.Close()
		listening.Wait()
	})
	return func() []sent {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}
