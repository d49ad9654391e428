package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// Values that the upstream plugin and its daemon exchange.
type (
	CmdArgs struct {
		ContainerID, Netns, IfName, Args, Path, NetnsOverride string
		StdinData                                             []byte
	}
	IP struct {
		Interface *int
		Address   net.IPNet
		Gateway   net.IP
	}
	Route struct {
		Dst                   net.IPNet
		GW                    net.IP
		MTU, AdvMSS, Priority int
		Table, Scope          *int
	}
	Result struct {
		CNIVersion string
		IPs        []*IP
		Routes     []*Route
	}
	DHCP struct {
		mu     sync.Mutex // the race detector does not see the order that the socket imposes
		got    CmdArgs
		result Result
		err    error
	}
)

func (d *DHCP) Allocate(args *CmdArgs, r *Result) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got, *r = *args, d.result
	return d.err
}

func (d *DHCP) Release(args *CmdArgs, _ *struct{}) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = *args
	return d.err
}

func (d *DHCP) asked() CmdArgs {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.got
}

func (d *DHCP) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func upstreamResult() Result {
	scope := 253
	n := func(s string) net.IPNet { _, n, _ := net.ParseCIDR(s); return *n }
	address := n("192.168.1.0/24")
	address.IP = net.ParseIP("192.168.1.5")
	return Result{
		IPs: []*IP{{Address: address, Gateway: net.ParseIP("192.168.1.1")}},
		Routes: []*Route{
			{Dst: n("10.50.0.0/16"), GW: net.ParseIP("192.168.1.254"), Priority: 7},
			{Dst: n("10.60.0.0/16"), GW: net.ParseIP("0.0.0.0"), Scope: &scope},
		},
	}
}

// install builds tenon-dhcp in the directory where the client finds it.
func install(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, dhcp.Program),
		"../../../cmd/tenon-dhcp").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestUpstreamDaemon checks that tenon-dhcp makes the request of a client that meets upstream's
// daemon.
func TestUpstreamDaemon(t *testing.T) {
	install(t)
	socket := filepath.Join(t.TempDir(), "dhcp.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	theirs := &DHCP{result: upstreamResult()}
	srv := rpc.NewServer()
	if err := srv.Register(theirs); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(rpc.DefaultRPCPath, srv)
	var served sync.WaitGroup
	served.Go(func() { _ = http.Serve(l, mux) })
	defer func() { l.Close(); served.Wait() }()
	want, encoded := sampleResult(t)
	q := dhcp.Request{Verb: dhcp.Allocate, Container: "c", Netns: "/n", IfName: "eth0", Args: "A=B",
		Config: json.RawMessage(`{"name":"n"}`)}
	r, err := dhcp.Call(t.Context(), socket, q)
	if err != nil || r.Err() != nil {
		t.Fatal(err, r)
	}
	if string(r.Result) != string(encoded) {
		t.Errorf("got %s\nof %+v", r.Result, want)
	}
	if diff := cmp.Diff(CmdArgs{ContainerID: "c", Netns: "/n", IfName: "eth0", Args: "A=B",
		StdinData: []byte(`{"name":"n"}`)}, theirs.asked()); diff != "" {
		t.Error(diff)
	}
	q.Verb = dhcp.Release
	if r, err := dhcp.Call(t.Context(), socket, q); err != nil || r.Err() != nil {
		t.Error(err, r)
	}
	theirs.fail(errors.New("no more tries"))
	if r, err := dhcp.Call(t.Context(), socket, q); err != nil || r.Error.Msg != "no more tries" {
		t.Error(err, r)
	}
	q.Verb = dhcp.List
	if _, err := dhcp.Call(t.Context(), socket, q); !errors.Is(err, dhcp.ErrUpstream) {
		t.Error(err)
	}
}

// TestUpstreamClient checks that the daemon serves a client that uses net/rpc, with several calls
// on one connection.
func TestUpstreamClient(t *testing.T) {
	var got []dhcp.Verb
	_, encoded := sampleResult(t)
	socket := serve(t, func(_ context.Context, q *dhcp.Request) *dhcp.Reply {
		got = append(got, q.Verb)
		if q.Container == "none" {
			return dhcp.Fail(errors.New("no more tries"))
		}
		return &dhcp.Reply{Result: encoded}
	})
	c, err := rpc.DialHTTP("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r := Result{CNIVersion: "1.1.0"}
		if err := c.Call("DHCP.Allocate", &CmdArgs{ContainerID: "c", StdinData: []byte("{}")},
			&r); err != nil {
			t.Fatal(err)
		}
		want := upstreamResult()
		want.CNIVersion = "1.1.0"
		if diff := cmp.Diff(want, r); diff != "" {
			t.Error(diff)
		}
	}
	if err := c.Call("DHCP.Allocate", &CmdArgs{ContainerID: "none"}, new(Result)); err == nil ||
		err.Error() != "no more tries" {
		t.Error(err)
	}
	if err := c.Call("DHCP.Release", &CmdArgs{ContainerID: "c"}, new(struct{})); err != nil {
		t.Error(err)
	}
	if err := c.Call("DHCP.Other", &CmdArgs{}, new(struct{})); err == nil {
		t.Error("an unknown method was called")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if want := []dhcp.Verb{dhcp.Allocate, dhcp.Allocate, dhcp.Allocate,
		dhcp.Release}; !cmp.Equal(want, got) {
		t.Errorf("%v", got)
	}
}

// TestUpstreamHangsUp checks that a client that disconnects cancels its request, and that a request
// that is too long is refused.
func TestUpstreamHangsUp(t *testing.T) {
	begun, over := make(chan struct{}), make(chan struct{})
	socket := serve(t, func(ctx context.Context, _ *dhcp.Request) *dhcp.Reply {
		close(begun)
		<-ctx.Done()
		close(over)
		return new(dhcp.Reply)
	})
	c, err := rpc.DialHTTP("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c.Go("DHCP.Release", &CmdArgs{ContainerID: "c"}, new(struct{}), nil)
	<-begun
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-over
	if c, err = rpc.DialHTTP("unix", socket); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Call("DHCP.Release", &CmdArgs{Args: strings.Repeat("x", 5<<20)},
		new(struct{})); err == nil {
		t.Error("a request of 5 MiB is answered")
	}
}

// TestHostileUpstreamClient checks that values that are not requests end a connection and have no
// other effect.
func TestHostileUpstreamClient(t *testing.T) {
	socket := serve(t, func(context.Context, *dhcp.Request) *dhcp.Reply { return new(dhcp.Reply) })
	for _, sent := range []string{"", "\xff\xff", "\x03\x01\x02\x03",
		strings.Repeat("\x7f", 1<<16)} {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "CONNECT /_goRPC_ HTTP/1.0\n\n"+sent)
		if err := errors.Join(c.(*net.UnixConn).CloseWrite(),
			c.SetDeadline(time.Now().Add(testnet.Patience))); err != nil {
			t.Errorf("%q: %v", sent, err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: still connected", sent)
		}
		c.Close()
	}
	if _, err := dhcp.Call(t.Context(), socket, dhcp.Request{Verb: dhcp.Status}); err != nil {
		t.Error(err)
	}
}
