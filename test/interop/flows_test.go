package interop

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// flows exchange packets with services of [testnet.Echo] at the same time. None may lose a packet.
type flows struct {
	t       *testing.T
	stop    func() // ends the flows
	stopped chan struct{}
	running sync.WaitGroup
	rounds  []*atomic.Int64 // of each flow
}

func newFlows(t *testing.T) *flows {
	f := &flows{t: t, stopped: make(chan struct{})}
	f.stop = sync.OnceFunc(func() { close(f.stopped); f.running.Wait() })
	t.Cleanup(f.stop)
	return f
}

// start starts flows of TCP and UDP to addresses. In each round, a flow exchanges a packet over an
// old connection and over a new one.
func (f *flows) start(name string, from testnet.Space, addresses ...string) {
	f.t.Helper()
	for _, address := range addresses {
		for _, network := range []string{"tcp", "udp"} {
			old, err := testnet.Dial(from, network, address)
			must(f.t, err)
			rounds := new(atomic.Int64)
			f.rounds = append(f.rounds, rounds)
			f.running.Go(func() {
				err := errors.Join(f.run(from, old, rounds), lossless(old), old.Close())
				if err != nil {
					f.t.Errorf("%s, %s to %s, round %d: %v", name, network, address, rounds.Load(), err)
				}
			})
		}
	}
}

func (f *flows) run(from testnet.Space, old net.Conn, rounds *atomic.Int64) error {
	for {
		select {
		case <-f.stopped:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		text := fmt.Sprint("round ", rounds.Load())
		if err := testnet.Exchange(old, text); err != nil {
			return fmt.Errorf("old connection: %w", err)
		}
		c, err := testnet.Dial(from, old.RemoteAddr().Network(), old.RemoteAddr().String())
		if err != nil {
			return fmt.Errorf("new connection: %w", err)
		}
		err = errors.Join(testnet.Exchange(c, text), lossless(c), c.Close())
		if err != nil {
			return fmt.Errorf("new connection: %w", err)
		}
		rounds.Add(1)
	}
}

// lossless returns an error if TCP has sent a segment of a connection again, unless the receiver had
// it already (RFC 2883), because the host was slow. Nothing sends a datagram again: the flow that
// waits for it fails.
func lossless(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var failure error
	err = raw.Control(func(fd uintptr) {
		info, failure = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(err, failure); err != nil {
		return err
	}
	if lost := int(info.Total_retrans) - int(info.Dsack_dups); lost > 0 {
		return fmt.Errorf("%d segments were lost", lost)
	}
	return nil
}

// advance waits until each flow has completed another round that began after the call.
func (f *flows) advance() {
	f.t.Helper()
	for _, rounds := range f.rounds {
		before := rounds.Load()
		testnet.Eventually(f.t, func() error {
			if f.t.Failed() {
				f.t.FailNow()
			}
			if done := rounds.Load() - before; done < 2 {
				return errors.New("a flow does not continue")
			}
			return nil
		})
	}
}

// unseen counts packets in a namespace that match an expression of nft(8). The function that it
// returns fails the test if there were any.
func unseen(t *testing.T, in testnet.Space, what string, matches ...string) (check func()) {
	t.Helper()
	nft := func(args ...string) (out string) {
		t.Helper()
		must(t, in.Run(func() (err error) {
			out, err = output(exec.Command("nft", args...))
			return err
		}))
		return out
	}
	nft("add table inet unseen; add chain inet unseen packets { type filter hook prerouting priority raw; }")
	for _, m := range matches {
		nft("add rule inet unseen packets " + m + " counter")
	}
	return func() {
		t.Helper()
		list := nft("list table inet unseen")
		if n := strings.Count(list, "packets 0 bytes 0"); n != len(matches) {
			t.Errorf("%s:\n%s", what, list)
		}
		nft("delete table inet unseen")
	}
}
