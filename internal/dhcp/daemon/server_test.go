package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/unixsocket"
)

// serve starts a server for a test.
func serve(t *testing.T, handle func(context.Context, *dhcp.Request) *dhcp.Reply) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "dhcp.sock")
	l, err := unixsocket.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &daemon.Server{Handle: handle, Log: slog.New(slog.DiscardHandler)}
	done := make(chan error)
	go func() { done <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return socket
}

func sampleResult(t *testing.T) (r *cni.Result, encoded json.RawMessage) {
	t.Helper()
	r = &cni.Result{
		IPs: []cni.IP{{Address: netip.MustParsePrefix("192.168.1.5/24"),
			Gateway: netip.MustParseAddr("192.168.1.1")}},
		Routes: []cni.Route{
			{Dst: netip.MustParsePrefix("10.50.0.0/16"), GW: netip.MustParseAddr("192.168.1.254"),
				Priority: 7},
			{Dst: netip.MustParsePrefix("10.60.0.0/16"), GW: netip.MustParseAddr("0.0.0.0"),
				Scope: cni.Some(253)},
		},
	}
	encoded, err := r.Encode(cni.V110)
	if err != nil {
		t.Fatal(err)
	}
	return r, encoded
}

// TestCall checks that a request arrives with the namespace, and the reply with the socket.
func TestCall(t *testing.T) {
	_, encoded := sampleResult(t)
	type received struct {
		dhcp.Request
		ns unix.Stat_t
	}
	requests := make(chan received, 1)
	socket := serve(t, func(_ context.Context, q *dhcp.Request) *dhcp.Reply {
		r := received{Request: *q}
		if err := unix.Fstat(int(q.NS.Fd()), &r.ns); err != nil {
			return dhcp.Fail(err)
		}
		r.NS = nil
		requests <- r
		passed, err := os.Open(os.DevNull)
		if err != nil {
			return dhcp.Fail(err)
		}
		return &dhcp.Reply{Result: encoded, Listener: passed}
	})
	self, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	q := dhcp.Request{Verb: dhcp.Allocate, Container: "c", IfName: "eth0", Netns: "/x", Args: "A=B",
		Config: json.RawMessage(`{"name":"` + strings.Repeat("n", 100_000) + `"}`)}
	sent := q
	sent.NS = self
	r, err := dhcp.Call(t.Context(), socket, sent)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Listener.Close()
	got := <-requests
	if diff := cmp.Diff(q, got.Request); diff != "" {
		t.Error(diff)
	}
	var want unix.Stat_t
	if err := unix.Fstat(int(self.Fd()), &want); err != nil || want.Ino != got.ns.Ino {
		t.Errorf("the daemon received another namespace: inode %d, sent %d, %v", got.ns.Ino,
			want.Ino, err)
	}
	if string(r.Result) != string(compact(t, encoded)) || r.Listener == nil {
		t.Errorf("%+v", r)
	}
}

func compact(t *testing.T, v json.RawMessage) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestErrors checks that an error of the daemon keeps its code and details, and that Call
// distinguishes it from a missing and from a stale socket.
func TestErrors(t *testing.T) {
	socket := serve(t, func(context.Context, *dhcp.Request) *dhcp.Reply {
		return dhcp.Fail(cni.Errorf(cni.CodeTryAgainLater, "no more tries").WithDetails("no OFFER"))
	})
	r, err := dhcp.Call(t.Context(), socket, dhcp.Request{Verb: dhcp.Allocate})
	if err != nil {
		t.Fatal(err)
	}
	if e := cni.AsError(r.Err()); e.Code != cni.CodeTryAgainLater || e.Msg != "no more tries" ||
		e.Details != "no OFFER" {
		t.Errorf("%+v", e)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "is not a socket", "/" +
		strings.Repeat("x", 107): "this one has 108"} {
		if _, err := unixsocket.Listen(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen on %s: %v", path, err)
		}
		if _, err := dhcp.Call(t.Context(), path, dhcp.Request{}); !errors.Is(err,
			dhcp.ErrUnreachable) {
			t.Errorf("call %s: %v", path, err)
		}
	}
	stale := filepath.Join(t.TempDir(), "dhcp.sock")
	if _, err := dhcp.Call(t.Context(), stale, dhcp.Request{}); !errors.Is(err,
		dhcp.ErrUnreachable) {
		t.Error(err)
	}
	l, err := unixsocket.Listen(stale)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unixsocket.Listen(stale); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("listen on a socket in use: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := dhcp.Call(t.Context(), stale, dhcp.Request{}); !errors.Is(err,
		dhcp.ErrUnreachable) {
		t.Error(err)
	}
	l, err = unixsocket.Listen(stale)
	if err != nil {
		t.Fatalf("listen on a stale socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClientHangsUp checks that a client that disconnects cancels its request.
func TestClientHangsUp(t *testing.T) {
	begun, over := make(chan struct{}), make(chan struct{})
	socket := serve(t, func(ctx context.Context, _ *dhcp.Request) *dhcp.Reply {
		close(begun)
		<-ctx.Done()
		close(over)
		return new(dhcp.Reply)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := dhcp.Call(ctx, socket, dhcp.Request{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-over
}

// TestHostilePlugin checks that invalid data, endless lines and silence end a connection and have
// no other effect.
func TestHostilePlugin(t *testing.T) {
	socket := serve(t, func(context.Context, *dhcp.Request) *dhcp.Reply { return new(dhcp.Reply) })
	for name, sent := range map[string]string{
		"nonsense": "hello\n", "endless greeting": strings.Repeat("x", 1<<20),
		"no request": "TENON-DHCP/1\n", "no JSON": "TENON-DHCP/1\n{]\n",
		"net/rpc": "CONNECT /_goRPC_ HTTP/1.0\n\n", "endless": "TENON-DHCP/1\n" +
			strings.Repeat("{", 5<<20),
	} {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, sent)
		if err := errors.Join(c.(*net.UnixConn).CloseWrite(),
			c.SetDeadline(time.Now().Add(testnet.Patience))); err != nil &&
			!errors.Is(err, unix.ENOTCONN) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still connected", name)
		}
		c.Close()
	}
	if _, err := dhcp.Call(t.Context(), socket, dhcp.Request{Verb: dhcp.Status}); err != nil {
		t.Error(err)
	}
}
