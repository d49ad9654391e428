package cluster_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/unixsocket"
)

// pools are the pools of the fake agent.
var pools = []cluster.Pool{
	{Name: "pods", Range: netip.MustParsePrefix("10.64.0.0/12")},
	{Name: "more", Range: netip.MustParsePrefix("10.96.0.0/12")},
	{Name: "pods6", Range: netip.MustParsePrefix("fd00:64::/104")},
	{Name: "prefixes", Range: netip.MustParsePrefix("fd00:66::/48"), PrefixBits: 64},
}

// agent answers for one directory like an agent that is alone in its cluster: it gives the node
// every block and every shared address.
type agent struct {
	store *local.Store

	mu       sync.Mutex
	requests []agentcall.Request
	refuse   error            // answers all requests with this error, unless nil
	fixed    *agentcall.Reply // answers all requests, unless nil
}

func newAgent(dir string) *agent { return &agent{store: local.New(local.Options{Dir: dir})} }

// answer answers a request.
func (a *agent) answer(ctx context.Context, q *agentcall.Request) *agentcall.Reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, *q)
	if a.refuse != nil {
		return agentcall.Fail(a.refuse)
	}
	if a.fixed != nil {
		return a.fixed
	}
	r := new(agentcall.Reply)
	var err error
	switch q.Verb {
	case agentcall.Grow, agentcall.Draw, agentcall.Acquire:
		err = a.change(ctx, q, r)
	case agentcall.Released:
		err = a.released()
	case agentcall.Report:
		r.Status = &agentcall.Status{Contact: time.Now()}
	}
	if err != nil {
		return agentcall.Fail(err)
	}
	return r
}

// change changes the state of a pool.
func (a *agent) change(ctx context.Context, q *agentcall.Request, r *agentcall.Reply) error {
	p, err := a.store.Open(ctx, q.Pool, false)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := a.confirm(p); err != nil {
		return err
	}
	if q.Verb == agentcall.Draw {
		if p.State.Tokens == nil {
			p.State.Tokens = map[string]uint64{}
		}
		p.State.Tokens[q.Namespace] += 8
	}
	if q.Verb == agentcall.Grow {
		known := func(b local.Block) bool { return !slices.Contains(q.Have, b.Nonce) }
		if !slices.ContainsFunc(p.State.Blocks, known) {
			grow(&p.State)
		}
	}
	if err := p.Save(); err != nil || q.Verb != agentcall.Acquire {
		return err
	}
	addr := q.Addr
	if !addr.IsValid() { // the last block of the pool is shared
		addr = p.State.Pool.Block(p.State.Pool.Blocks() - 1).Addr().Next().Next()
	}
	got, err := p.Put(ctx, addr, local.Request{Namespace: q.Namespace,
		Owner: ipam.Owner{Container: q.Container, IfName: q.IfName, Network: q.Network}})
	r.Address, r.Gateway = got.Addr, got.Gateway
	return err
}

// confirm makes the state of a pool usable in this boot.
func (a *agent) confirm(p *local.Pool) error {
	boot, err := statefile.BootID()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(pools, func(pool cluster.Pool) bool { return pool.Name == p.Name() })
	if at < 0 {
		return cni.Errorf(cni.CodeInvalidConfig, "pool %s does not exist", p.Name())
	}
	if p.Err() != nil {
		pool := pools[at]
		if err := pool.Canonicalize(); err != nil {
			return err
		}
		p.State = local.State{Pool: pool, Node: "n1", Epoch: 1}
		grow(&p.State)
	}
	p.State.Boot = boot
	return nil
}

// grow adds a block.
func grow(s *local.State) {
	n := len(s.Blocks)
	s.Blocks = append(s.Blocks, local.Block{Block: s.Pool.Block(uint64(n)),
		Generation: int64(n + 1), Epoch: 1, Nonce: fmt.Sprint("nonce", n), Phase: local.Owned})
}

func (a *agent) released() error {
	notes, err := a.store.Notes()
	for _, n := range notes {
		err = errors.Join(err, a.store.Done(n))
	}
	return err
}

// asked returns the verbs of the requests so far.
func (a *agent) asked() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var verbs []string
	for _, q := range a.requests {
		verbs = append(verbs, string(q.Verb))
	}
	return strings.Join(verbs, " ")
}

// serve serves an agent in this process.
func (a *agent) serve(t testing.TB, socket string) {
	t.Helper()
	l, err := unixsocket.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- agentcall.Serve(context.Background(), l, slog.New(slog.DiscardHandler), a.answer)
	}()
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
}

// agentsAt runs the test binary as agents of many directories, because the suite counts the open
// files of its own process.
const agentsAt = "TENON_TEST_CLUSTER_AGENTS"

// serveAgents serves a request with a directory as its name at a control socket, by starting an
// agent for it.
func serveAgents(control string) error {
	l, err := unixsocket.Listen(control)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	agents := map[string]*net.UnixListener{}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return agentcall.Serve(context.Background(), l, log,
		func(_ context.Context, q *agentcall.Request) *agentcall.Reply {
			mu.Lock()
			defer mu.Unlock()
			if agents[q.Name] != nil {
				return new(agentcall.Reply)
			}
			l, err := unixsocket.Listen(socketOf(control, q.Name))
			if err != nil {
				return agentcall.Fail(err)
			}
			agents[q.Name] = l
			go func() {
				_ = agentcall.Serve(context.Background(), l, log, newAgent(q.Name).answer)
			}()
			return new(agentcall.Reply)
		})
}

// socketOf returns the socket of the agent of a directory.
func socketOf(control, dir string) string {
	return fmt.Sprintf("%s.%x", control, sha256.Sum256([]byte(dir)))[:len(control)+17]
}

// startAgents starts serveAgents in a process.
func startAgents(t testing.TB) (control string) {
	t.Helper()
	control = filepath.Join(t.TempDir(), "a")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), agentsAt+"="+control)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testnet.Eventually(t, func() error {
		_, err := agentcall.Call(context.Background(), control, agentcall.Request{Name: control})
		return err
	})
	return control
}
