package daemon_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
)

// logBuffer holds the log of a running process.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// process is a daemon that can be killed.
func (d *node) process() (kill func()) {
	d.t.Helper()
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	log := new(logBuffer)
	d.log = log
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), daemonAt+"="+d.socket)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.pid = cmd.Process.Pid
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if d.t.Failed() {
				d.t.Log(log.String())
			}
		})
	}
	d.t.Cleanup(kill)
	return kill
}

func (d *node) eventuallyAnswers() {
	d.t.Helper()
	testnet.Eventually(d.t, func() error {
		_, err := dhcp.Call(d.t.Context(), d.socket, dhcp.Request{Verb: dhcp.Status})
		return err
	})
}

// TestKill checks that no address is lost or left behind when a daemon that renews 50 leases is
// killed 100 times.
func TestKill(t *testing.T) {
	testnet.Long(t)
	const leases, kills = 50, 100
	var names []string
	for i := range leases {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	n := dhcpserver.NewNet(t, names...)
	s := dhcpserver.StartRenewing(t, n, isc, "10.92.0.100,10.92.0.160", 3)
	d := newNode(t, n)
	d.stop()
	kill := d.process()
	d.eventuallyAnswers()
	var all sync.WaitGroup
	for _, c := range names {
		all.Go(func() { d.must(dhcp.Allocate, c) })
	}
	all.Wait()
	before, expires := map[string]string{}, map[string]time.Time{}
	for _, c := range names {
		d.add(c)
		l, _ := d.lease(c)
		before[c], expires[c] = d.addresses(c), l.Expires
	}
	begun := strings.Count(s.Log(), "DHCPDISCOVER")
	for i := range kills {
		time.Sleep(time.Duration(i%20) * 10 * time.Millisecond)
		kill()
		kill = d.process()
		if i%10 == 0 {
			d.eventuallyAnswers()
		}
	}
	d.eventuallyAnswers()
	testnet.Eventually(t, func() error {
		for _, c := range names {
			if l, ok := d.lease(c); !ok || l.State != "bound" || !l.Expires.After(expires[c]) {
				return fmt.Errorf("%s: %+v", c, l)
			}
		}
		return nil
	})
	if again := strings.Count(s.Log(), "DHCPDISCOVER"); again != begun {
		t.Errorf("%d clients have requested a new lease", again-begun)
	}
	for _, c := range names {
		if got := d.addresses(c); got != before[c] {
			t.Errorf("%s has\n%s\nbefore\n%s", c, got, before[c])
		}
		d.must(dhcp.Release, c)
	}
	testnet.Eventually(t, func() error {
		if n := strings.Count(s.Log(), s.Kind.Released); n != leases {
			return fmt.Errorf("%d addresses are free again, expected %d", n, leases)
		}
		return nil
	})
}
