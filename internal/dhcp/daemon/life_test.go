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

// addresses returns the IPv4 addresses and routes of a container's eth0.
func (d *node) addresses(container string) string {
	c := d.n.Container(container)
	return c.Command("ip", "-4", "-o", "addr", "show", "dev", "eth0") +
		c.Command("ip", "-4", "route", "show", "dev", "eth0")
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

// TestRestart checks that a restarted daemon continues with the leases of existing containers and
// forgets the others, and that a daemon releases no lease when it ends.
func TestRestart(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a", "b")
	s := dhcpserver.StartRenewing(t, n, isc, pool, 2)
	d := newNode(t, n)
	r := d.add("a")
	d.add("b")
	d.stop()
	if strings.Contains(s.Log(), s.Kind.Released) {
		t.Error("leases were released")
	}
	n.Remove("b")
	d.start()
	if got := d.must(dhcp.Check, "a"); got.IPs[0] != r.IPs[0] {
		t.Errorf("%v, before %v", got.IPs, r.IPs)
	}
	if l, ok := d.lease("b"); ok {
		t.Errorf("a container that no longer exists has a lease: %+v", l)
	}
	first, _ := d.lease("a")
	testnet.Eventually(t, func() error {
		if l, _ := d.lease("a"); !l.Expires.After(first.Expires) {
			return fmt.Errorf("not renewed: %+v", l)
		}
		return nil
	})
}

// TestLeaseFileStays checks that GC and DEL report a lease file that they cannot remove, that GC
// releases the other leases nevertheless, and that a later DEL removes the file.
func TestLeaseFileStays(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a", "b")
	dhcpserver.Start(t, n, isc, pool, 600)
	d := newNode(t, n)
	d.add("a")
	d.add("b")
	owner := dhcp.FileName(cni.Attachment{Network: "lan", Container: "a", IfName: "eth0"})
	file := filepath.Join(dhcp.Dir(d.socket), "leases", owner)
	if err := errors.Join(os.Remove(file), os.MkdirAll(file+"/full", 0o700)); err != nil {
		t.Fatal(err)
	}
	collect := dhcp.Request{Verb: dhcp.Collect, Config: json.RawMessage(d.conf), Valid: []cni.ValidAttachment{}}
	if err := d.ask(collect); err == nil {
		t.Error("GC succeeds although a lease file stays")
	}
	if _, ok := d.lease("b"); ok {
		t.Error("GC keeps the other lease")
	}
	if _, err := d.call(dhcp.Release, "a"); err == nil {
		t.Error("DEL succeeds although the lease file stays")
	}
	if err := os.Remove(file + "/full"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.call(dhcp.Release, "a"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the lease file is still there: %v", err)
	}
}

// eachServer runs a test with each of the given servers.
func eachServer(t *testing.T, kinds []dhcpserver.Kind, test func(t *testing.T, k dhcpserver.Kind)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// TestRebind checks that the client rebinds by broadcast if the server was away at the time of
// renewal. It omits dnsmasq, the first server, which grants at least two minutes: a rebinding
// client repeats its request only after half of the remaining time.
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

// TestChangedAddress checks that the daemon follows a server that refuses the address and grants
// another: the interface gets the new address and routes, and loses the old ones.
func TestChangedAddress(t *testing.T) {
	eachServer(t, dhcpserver.Kinds, func(t *testing.T, k dhcpserver.Kind) {
		n := dhcpserver.NewNet(t, "a")
		s := dhcpserver.Start(t, n, k, pool, 20) // some servers do not refuse, so the lease expires
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

// TestLost checks that the daemon removes an address that no server renews, that CHECK reports the
// reason, and that the container gets a lease again when a server is back.
func TestLost(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	s := dhcpserver.Start(t, n, isc, pool, 3)
	d := newNode(t, n)
	d.add("a")
	s.Stop()
	testnet.Eventually(t, func() error {
		if _, err := d.call(dhcp.Check, "a"); err == nil ||
			!strings.Contains(err.Error(), "the lease has expired") {
			return fmt.Errorf("CHECK: %v", err)
		}
		return nil
	})
	if left := d.addresses("a"); left != "" {
		t.Errorf("left:\n%s", left)
	}
	d.stop() // the next daemon knows the reason, too
	d.start()
	if _, err := d.call(dhcp.Check, "a"); err == nil ||
		!strings.Contains(err.Error(), "the lease has expired") {
		t.Errorf("CHECK after a restart: %v", err)
	}
	s.StartRenewing(pool, 600)
	testnet.Eventually(t, func() error {
		_, err := d.call(dhcp.Check, "a")
		return err
	})
	if got := d.addresses("a"); !strings.Contains(got, "10.92.0.1") ||
		!strings.Contains(got, "default via") {
		t.Errorf("got\n%s", got)
	}
}

// TestNoServer checks that DEL interrupts an ADD that waits for a server, and that the error of ADD
// names the missing answer and the interface.
func TestNoServer(t *testing.T) {
	testnet.Long(t)
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
	if _, err := d.call(dhcp.Allocate, "b"); err == nil ||
		cni.AsError(err).Msg != "no more tries" ||
		!strings.Contains(cni.AsError(err).Details, "no OFFER in ") ||
		!strings.Contains(cni.AsError(err).Details, "on eth0 (carrier down)") {
		t.Errorf("%v: %s", err, cni.AsError(err).Details)
	}
}

// TestSlowLink checks that a port that forwards nothing during three transmissions of a message
// (spanning tree) only delays the lease.
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
	forwarding := time.AfterFunc(2500*time.Millisecond,
		func() { n.Host.Batch("link set " + port + " master br0") })
	r := d.must(dhcp.Allocate, "a")
	if forwarding.Stop() {
		t.Errorf("got %v before the port forwards", r.IPs)
	}
}

// TestLinkGone checks that a lease ends with its interface, that CHECK and ADD report it
// immediately, and that another interface of the same name gets another lease.
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
	d.add("a") // the previous lease had not noticed
	d.must(dhcp.Check, "a")
}

// TestTakeOver checks that a daemon that replaces another gets its socket and its leases, without
// interruption for clients.
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
			if _, err := dhcp.Call(t.Context(), d.socket,
				dhcp.Request{Verb: dhcp.Status}); err != nil {
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

// TestActivation checks that a daemon uses the socket that systemd has opened, and leaves it in
// place.
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

// TestHostPrefix checks that the prefix applies to the paths of socket, namespaces and leases,
// which exist only there, and that the PID file exists as long as the daemon runs.
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
	q := dhcp.Request{Verb: dhcp.Allocate, Container: "a", IfName: "eth0", Netns: "/tenon-test/a",
		Config: json.RawMessage(d.conf)}
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
		if err := daemon.Run(t.Context(), relative); err == nil ||
			!strings.Contains(err.Error(), "is not an absolute path") {
			t.Errorf("%+v: %v", relative, err)
		}
	}
}

// TestStaleSocket checks that a daemon replaces the socket of a killed daemon.
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

// TestDisconnect checks that a request leaves nothing behind if the client is killed while it
// waits.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	d := newNode(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	_, err := dhcp.Call(ctx, d.socket, dhcp.Request{Verb: dhcp.Allocate, Container: "a",
		IfName: "eth0", Netns: n.Container("a").Path(), Config: json.RawMessage(d.conf)})
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
