package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
)

// daemonAt runs the test binary as a daemon at a socket, for tests that kill it.
const daemonAt = "TENON_TEST_DHCP_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(daemonAt); socket != "" {
		err := daemon.Run(context.Background(), daemon.Options{Socket: socket, Timeout: time.Second,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testnet.AtOnce(6) // most of their time they wait for leases to expire
	testnet.Main(m)
}

// node is a daemon with the requests of a runtime.
type node struct {
	t      *testing.T
	n      *testnet.Net
	socket string
	conf   string
	o      daemon.Options
	stop   func()
	done   chan error // of the daemon
	pid    int        // of a daemon that runs as a process
	log    *logBuffer // of a daemon that runs as a process
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func newNode(t *testing.T, n *testnet.Net) *node {
	t.Helper()
	d := &node{t: t, n: n, socket: filepath.Join(t.TempDir(), "dhcp.sock")}
	d.conf = `{"cniVersion": "1.1.0", "name": "lan", "type": "x", "ipam": {"type": "dhcp", "request": [{"option": "121"}]}}`
	d.o = daemon.Options{
		Socket: d.socket, Timeout: time.Second, ResendMax: 4 * time.Second,
		ResendTimeout: testnet.Patience,
		Log: slog.New(slog.NewTextHandler(testLog{t},
			&slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	d.start()
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *node) start() {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	o := d.o // a test may change the options for the next daemon
	go func() { done <- daemon.Run(ctx, o) }()
	d.done = done
	d.stop = func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
		d.stop = func() {}
	}
	if d.o.TakeOver {
		return
	}
	testnet.Eventually(d.t, func() error {
		_, err := dhcp.Call(d.t.Context(), d.socket, dhcp.Request{Verb: dhcp.Status})
		return err
	})
}

func (d *node) call(verb dhcp.Verb, container string) (*cni.Result, error) {
	d.t.Helper()
	path := ""
	if container != "gone" {
		path = d.n.Container(container).Path()
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*testnet.Patience)
	defer cancel()
	r, err := dhcp.Call(ctx, d.socket, dhcp.Request{Verb: verb, Container: container,
		IfName: "eth0", Netns: path, Config: json.RawMessage(d.conf)})
	if err != nil {
		return nil, err
	}
	if err := r.Err(); err != nil || len(r.Result) == 0 {
		return nil, err
	}
	return cni.DecodeResult(r.Result, cni.V110)
}

// ask sends a request unchanged.
func (d *node) ask(q dhcp.Request) error {
	d.t.Helper()
	r, err := dhcp.Call(d.t.Context(), d.socket, q)
	if err != nil {
		return err
	}
	return r.Err()
}

// add gets an address for a container and assigns it to the interface, as an interface plugin does.
func (d *node) add(container string) *cni.Result {
	d.t.Helper()
	r, err := d.call(dhcp.Allocate, container)
	if err != nil {
		d.t.Fatalf("%v: %s", err, cni.AsError(err).Details)
	}
	c := d.n.Container(container)
	c.Batch("addr add " + r.IPs[0].Address.String() + " brd + dev eth0")
	for _, ip := range r.IPs[1:] {
		c.Batch("addr add " + ip.Address.String() + " dev eth0 nodad")
	}
	for _, rt := range r.Routes {
		if rt.GW.IsUnspecified() {
			c.Batch(fmt.Sprintf("route add %s dev eth0 scope link", rt.Dst))
		} else {
			c.Batch(fmt.Sprintf("route add %s via %s dev eth0", rt.Dst, rt.GW))
		}
	}
	return r
}

func (d *node) must(verb dhcp.Verb, container string) *cni.Result {
	d.t.Helper()
	r, err := d.call(verb, container)
	if err != nil {
		d.t.Fatalf("%s: %v", verb, err)
	}
	return r
}

// lease returns the lease of a container in the daemon's list.
func (d *node) lease(container string) (found dhcp.Lease, ok bool) {
	d.t.Helper()
	r, err := dhcp.Call(d.t.Context(), d.socket, dhcp.Request{Verb: dhcp.List})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, l := range r.Leases {
		if l.Container == container {
			return l, true
		}
	}
	return found, false
}

// renewedByUnicast checks that clients with an address send renewals to the server alone, from that
// address, and name it only in ciaddr.
func renewedByUnicast(t *testing.T, all []sent) {
	t.Helper()
	renewals := 0
	for _, m := range all {
		if m.Type() != v4.Request || !m.Client.IsValid() {
			continue
		}
		renewals++
		if m.to.String() != "10.92.0.1" || m.from != m.Client || m.Get(v4.OptRequestedIP) != nil ||
			m.Get(v4.OptServerID) != nil || m.Broadcast {
			t.Errorf("R-54: a renewal from %s to %s: %+v", m.from, m.to, m.Message)
		}
	}
	if renewals == 0 {
		t.Error("R-54: no renewal was heard")
	}
}

// TestServers checks against real servers that addresses and routes are granted to concurrent
// clients, returned on a second request, renewed before they expire, and released so that the
// server frees them.
func TestServers(t *testing.T) {
	t.Parallel()
	for _, k := range dhcpserver.Kinds {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			n := dhcpserver.NewNet(t, "a", "b", "c")
			heard := overhear(t, n)
			s := dhcpserver.StartRenewing(t, n, k, "10.92.0.100,10.92.0.199", 3)
			d := newNode(t, n)
			results := make(chan *cni.Result, 3)
			for _, c := range []string{"a", "b", "c"} {
				go func() {
					r, err := d.call(dhcp.Allocate, c)
					if err != nil {
						t.Errorf("%s: %v: %s", c, err, cni.AsError(err).Details)
					}
					results <- r
				}()
			}
			seen := map[string]bool{}
			for range 3 {
				if r := <-results; r != nil {
					seen[r.IPs[0].Address.String()] = true
				}
			}
			if len(seen) != 3 {
				t.Fatalf("addresses %v\n%s", seen, s.Log())
			}
			r := d.add("a")
			if !seen[r.IPs[0].Address.String()] ||
				!strings.HasPrefix(r.IPs[0].Address.String(), "10.92.0.1") ||
				r.IPs[0].Address.Bits() != 24 || r.IPs[0].Gateway.String() != "10.92.0.1" {
				t.Errorf("asked again: %+v", r.IPs)
			}
			want := "172.30.0.0/16 via 10.92.0.254 scope {0 false}, 172.31.0.0/16 via 0.0.0.0 scope {253 true}, 0.0.0.0/0 via 10.92.0.1 scope {0 false}"
			var got []string
			for _, rt := range r.Routes {
				got = append(got, fmt.Sprintf("%s via %s scope %v", rt.Dst, rt.GW, rt.Scope))
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("routes\n%s, expected\n%s", strings.Join(got, ", "), want)
			}
			before, _ := d.lease("a")
			testnet.Eventually(t, func() error {
				if l, _ := d.lease("a"); !l.Expires.After(before.Expires) {
					return fmt.Errorf("not renewed: %+v", l)
				}
				return nil
			})
			renewedByUnicast(t, heard())
			d.must(dhcp.Check, "a")
			for _, c := range []string{"a", "b", "c"} {
				d.must(dhcp.Release, c)
				d.must(dhcp.Release, c)
				n.Container(c).Batch("link del eth0") // immediately afterwards
			}
			if l, ok := d.lease("a"); ok {
				t.Errorf("still there: %+v", l)
			}
			if k.Released != "" {
				testnet.Eventually(t, func() error {
					if count := strings.Count(s.Log(), k.Released); count < 3 {
						return fmt.Errorf("the server knows of %d releases: %s", count, s.Log())
					}
					return nil
				})
			}
		})
	}
}
