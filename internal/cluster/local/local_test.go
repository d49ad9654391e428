package local_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

const bootID = "0123-boot"

var ctx = context.Background()

// node is a node under test with clocks that the test moves.
type node struct {
	testing.TB
	dir  string
	boot string
	up   time.Duration
	wall time.Time
}

func newNode(t testing.TB) *node {
	return &node{t, t.TempDir(), bootID, time.Hour, time.Now().Round(0)}
}

func (n *node) store() *local.Store {
	return local.New(local.Options{Dir: n.dir, BootID: n.boot,
		Clock: func() (time.Duration, time.Time) { return n.up, n.wall }})
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// open opens a pool, which the caller must close.
func (n *node) open(pool string) *local.Pool {
	n.Helper()
	p, err := n.store().Open(ctx, pool, false)
	n.must(err)
	return p
}

// with opens a pool for the duration of fn.
func (n *node) with(pool string, fn func(*local.Pool)) {
	n.Helper()
	p := n.open(pool)
	fn(p)
	n.must(p.Close())
}

// state writes the state of a pool with blocks.
func (n *node) state(pool cluster.Pool, blocks ...local.Block) {
	n.Helper()
	n.must(pool.Canonicalize())
	n.with(pool.Name, func(p *local.Pool) {
		p.State = local.State{Pool: pool, Node: "n1", Epoch: 1, Boot: n.boot, Blocks: blocks}
		n.must(p.Save())
	})
}

// change changes the state of a pool.
func (n *node) change(pool string, fn func(*local.State)) {
	n.Helper()
	n.with(pool, func(p *local.Pool) {
		n.must(p.Err())
		fn(&p.State)
		n.must(p.Save())
	})
}

func owned(block string) local.Block {
	return local.Block{Block: netip.MustParsePrefix(block), Generation: 7, Epoch: 1,
		Nonce: "nonce of " + block, Phase: local.Owned}
}

func in(phase local.Phase, block string) local.Block {
	b := owned(block)
	b.Phase = phase
	return b
}

func owner(container string) ipam.Owner {
	return ipam.Owner{Container: container, IfName: "eth0", Network: "net"}
}

// allocate allocates and returns "ADDRESS/BITS via GATEWAY" or the error.
func (n *node) allocate(pool string, q local.Request) (text string, err error) {
	n.Helper()
	n.with(pool, func(p *local.Pool) {
		var a local.Allocation
		a, err = p.Allocate(ctx, q)
		text = fmt.Sprintf("%s via %s", a.Addr, a.Gateway)
	})
	return text, err
}

func (n *node) want(pool, container, want string) {
	n.Helper()
	got, err := n.allocate(pool, local.Request{Owner: owner(container)})
	if err != nil || got != want {
		n.Errorf("%s got %s, %v; want %s", container, got, err, want)
	}
}

func (n *node) wantErr(pool string, q local.Request, want error) {
	n.Helper()
	if got, err := n.allocate(pool, q); !errors.Is(err, want) {
		n.Errorf("got %s, %v; want %v", got, err, want)
	}
}

func (n *node) release(pool string, o ipam.Owner) (noted bool) {
	n.Helper()
	n.with(pool, func(p *local.Pool) {
		var err error
		noted, err = p.Release(ctx, o)
		n.must(err)
	})
	return noted
}

// leases returns "ADDRESS CONTAINER" for each reservation.
func (n *node) leases(pool string) (all []string) {
	n.Helper()
	n.with(pool, func(p *local.Pool) {
		leases, err := p.Leases(ctx)
		n.must(err)
		for _, l := range leases {
			all = append(all, l.Addr.String()+" "+l.Owner.Container)
		}
	})
	return all
}

func (n *node) wantLeases(pool string, want ...string) {
	n.Helper()
	if diff := cmp.Diff(want, n.leases(pool)); diff != "" {
		n.Errorf("leases of %s (-want +got):\n%s", pool, diff)
	}
}

var pods = cluster.Pool{Name: "pods", Range: netip.MustParsePrefix("10.64.0.0/12")}

func TestAllocateAndRelease(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.3.64/26"))
	n.want("pods", "c1", "10.64.3.66/26 via 10.64.3.65")
	n.want("pods", "c2", "10.64.3.67/26 via 10.64.3.65")
	var duplicate *ipam.DuplicateError
	if _, err := n.allocate("pods", local.Request{Owner: owner("c1")}); !errors.As(err, &duplicate) {
		t.Errorf("a second address of one attachment: %v", err)
	}
	for range 2 {
		if n.release("pods", owner("c1")) {
			t.Error("a note for an address of the node's own block")
		}
	}
	n.want("pods", "c3", "10.64.3.68/26 via 10.64.3.65") // not the one that was just released
	n.wantLeases("pods", "10.64.3.67 c2", "10.64.3.68 c3")
}

// TestFull: all addresses of all blocks are allocated, once each, then ErrFull reports the nonces.
func TestFull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.0.0/26"), owned("10.64.9.0/26"))
	seen := map[string]bool{}
	for i := range 2 * 61 {
		got, err := n.allocate("pods", local.Request{Owner: owner(fmt.Sprint("c", i))})
		n.must(err)
		if seen[got] || strings.HasSuffix(got, ".0/26") || strings.HasSuffix(got, ".63/26") {
			t.Errorf("got %s", got)
		}
		seen[got] = true
	}
	_, err := n.allocate("pods", local.Request{Owner: owner("one more")})
	var full *local.FullError
	if !errors.As(err, &full) || !errors.Is(err, local.ErrFull) || full.Used != 122 ||
		full.Capacity != 122 || len(full.Blocks) != 2 || !strings.Contains(full.Details(), "c0") {
		t.Errorf("%v: %+v", err, full)
	}
	n.release("pods", owner("c70"))
	if _, err := n.allocate("pods", local.Request{Owner: owner("again")}); err != nil {
		t.Error(err)
	}
}

func TestNoState(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.wantErr("pods", local.Request{Owner: owner("c1")}, local.ErrNoPool)
	if _, err := n.store().Node(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := n.store().Open(ctx, "../pods", false); err == nil {
		t.Error("opened a pool outside the directory")
	}
	p, err := n.store().Open(ctx, "unknown", true)
	n.must(err)
	if _, err := p.Release(ctx, owner("c1")); err != nil {
		t.Error(err)
	}
	n.must(p.Close())
	names, err := n.store().Pools()
	n.must(err)
	if diff := cmp.Diff([]string{"pods"}, names); diff != "" {
		t.Error(diff)
	}
}
