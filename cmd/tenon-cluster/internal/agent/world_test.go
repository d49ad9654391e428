package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// world is a cluster with an in-memory store, in a bubble with virtual time.
type world struct {
	*testing.T
	kv    *memkv.Store
	admin *registry.Registry
}

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, kv: memkv.New()}
		w.admin = registry.New(w.kv.Client("admin"), registry.Options{Cluster: "c"})
		if _, err := w.admin.Meta.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(w)
	})
}

// directory returns a directory in memory, if the host has one for files with extended attributes: in
// virtual time, a disk only takes time.
func (w *world) directory() string {
	w.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tenon-agent-")
	if err != nil {
		return w.TempDir()
	}
	w.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			w.Error(err)
		}
	})
	if unix.Setxattr(dir, "user.tenon.test", nil, 0) != nil {
		return w.TempDir()
	}
	return dir
}

// pool creates or changes a pool.
func (w *world) pool(p cluster.Pool) {
	w.Helper()
	if p.Name == "" {
		p.Name = "pods"
	}
	if _, err := w.admin.Pools.Put(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

// node is a host: its files, its clocks, and its agent if it runs.
type node struct {
	*world
	name   string
	dir    string
	boot   string
	skew   atomic.Int64 // of the wall clock
	asleep atomic.Int64 // time that the boot clock has gone on without the monotonic clock
	change func(*agent.Options)
	quits  bool         // the agent may end with an error
	asks   atomic.Int64 // the most requests to the agent that one ADD needed

	client *memkv.Client
	agent  *agent.Agent
	files  *local.Store
	stop   func()
	ended  chan error
}

// node creates a host. Its agent does not run yet.
func (w *world) node(name string) *node {
	return &node{world: w, name: name, dir: filepath.Join(w.directory(), name), boot: "boot-1-" + name}
}

// clock reads the clocks of the host.
func (n *node) clock() (time.Duration, time.Time) {
	now := time.Now()
	asleep := time.Duration(n.asleep.Load())
	boot := now.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) + asleep
	return boot, now.Round(0).Add(asleep + time.Duration(n.skew.Load()))
}

// start starts the agent and waits until it has nothing to do.
func (n *node) start() *node {
	n.Helper()
	return n.startWith(n.kv.Client(n.name))
}

// startWith is start with a client of the store.
func (n *node) startWith(client *memkv.Client) *node {
	n.Helper()
	n.client = client
	n.files = local.New(local.Options{Dir: n.dir, BootID: n.boot, Clock: n.clock})
	o := agent.Options{
		Registry: registry.New(n.client, registry.Options{Cluster: "c"}),
		Local:    n.files,
		Dir:      n.dir,
		Cluster:  "c",
		Node:     cluster.Node{Name: n.name, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		BootID:   n.boot,
		Clock:    n.clock,
		Log:      logTo(n.name),
	}
	if n.change != nil {
		n.change(&o)
	}
	n.agent = agent.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	n.ended = make(chan error, 1)
	go func() { n.ended <- n.agent.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-n.ended; err != nil && !n.quits {
			n.Error(err)
		}
	})
	n.Cleanup(n.stop)
	synctest.Wait()
	return n
}

// logTo logs to standard error if TENON_TEST_LOG is set.
func logTo(name string) *slog.Logger {
	w := io.Discard
	if os.Getenv("TENON_TEST_LOG") != "" {
		w = os.Stderr
	}
	return slog.New(slog.NewTextHandler(w, nil)).With("on", name)
}

// kill ends the agent without letting it talk to the store again.
func (n *node) kill() {
	n.client.Fault(func(memkv.Call) memkv.Fault { return memkv.Fault{Error: errKilled} })
	n.stop()
}

var errKilled = errors.New("the process has ended")

// reboot ends the agent, and all reservations become void.
func (n *node) reboot() {
	n.kill()
	n.boot += "+"
}

// add allocates an address as the plugin does: from the files, and with the agent's help if these
// are full.
func (n *node) add(pool, container string) (netip.Addr, error) {
	return n.plugin().add(pool, container)
}

// plugin is what an ADD uses of a host. It stays the same when the host starts another agent.
type plugin struct {
	files *local.Store
	agent *agent.Agent
	asks  *atomic.Int64
}

func (n *node) plugin() plugin { return plugin{n.files, n.agent, &n.asks} }

func (n plugin) add(pool, container string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for asks := int64(0); ; asks++ {
		n.asks.Store(max(n.asks.Load(), asks))
		a, err := n.allocate(ctx, pool, container)
		q := agentcall.Request{Verb: agentcall.Grow, Pool: pool}
		var full *local.FullError
		switch {
		case errors.As(err, &full):
			q.Have = full.Blocks
		case errors.Is(err, local.ErrUnconfirmed), errors.Is(err, local.ErrNoPool):
		default:
			return a, err
		}
		if n.agent == nil {
			return a, err
		}
		if r := n.agent.Handle(ctx, &q); r.Error != nil {
			return a, r.Error
		}
	}
}

// allocate allocates from the files.
func (n plugin) allocate(ctx context.Context, pool, container string) (netip.Addr, error) {
	p, err := n.files.Open(ctx, pool, false)
	if err != nil {
		return netip.Addr{}, err
	}
	defer p.Close()
	got, err := p.Allocate(ctx, local.Request{Owner: owner(container)})
	return got.Addr.Addr(), err
}

func owner(container string) ipam.Owner {
	return ipam.Owner{Container: container, IfName: "eth0", Network: "net"}
}

// del releases the address of a container.
func (n *node) del(pool, container string) {
	n.Helper()
	p, err := n.files.Open(context.Background(), pool, false)
	if err != nil {
		n.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Release(context.Background(), owner(container)); err != nil {
		n.Fatal(err)
	}
}

// state reads the state of a pool.
func (n *node) state(pool string) local.State {
	n.Helper()
	p, err := n.files.Open(context.Background(), pool, true)
	if err != nil {
		n.Fatal(err)
	}
	defer p.Close()
	return p.State
}

// blocks describes the blocks in the files: prefix and phase.
func (n *node) blocks(pool string) (all []string) {
	n.Helper()
	for _, b := range n.state(pool).Blocks {
		all = append(all, fmt.Sprintf("%s %s", b.Block, b.Phase))
	}
	return all
}

// stored reads the node's document.
func (n *node) stored() registry.Node {
	n.Helper()
	doc, err := n.admin.Nodes.Read(context.Background(), n.name)
	if err != nil {
		n.Fatal(err)
	}
	return doc
}

// check fails the test if the store violates an invariant.
func (w *world) check() {
	w.Helper()
	s, err := w.admin.Snapshot(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range s.Check() {
		w.Errorf("invariant %d: %s", f.Invariant, f.Text)
	}
}

// mustAdd is add that must succeed.
func (n *node) mustAdd(pool, container string) netip.Addr {
	n.Helper()
	a, err := n.add(pool, container)
	if err != nil {
		n.Fatalf("add %s on %s: %v", container, n.name, err)
	}
	return a
}

// prefix parses a prefix.
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// startPartitioned is start without a connection to the store.
func (n *node) startPartitioned() {
	n.Helper()
	client := n.kv.Client(n.name)
	client.Partition(true)
	n.startWith(client)
}

// run runs an agent until it ends by itself.
func (n *node) run() error {
	n.Helper()
	n.start()
	select {
	case err := <-n.ended:
		n.ended <- nil // for Cleanup
		return err
	case <-time.After(time.Hour):
		return errors.New("the agent still runs after an hour")
	}
}

// copyDir copies a directory.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// leases returns the reservations of the pool.
func (n *node) leases() []ipam.Lease {
	n.Helper()
	p, err := n.files.Open(context.Background(), "pods", true)
	if err != nil {
		n.Fatal(err)
	}
	defer p.Close()
	leases, err := p.Leases(context.Background())
	if err != nil {
		n.Fatal(err)
	}
	return leases
}

// attached returns the containers with a reservation.
func (n *node) attached() (all []string) {
	n.Helper()
	for _, l := range n.leases() {
		all = append(all, l.Owner.Container)
	}
	return all
}
