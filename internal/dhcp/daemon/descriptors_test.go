package daemon_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// A daemon without a free file descriptor keeps running, logs one error, and answers again when
// descriptors become free: because clients leave, or because its limit is raised.
func TestNoDescriptors(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	d := newNode(t, testnet.New(t))
	d.stop()
	d.process()
	d.eventuallyAnswers()
	const limit = 20
	var before unix.Rlimit
	err := unix.Prlimit(d.pid, unix.RLIMIT_NOFILE, nil, &before)
	if err == nil {
		few := unix.Rlimit{Cur: limit, Max: before.Max}
		err = unix.Prlimit(d.pid, unix.RLIMIT_NOFILE, &few, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	const complaint = "cannot accept clients"
	for _, end := range []string{"clients leave", "the limit is raised"} {
		var clients []net.Conn
		for range 40 { // clients that send nothing
			c, err := net.Dial("unix", d.socket)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		testnet.Eventually(t, func() error {
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.pid))
			if err != nil || len(open) < limit || !strings.Contains(d.log.String(), complaint) {
				return fmt.Errorf("%d descriptors are open, %v: %s", len(open), err, d.log.String())
			}
			return nil
		})
		if end == "the limit is raised" {
			if err := unix.Prlimit(d.pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
				t.Fatal(err)
			}
		}
		if end == "clients leave" {
			closeAll(clients)
		}
		r, err := dhcp.Call(t.Context(), d.socket, dhcp.Request{Verb: dhcp.Status})
		if err != nil || r.Err() != nil {
			t.Errorf("after %s: %+v, %v", end, r, err)
		}
		closeAll(clients)
	}
	if n := strings.Count(d.log.String(), complaint); n != 1 {
		t.Errorf("logged %d times:\n%s", n, d.log.String())
	}
}

func closeAll(clients []net.Conn) {
	for _, c := range clients {
		c.Close()
	}
}
