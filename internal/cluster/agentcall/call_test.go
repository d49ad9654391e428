package agentcall_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/unixsocket"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// serve serves a handler for a test.
func serve(t testing.TB, h agentcall.Handler) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	l, err := unixsocket.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- agentcall.Serve(context.Background(), l, slog.New(slog.DiscardHandler), h)
	}()
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return socket
}

var sample = agentcall.Request{Verb: agentcall.Acquire, Pool: "pods", Network: "net",
	Container: "c", IfName: "eth0", Namespace: "shop", Name: "web-0", Addr: netip.MustParseAddr("10.64.0.9"),
	Have: []string{"n1", "n2"}, Deadline: time.Date(2199, 1, 2, 3, 4, 5, 0, time.UTC)}

func TestCall(t *testing.T) {
	t.Parallel()
	want := agentcall.Reply{Address: netip.MustParsePrefix("10.64.0.9/26"),
		Gateway: netip.MustParseAddr("10.64.0.1"), Status: &agentcall.Status{Cluster: "c",
			Pools: []agentcall.PoolStatus{{Pool: "pods", Blocks: 2, Exhausted: "the pool is full"}}}}
	got := make(chan agentcall.Request, 1)
	socket := serve(t, func(ctx context.Context, q *agentcall.Request) *agentcall.Reply {
		if end, ok := ctx.Deadline(); !ok || !end.Equal(q.Deadline) {
			t.Errorf("deadline %s, want %s", end, q.Deadline)
		}
		got <- *q
		return &want
	})
	r, err := agentcall.Call(t.Context(), socket, sample)
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]any{{sample, <-got}, {want, *r}} {
		if diff := cmp.Diff(encode(t, pair[0]), encode(t, pair[1])); diff != "" {
			t.Error(diff)
		}
	}
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The deadline of the context becomes the deadline of the request.
func TestDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	end, _ := ctx.Deadline()
	socket := serve(t, func(_ context.Context, q *agentcall.Request) *agentcall.Reply {
		if !q.Deadline.Equal(end.Round(0)) {
			t.Errorf("deadline %s, want %s", q.Deadline, end)
		}
		return new(agentcall.Reply)
	})
	if _, err := agentcall.Call(ctx, socket, agentcall.Request{Verb: agentcall.Grow}); err != nil {
		t.Error(err)
	}
}

// An error of the agent keeps its code and details; one without a code is transient.
func TestAgentFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		code cni.Code
	}{
		{cni.Errorf(cni.CodeInvalidConfig, "no such pool").WithDetails("add it"),
			cni.CodeInvalidConfig},
		{errors.New("no quorum"), cni.CodeTryAgainLater},
	} {
		socket := serve(t, func(context.Context, *agentcall.Request) *agentcall.Reply {
			return agentcall.Fail(row.err)
		})
		r, err := agentcall.Call(t.Context(), socket, sample)
		e := cni.AsError(err)
		if r == nil || e == nil || e.Code != row.code || e.Msg != cni.AsError(row.err).Msg ||
			e.Details != cni.AsError(row.err).Details {
			t.Errorf("%v: %+v, %+v", row.err, r, e)
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, stale := filepath.Join(dir, "file"), filepath.Join(dir, "stale")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := unixsocket.Listen(stale)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, stale, filepath.Join(dir, "absent"), filepath.Join(file, "x"),
		"/" + strings.Repeat("x", 200)} {
		_, err := agentcall.Call(t.Context(), path, sample)
		if !errors.Is(err, agentcall.ErrUnreachable) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The end of the caller's context, or of the caller, ends the request.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	begun, over := make(chan struct{}), make(chan struct{})
	socket := serve(t, func(ctx context.Context, _ *agentcall.Request) *agentcall.Reply {
		close(begun)
		<-ctx.Done()
		close(over)
		return new(agentcall.Reply)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the runtime gave up")
	go func() {
		<-begun
		cancel(why)
	}()
	if _, err := agentcall.Call(ctx, socket, sample); !errors.Is(err, why) {
		t.Error(err)
	}
	<-over
}

// A deadline in the past ends the request at once.
func TestLate(t *testing.T) {
	t.Parallel()
	socket := serve(t, func(ctx context.Context, _ *agentcall.Request) *agentcall.Reply {
		<-ctx.Done()
		return agentcall.Fail(ctx.Err())
	})
	q := sample
	q.Deadline = time.Now().Add(-time.Second)
	if _, err := agentcall.Call(t.Context(), socket, q); cni.CodeOf(err) != cni.CodeTryAgainLater {
		t.Error(err)
	}
}

// TestHostile: malformed, endless and missing requests get an error or no reply, and the next
// client is served.
func TestHostile(t *testing.T) {
	t.Parallel()
	calls := 0
	socket := serve(t, func(context.Context, *agentcall.Request) *agentcall.Reply {
		calls++
		return new(agentcall.Reply)
	})
	for name, row := range map[string]struct{ sent, want string }{
		"nothing":         {"", ""},
		"nonsense":        {"hello\n", `"Code":6`},
		"a number":        {"7\n", `"Code":6`},
		"a wrong type":    {`{"verb":["grow"]}` + "\n", `"Code":6`},
		"a wrong address": {`{"addr":"10.0.0"}` + "\n", `"Code":6`},
		"cut off":         {`{"verb":"grow"}`, "unexpected EOF"},
		"endless":         {strings.Repeat("{", 4<<20+1), "longer than"},
	} {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(testnet.Patience))
		_, _ = io.WriteString(c, row.sent)
		_ = c.(*net.UnixConn).CloseWrite()
		got, err := io.ReadAll(c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still connected", name)
		}
		if !strings.Contains(string(got), row.want) || row.want == "" && len(got) > 0 {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
		c.Close()
	}
	if calls > 0 {
		t.Errorf("%d requests were handled", calls)
	}
	if _, err := agentcall.Call(t.Context(), socket, sample); err != nil {
		t.Error(err)
	}
}

// TestIdleClients: a request is answered at once although 1,200 clients have connected and send
// nothing. Each of them may take 10 s.
func TestIdleClients(t *testing.T) {
	const clients = 1200
	testnet.Require(t, testnet.Optional(func() error {
		var limit unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
		if err == nil && limit.Cur < 2*clients+100 {
			err = fmt.Errorf("a process may open %d files only", limit.Cur)
		}
		return err
	}))
	socket := serve(t, func(context.Context, *agentcall.Request) *agentcall.Reply {
		return new(agentcall.Reply)
	})
	for range clients {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if _, err := agentcall.Call(ctx, socket, sample); err != nil {
		t.Error(err)
	}
}

// An agent that closes the connection, or sends nonsense, is an error that says so.
func TestHostileAgent(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]string{
		"": "closed the connection without a reply", "{]\n": "invalid character",
		`{"address":7}` + "\n": "cannot unmarshal", `{"status`: "unexpected EOF",
	} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, reply)
			c.Close()
		}()
		_, err = agentcall.Call(t.Context(), socket, sample)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", reply, err, want)
		}
		<-done
		l.Close()
	}
}

// TestPeer: only root gets a reply, even if other users may open the socket.
func TestPeer(t *testing.T) {
	testnet.Require(t, testnet.Root)
	socket := serve(t, func(context.Context, *agentcall.Request) *agentcall.Reply {
		return new(agentcall.Reply)
	})
	for dir := filepath.Dir(socket); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[int]string{0: "{}\n", 65534: ""} {
		c, err := testnet.DialAs(user, socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(testnet.Patience))
		_, _ = io.WriteString(c, `{"verb":"report"}`+"\n")
		b := make([]byte, 64)
		if n, err := c.Read(b); string(b[:n]) != want || os.IsTimeout(err) {
			t.Errorf("user %d got %q, %v", user, b[:n], err)
		}
		c.Close()
	}
}

// FuzzReceive: no message makes the decoder of either side panic.
func FuzzReceive(f *testing.F) {
	for _, v := range []any{sample, agentcall.Fail(errors.New("x")), agentcall.Reply{
		Address: netip.MustParsePrefix("10.64.0.9/26"), Status: &agentcall.Status{}}} {
		f.Add([]byte(encode(f, v) + "\n"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = agentcall.Receive(bytes.NewReader(b), new(agentcall.Request))
		r := new(agentcall.Reply)
		if agentcall.Receive(bytes.NewReader(b), r) == nil && r.Error != nil {
			_ = r.Error.Error()
		}
	})
}
