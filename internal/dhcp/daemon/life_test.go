package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
)

var isc = dhcpserver.Kinds[1]

const (
	pool  = "10.92.0.100,10.92.0.120"
	other = "10.92.0.150,10.92.0.170"
)

// addresses are the IPv4 addresses and routes of a container's eth0.
func (d *node) addresses(container string) string {
	c := d.n.Container(container)
	return c.Command("ip", "-4", "-o", "addr", "show", "dev", "eth0") + c.Command("ip", "-4", "route", "show", "dev", "eth0")
}

func (d *node) eventuallyState(container, want string) {
	d.t.Helper()
	testnet.Eventually(d.t, func() error {
		if l, _ := d.lease(container); !strings.Contains(l.State, want) {
			return fmt.Errorf("state %q, expected %q", l.State, want)
		}
		return nil
	})
}

// TestRestart: R-53: a daemon that is started again goes on with the leases of those who are still there, and gives back none
// at its end; it forgets those who are not.
func TestRestart(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a", "b")
	s := dhcpserver.StartRenewing(t, n, isc, pool, 2)
	d := newNode(t, n)
	r := d.add("a")
	d.add("b")
	d.stop()
	if strings.Contains(s.Log(), s.Kind.Released) {
		t.Error("leases were given back")
	}
	n.Remove("b")
	d.start()
	if got := d.must(dhcp.Check, "a"); got.IPs[0] != r.IPs[0] {
		t.Errorf("%v, before %v", got.IPs, r.IPs)
	}
	if l, ok := d.lease("b"); ok {
		t.Errorf("of a container that is gone: %+v", l)
	}
	first, _ := d.lease("a")
	testnet.Eventually(t, func() error {
		if l, _ := d.lease("a"); !l.Expires.After(first.Expires) {
			return fmt.Errorf("not renewed: %+v", l)
		}
		return nil
	})
}

// eachServer runs a test with each of some servers.
func eachServer(t *testing.T, kinds []dhcpserver.Kind, test func(t *testing.T, k dhcpserver.Kind)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// TestRebind: a server that was away while the lease was to be renewed is asked by broadcast. Not dnsmasq, the
// first: it lends for two minutes at least, and who rebinds asks again after half of what is left.
func TestRebind(t *testing.T) {
	eachServer(t, dhcpserver.Kinds[1:], func(t *testing.T, k dhcpserver.Kind) {
		n := dhcpserver.NewNet(t, "a")
		s := dhcpserver.StartRenewing(t, n, k, pool, 600)
		s.Stop()
		s.StartRebinding(pool, 2)
		d := newNode(t, n)
		r := d.add("a")
		s.Stop()
		d.eventuallyState("a", "rebinding")
		s.StartRebinding(pool, 2)
		d.eventuallyState("a", "bound")
		if got := d.must(dhcp.Check, "a"); got.IPs[0] != r.IPs[0] {
			t.Errorf("%v, before %v", got.IPs, r.IPs)
		}
	})
}

// TestChangedAddress: R-57: a server that refuses the address, and gives another, is obeyed: the interface has that one, with its
// routes, and nothing of the one before.
func TestChangedAddress(t *testing.T) {
	eachServer(t, dhcpserver.Kinds, func(t *testing.T, k dhcpserver.Kind) {
		n := dhcpserver.NewNet(t, "a")
		s := dhcpserver.Start(t, n, k, pool, 20) // some servers do not refuse: the lease ends
		d := newNode(t, n)
		r := d.add("a")
		before := d.addresses("a")
		s.Stop()
		s.Forget()
		s.Start(other, 20)
		old, address := r.IPs[0].Address, ""
		testnet.Eventually(t, func() error {
			r, err := d.call(dhcp.Check, "a")
			if err == nil && r.IPs[0].Address == old {
				err = errors.New("the same address")
			}
			if err == nil {
				address = r.IPs[0].Address.Addr().String()
			}
			return err
		})
		want := strings.ReplaceAll(before, old.Addr().String(), address)
		if got := d.addresses("a"); got != want {
			t.Errorf("got\n%s\nexpected\n%s", got, want)
		}
	})
}

// TestLost: a lease that nobody prolongs is taken off the interface, CHECK says why, and when a server is back there is one
// again.
func TestLost(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	s := dhcpserver.Start(t, n, isc, pool, 3)
	d := newNode(t, n)
	d.add("a")
	s.Stop()
	testnet.Eventually(t, func() error {
		if _, err := d.call(dhcp.Check, "a"); err == nil || !strings.Contains(err.Error(), "the lease has expired") {
			return fmt.Errorf("CHECK: %v", err)
		}
		return nil
	})
	if left := d.addresses("a"); left != "" {
		t.Errorf("left:\n%s", left)
	}
	d.stop() // what is lost is known to the next daemon, too
	d.start()
	if _, err := d.call(dhcp.Check, "a"); err == nil || !strings.Contains(err.Error(), "the lease has expired") {
		t.Errorf("CHECK after a restart: %v", err)
	}
	s.StartRenewing(pool, 600)
	testnet.Eventually(t, func() error {
		_, err := d.call(dhcp.Check, "a")
		return err
	})
	if got := d.addresses("a"); !strings.Contains(got, "10.92.0.1") || !strings.Contains(got, "default via") {
		t.Errorf("got\n%s", got)
	}
}

// TestNoServer: R-59: DEL ends at once what would try for long; without it the error says what was waited for, and where.
func TestNoServer(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a", "b")
	d := newNode(t, n)
	var asked sync.WaitGroup
	var err error
	asked.Go(func() { _, err = d.call(dhcp.Allocate, "a") })
	d.eventuallyState("a", "waiting for the next attempt")
	began := time.Now()
	d.must(dhcp.Release, "a")
	asked.Wait()
	if took := time.Since(began); took >= testnet.Patience || err == nil {
		t.Errorf("%v after %v", err, took)
	}
	d.stop()
	d.o.ResendTimeout = 12 * time.Second
	d.start()
	n.Host.Batch("link set " + dhcpserver.Port("b") + " down")
	if _, err := d.call(dhcp.Allocate, "b"); err == nil || cni.AsError(err).Msg != "no more tries" || !strings.Contains(cni.AsError(err).Details, "no OFFER in ") || !strings.Contains(cni.AsError(err).Details, "on eth0 (carrier down)") {
		t.Errorf("%v: %s", err, cni.AsError(err).Details)
	}
}

// TestSlowLink: R-61: a port that lets nothing through for longer than it takes to send a message three times (spanning tree)
// costs time, and nothing else.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 30)
	d := newNode(t, n)
	d.stop()
	d.o.Timeout = 200 * time.Millisecond // 200, 400 and 800 ms, and a pause
	d.start()
	port := dhcpserver.Port("a")
	n.Host.Batch("link set " + port + " nomaster")
	forwarding := time.AfterFunc(2500*time.Millisecond, func() { n.Host.Batch("link set " + port + " master br0") })
	r := d.must(dhcp.Allocate, "a")
	if forwarding.Stop() {
		t.Errorf("got %v before the port forwards", r.IPs)
	}
}

// TestLinkGone: a lease ends with its interface; CHECK and ADD say so at once, and for another interface of the name
// there is another lease.
func TestLinkGone(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.StartRenewing(t, n, isc, pool, 1)
	d := newNode(t, n)
	d.add("a")
	n.Container("a").Batch("link del eth0")
	for _, verb := range []dhcp.Verb{dhcp.Check, dhcp.Allocate} {
		began := time.Now()
		if _, err := d.call(verb, "a"); err == nil || time.Since(began) >= testnet.Patience {
			t.Errorf("%s: %v after %v", verb, err, time.Since(began))
		}
	}
	testnet.Eventually(t, func() error {
		if l, ok := d.lease("a"); ok {
			return fmt.Errorf("still there: %+v", l)
		}
		return nil
	})
	dhcpserver.PlugIn(n, "a")
	d.add("a")
	d.must(dhcp.Check, "a")
	n.Container("a").Batch("link del eth0")
	dhcpserver.PlugIn(n, "a")
	d.add("a") // the lease before had not noticed
	d.must(dhcp.Check, "a")
}

// TestTakeOver: a daemon that replaces another has its socket, and its leases, and no client notices.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 30)
	d := newNode(t, n)
	r := d.add("a")
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	calls := 0
	clients.Go(func() {
		for ctx.Err() == nil {
			if _, err := dhcp.Call(t.Context(), d.socket, dhcp.Request{Verb: dhcp.Status}); err != nil {
				t.Errorf("call %d: %v", calls, err)
			}
			calls++
		}
	})
	d.o.TakeOver = true
	for range 5 {
		before := d.done
		d.start()
		if err := <-before; err != nil {
			t.Error(err)
		}
	}
	cancel()
	clients.Wait()
	if got := d.must(dhcp.Check, "a"); got.IPs[0] != r.IPs[0] || calls == 0 {
		t.Errorf("%v, before %v; %d calls", got.IPs, r.IPs, calls)
	}
	d.o.TakeOver = false
	if err := daemon.Run(t.Context(), d.o); !errors.Is(err, daemon.ErrRuns) {
		t.Errorf("a second daemon: %v", err)
	}
}

// TestActivation: a socket that systemd has opened is used, and stays.
func TestActivation(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 30)
	d := newNode(t, n)
	d.stop()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: d.socket})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if d.o.Listener, err = l.File(); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.add("a")
	d.stop()
	if _, err := os.Stat(d.socket); err != nil {
		t.Error(err)
	}
}

// TestHostPrefix: R-62: the prefix is put before the paths of socket, namespaces and leases: all of them are there, and nowhere
// else. The process ID is in its file as long as the daemon runs.
func TestHostPrefix(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.Start(t, n, isc, pool, 30)
	d := newNode(t, n)
	d.stop()
	host := t.TempDir()
	pidfile := filepath.Join(host, "pid")
	d.o.HostPrefix, d.o.PIDFile, d.o.Socket = host, pidfile, "/tenon-test/dhcp.sock"
	d.socket = host + d.o.Socket
	d.start()
	if err := os.Symlink(n.Container("a").Path(), host+"/tenon-test/a"); err != nil {
		t.Fatal(err)
	}
	q := dhcp.Request{Verb: dhcp.Allocate, Container: "a", IfName: "eth0", Netns: "/tenon-test/a", Config: json.RawMessage(d.conf)}
	if err := d.ask(q); err != nil {
		t.Error(err)
	}
	if files, err := filepath.Glob(d.socket + ".d/leases/*"); len(files) != 1 {
		t.Errorf("leases %v, %v", files, err)
	}
	if pid, err := os.ReadFile(pidfile); err != nil || string(pid) != fmt.Sprint(os.Getpid()) {
		t.Errorf("%s: %q, %v", pidfile, pid, err)
	}
	d.stop()
	for _, path := range []string{pidfile, d.socket, d.o.Socket} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	for _, relative := range []daemon.Options{{PIDFile: "pid"}, {HostPrefix: "host"}} {
		relative.Socket, relative.Log = "/tenon-test/dhcp.sock", d.o.Log
		if err := daemon.Run(t.Context(), relative); err == nil || !strings.Contains(err.Error(), "is not an absolute path") {
			t.Errorf("%+v: %v", relative, err)
		}
	}
}

// TestStaleSocket: R-56: a socket that a killed daemon has left is no obstacle.
func TestStaleSocket(t *testing.T) {
	t.Parallel()
	d := newNode(t, dhcpserver.NewNet(t, "a"))
	d.stop()
	kill := d.process()
	d.eventuallyAnswers()
	kill()
	if info, err := os.Stat(d.socket); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("the killed daemon has left no socket: %v", err)
	}
	d.start()
}

// TestDisconnect: a runtime that is killed while it waits leaves nothing behind.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	d := newNode(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	_, err := dhcp.Call(ctx, d.socket, dhcp.Request{Verb: dhcp.Allocate, Container: "a", IfName: "eth0", Netns: n.Container("a").Path(), Config: json.RawMessage(d.conf)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	testnet.Eventually(t, func() error {
		if l, ok := d.lease("a"); ok {
			return fmt.Errorf("still there: %+v", l)
		}
		return nil
	})
}
