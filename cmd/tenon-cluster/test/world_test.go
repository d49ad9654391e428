package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/history"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// world is a cluster of simulated nodes on a store, with the histories that they leave.
type world struct {
	t     testing.TB
	store *history.Store
	seen  *history.Addresses
	reg   *registry.Registry // of an operator without faults
	nodes []*member
	o     options

	etcd   *lab.Cluster // of a world on etcd
	memory *memkv.Store // of a world in memory
}

// member is a node with what a test can do to it.
type member struct {
	*sim.Node
	clock *sim.Clock
	off   atomic.Bool
	power chan struct{} // guards the start and the end of processes
	port  *lab.Port
	link  *memkv.Client
}

func (m *member) cut() {
	if m.port != nil {
		m.port.Cut()
	} else {
		m.link.Partition(true)
	}
}

func (m *member) join() {
	if m.port != nil {
		m.port.Join()
	} else {
		m.link.Partition(false)
	}
}

// options are options of a world.
type options struct {
	nodes   int
	pool    cluster.Pool
	ttl     time.Duration // of leases
	timeout time.Duration // of requests
	// power lets the agents fence nodes that are off, as with a power controller.
	power bool
}

// smallPool has 64 blocks with 13 addresses each.
func smallPool() cluster.Pool {
	return cluster.Pool{Name: sim.Network, Range: netip.MustParsePrefix("10.64.0.0/22"),
		BlockBits: 28, Cooldown: cluster.Duration(time.Second)}
}

// onEtcd returns a world on three members.
func onEtcd(t testing.TB, s lab.Server, o options) *world {
	t.Helper()
	etcd := lab.Start(t, lab.Options{Server: s})
	w := &world{t: t, o: o, etcd: etcd}
	w.begin(etcd.Client(nil))
	for i := range o.nodes {
		port := etcd.Node()
		w.addNode(fmt.Sprintf("n%d", i), etcd.Client(port), port)
	}
	w.boot()
	return w
}

// inMemory returns a world without etcd, for a bubble of testing/synctest.
func inMemory(t testing.TB, o options) *world {
	t.Helper()
	w := &world{t: t, o: o, memory: memkv.New()}
	w.begin(w.memory.Client("operator"))
	for i := range o.nodes {
		name := fmt.Sprintf("n%d", i)
		w.addNode(name, w.memory.Client(name), nil)
	}
	w.boot()
	return w
}

func (w *world) begin(operator registry.Client) {
	w.t.Helper()
	w.store, w.seen = history.NewStore(sim.Cluster), history.NewAddresses()
	w.reg = sim.Registry(w.store.Client(operator), w.o.timeout)
	if _, err := w.reg.Meta.Init(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.reg.Pools.Put(w.t.Context(), w.o.pool); err != nil {
		w.t.Fatal(err)
	}
}

// addNode adds a node that is off.
func (w *world) addNode(name string, c registry.Client, port *lab.Port) *member {
	w.t.Helper()
	m := &member{clock: sim.NewClock(), port: port, power: make(chan struct{}, 1)}
	m.link, _ = c.(*memkv.Client)
	o := sim.Options{Name: name, Client: w.store.Client(c), Dir: filepath.Join(ram(w.t), name),
		Seen: w.seen, TTL: w.o.ttl, Timeout: w.o.timeout, Clock: m.clock, Log: w.log(name)}
	if w.o.power {
		o.Evidence = w.evidence
	}
	m.Node = sim.New(o)
	m.off.Store(true)
	w.nodes = append(w.nodes, m)
	w.t.Cleanup(func() {
		if !m.off.Load() {
			m.Stop()
		}
	})
	return m
}

// log logs into the test if it runs with -v.
func (w *world) log(node string) *slog.Logger {
	if !testing.Verbose() {
		return nil
	}
	o := &slog.HandlerOptions{Level: slog.LevelDebug}
	return slog.New(slog.NewTextHandler(w.t.Output(), o)).With("on", node)
}

// evidence is the hook of the agents: a power controller that knows which nodes are off.
func (w *world) evidence(_ context.Context, node string) (string, error) {
	for _, m := range w.nodes {
		if m.Name == node && m.off.Load() {
			return "off", nil
		}
	}
	return "", errors.New("it is on")
}

// boot switches on all nodes that are off and waits until they are ready.
func (w *world) boot() {
	w.t.Helper()
	var wait sync.WaitGroup
	errs := make([]error, len(w.nodes))
	for i, m := range w.nodes {
		if !m.off.Load() {
			continue
		}
		m.on()
		wait.Go(func() { errs[i] = m.Ready(within(w.t, testnet.Patience)) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

func (m *member) on() {
	m.power <- struct{}{}
	defer func() { <-m.power }()
	m.off.Store(false)
	m.Boot()
}

func (m *member) powerOff() {
	m.power <- struct{}{}
	defer func() { <-m.power }()
	m.Off()
	m.off.Store(true)
}

// restart kills the agent and starts it again, unless the node is off.
func (m *member) restart() {
	m.power <- struct{}{}
	defer func() { <-m.power }()
	if !m.off.Load() {
		m.Kill()
		m.Start()
	}
}

// churn adds and deletes containers on a node until stop is closed, at most limit at a time. ADD
// may fail, because the store may be away; DEL must not.
func (w *world) churn(m *member, limit int, stop <-chan struct{}) (added int) {
	var mine []string
	for i := 0; ; i++ {
		select {
		case <-stop:
			return added
		case <-time.After(rand.N(20 * time.Millisecond)):
		}
		if len(mine) > 0 && (len(mine) == limit || rand.N(2) == 0) {
			at := rand.N(len(mine))
			if err := m.Del(context.Background(), mine[at]); err != nil {
				w.t.Errorf("DEL: %v", err)
			}
			mine = slices.Delete(mine, at, at+1)
			continue
		}
		name := fmt.Sprintf("%s-%d", m.Name, i)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := m.Add(ctx, name)
		cancel()
		if err == nil {
			mine, added = append(mine, name), added+1
		}
	}
}

// finish ends all containers, and checks everything: histories, the store, leftovers.
func (w *world) finish() {
	w.t.Helper()
	if w.etcd != nil {
		w.etcd.Heal()
	}
	for _, m := range w.nodes {
		m.join()
	}
	w.boot()
	w.agree()
	for _, m := range w.nodes {
		for _, c := range m.Containers() {
			if err := m.Del(w.t.Context(), c); err != nil {
				w.t.Errorf("DEL: %v", err)
			}
		}
	}
	w.check()
	w.until(func() error {
		s, err := w.reg.Snapshot(w.t.Context())
		if err == nil && len(s.Holders) > 0 {
			err = fmt.Errorf("left over: %+v", s.Holders)
		}
		return err
	})
	for _, m := range w.nodes {
		w.until(func() error {
			left, err := m.Leftovers(w.t.Context())
			if err == nil && len(left) > 0 {
				err = errors.New(strings.Join(left, "\n"))
			}
			return err
		})
	}
}

// check checks the histories and the store.
func (w *world) check() {
	w.t.Helper()
	for _, wrong := range w.store.Check() {
		w.t.Errorf("not linearizable: %s", wrong)
	}
	w.checkState()
	ops, keys := w.store.Operations()
	w.t.Logf("%d allocations, %d operations on %d blocks and addresses", w.seen.Len(), ops, keys)
}

// checkState is check without the history of the store, which an old snapshot breaks.
func (w *world) checkState() {
	w.t.Helper()
	w.checkHolders()
	var found []registry.Finding
	w.until(func() error {
		s, err := w.reg.Snapshot(w.t.Context())
		found = s.Check()
		return err
	})
	for _, f := range found {
		w.t.Errorf("invariant %d: %s", f.Invariant, f.Text)
	}
	w.agree()
}

// checkHolders checks that no address has had two holders at once.
func (w *world) checkHolders() {
	w.t.Helper()
	for _, wrong := range w.seen.Check() {
		w.t.Errorf("two holders: %s", wrong)
	}
}

// agree waits until the store gives each node the blocks in its files, with the same nonce and
// epoch, and each reserved address lies in one of them or has this node as its holder in the store.
func (w *world) agree() {
	w.t.Helper()
	w.until(func() error {
		s, err := w.reg.Snapshot(w.t.Context())
		if err != nil {
			return err
		}
		owned := map[netip.Prefix]registry.Block{}
		for _, b := range s.Blocks {
			owned[b.Block.Block] = b
		}
		for _, m := range w.nodes {
			if m.off.Load() {
				continue
			}
			blocks, err := m.Blocks(w.t.Context())
			if err != nil {
				return err
			}
			for _, b := range blocks {
				o := owned[b.Block]
				if o.Owner != m.Name || o.Nonce != b.Nonce || o.Generation != b.Generation ||
					o.Epoch != b.Epoch {
					return fmt.Errorf("node %s has %+v, the store %+v", m.Name, b, o)
				}
			}
			leases, err := m.Leases(w.t.Context())
			if err != nil {
				return err
			}
			for _, l := range leases {
				if !contains(blocks, l.Addr) && !holds(s.Holders, m.Name, l.Addr) {
					return fmt.Errorf("node %s has %s without a block", m.Name, l)
				}
			}
		}
		return nil
	})
}

func contains(blocks []local.Block, a netip.Addr) bool {
	return slices.ContainsFunc(blocks, func(b local.Block) bool { return b.Block.Contains(a) })
}

func holds(holders []cluster.Holder, node string, a netip.Addr) bool {
	return slices.ContainsFunc(holders, func(h cluster.Holder) bool {
		return h.Node == node && h.Addr == a
	})
}

// background runs churn on all nodes until the returned function is called, which returns the
// number of allocations.
func (w *world) background(limit int) (end func() int) {
	stop := make(chan struct{})
	var wait sync.WaitGroup
	var added atomic.Int64
	for _, m := range w.nodes {
		wait.Go(func() { added.Add(int64(w.churn(m, limit, stop))) })
	}
	return func() int {
		close(stop)
		wait.Wait()
		return int(added.Load())
	}
}

// until calls try until it returns nil, and fails the test with its last error in the end. Virtual
// time costs nothing, so a world in memory waits longer.
func (w *world) until(try func() error) {
	w.t.Helper()
	patience, pause := testnet.Patience, 20*time.Millisecond
	if w.memory != nil {
		patience, pause = 6*time.Hour, time.Second
	}
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal(err)
		}
	}
}
