// Package load simulates a large cluster and measures what it costs; see command scale.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/history"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// run runs a simulation and prints the table.
func run(t *testing.T, s settings) {
	if s.lost == 0 {
		s.lost = s.nodes / 10
	}
	p := new(progress)
	defer p.print(os.Stderr)()
	var table *report
	if s.etcd {
		table = onEtcd(t, s, p)
	} else {
		synctest.Test(t, func(t *testing.T) { table = inMemory(t, s, p) })
	}
	if table != nil {
		table.print(os.Stdout)
	}
}

// report is the result of a run.
type report struct{ rows [][2]string }

func (r *report) add(what, format string, args ...any) {
	r.rows = append(r.rows, [2]string{what, fmt.Sprintf(format, args...)})
}

// count returns a number of a phase.
func (r *report) count(t *testing.T, phase, what string) (n int) {
	t.Helper()
	at := slices.IndexFunc(r.rows, func(row [2]string) bool { return row[0] == phase })
	for _, row := range r.rows[max(at, 0):] {
		if row[0] == "  "+what {
			_, err := fmt.Sscan(row[1], &n)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in %s", what, phase)
	return 0
}

func (r *report) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range r.rows {
		fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
	}
	t.Flush()
}

// world is a running simulation.
type world struct {
	s     settings
	t     *testing.T
	n     counters
	p     *progress
	seen  *history.Addresses
	nodes []*sim.Node
	reg   *registry.Registry
	dir   string

	mu  sync.Mutex
	off map[string]bool
}

func newWorld(t *testing.T, s settings, p *progress, operator registry.Client) *world {
	t.Helper()
	go p.follow(t.Context())
	dir, err := os.MkdirTemp(s.dir, "tenon-scale-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{s: s, t: t, p: p, seen: history.NewAddresses(), reg: sim.Registry(operator, 0),
		dir: dir, off: map[string]bool{}}
	if _, err := w.reg.Meta.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := cluster.Pool{Name: sim.Network, Range: netip.MustParsePrefix(s.pool),
		Cooldown: cluster.Duration(s.cooldown)}
	if _, err := w.reg.Pools.Put(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return w
}

// add adds a node that is off.
func (w *world) add(i int, c registry.Client, blind bool) {
	name := fmt.Sprintf("node-%04d", i)
	c = &client{Client: c, keys: cluster.NewKeys(sim.Cluster), n: &w.n, blind: blind}
	w.nodes = append(w.nodes, sim.New(sim.Options{Name: name, Client: c, Seen: w.seen,
		Dir: filepath.Join(w.dir, name), Evidence: w.evidence}))
}

func (w *world) evidence(_ context.Context, node string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off[node] {
		return "off", nil
	}
	return "", errors.New("on")
}

// each runs a function for all nodes at once and fails the test with its errors.
func (w *world) each(nodes []*sim.Node, do func(n *sim.Node) error) {
	w.t.Helper()
	var running sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, n := range nodes {
		running.Go(func() { errs[i] = do(n) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

// coldStart boots all nodes and starts all pods.
func (w *world) coldStart() {
	w.each(w.nodes, func(n *sim.Node) error {
		pause(rand.N(w.s.spread))
		n.Boot()
		if err := n.Ready(w.t.Context()); err != nil {
			return err
		}
		for i := range w.s.pods {
			if err := w.addPod(n, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// addPod adds a pod as a kubelet does, which tries again.
func (w *world) addPod(n *sim.Node, i int) (err error) {
	for range 20 {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		_, err = n.Add(ctx, fmt.Sprintf("pod-%d", i))
		cancel()
		if err == nil {
			w.p.allocations.Add(1)
			return nil
		}
		pause(time.Second)
	}
	return fmt.Errorf("%s: %w", n.Name, err)
}

// churn replaces one pod per node and minute.
func (w *world) churn() {
	minutes := int(w.s.churn / time.Minute)
	w.each(w.nodes, func(n *sim.Node) error {
		for i := range minutes {
			before := rand.N(time.Minute)
			pause(before)
			if err := n.Del(w.t.Context(), fmt.Sprintf("pod-%d", i)); err != nil {
				return err
			}
			if err := w.addPod(n, w.s.pods+i); err != nil {
				return err
			}
			pause(time.Minute - before)
		}
		return nil
	})
}

// lose switches nodes off and waits until all of their blocks are free to be claimed by others.
func (w *world) lose() (fenced, free time.Duration) {
	start := time.Now()
	lost := w.nodes[len(w.nodes)-w.s.lost:]
	w.each(lost, func(n *sim.Node) error {
		n.Off()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.off[n.Name] = true
		return nil
	})
	for ; ; pause(5 * time.Second) {
		snapshot, err := w.reg.Snapshot(w.t.Context())
		if err != nil || reclaimed(snapshot) < len(lost) {
			continue
		}
		if fenced == 0 {
			fenced = time.Since(start)
		}
		if !slices.ContainsFunc(snapshot.Blocks, func(b registry.Block) bool { return b.Cool }) {
			return fenced, time.Since(start)
		}
	}
}

// reclaimed returns the number of fenced nodes without blocks.
func reclaimed(s registry.Snapshot) (n int) {
	for _, node := range s.Nodes {
		if node.State == cluster.NodeFenced && len(node.Blocks) == 0 {
			n++
		}
	}
	return n
}

// patrol looks for dead nodes and asks for evidence as the agents do together: one of them in each
// lease time, on average. Blind agents do not, and the turns of the others come too rarely.
func (w *world) patrol(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-time.After(rand.N(time.Minute)):
		case <-ctx.Done():
			return
		}
		live, err := w.reg.Nodes.Lives(ctx)
		if err != nil {
			continue
		}
		snapshot, err := w.reg.Snapshot(ctx)
		if err != nil {
			continue
		}
		for _, n := range snapshot.Nodes {
			if n.State == cluster.NodeActive && !live[n.Name] {
				_, _ = w.reg.Nodes.Suspect(ctx, n)
			}
			if n.State != cluster.NodeSuspect {
				continue
			}
			if evidence, err := w.evidence(ctx, n.Name); err == nil {
				_, _ = w.reg.Nodes.Fence(ctx, n, evidence, "patrol")
			}
		}
		_, _ = w.reg.Blocks.Expire(ctx, sim.Network, 40)
	}
}

// phase measures what a phase costs.
func (w *world) phase(r *report, name string, revision func() int64, do func()) {
	w.p.begin(name)
	before := [...]int64{w.n.transactions.Load(), w.n.reads.Load(), w.n.leases.Load(),
		w.n.messages.Load(), w.n.events.Load(), revision()}
	start := time.Now()
	do()
	took := time.Since(start).Seconds()
	after := [...]int64{w.n.transactions.Load(), w.n.reads.Load(), w.n.leases.Load(),
		w.n.messages.Load(), w.n.events.Load(), revision()}
	r.add(name, "%.1f s", took)
	fmt.Fprintln(os.Stderr, name, "is done")
	for i, what := range []string{"write transactions", "reads", "lease requests",
		"watch responses", "watch events", "revisions"} {
		n := after[i] - before[i]
		r.add("  "+what, "%d (%.1f/s)", n, float64(n)/took)
	}
}

// check adds the findings of all checkers.
func (w *world) check(r *report) {
	w.p.begin("checks")
	wrong := w.seen.Check()
	r.add("addresses with two holders", "%d of %d allocations", len(wrong), w.seen.Len())
	for _, text := range wrong[:min(len(wrong), 10)] {
		w.t.Error(text)
	}
	s, err := w.reg.Snapshot(w.t.Context())
	if err != nil {
		w.t.Error(err)
	}
	found := s.Check()
	r.add("violated invariants in the store", "%d", len(found))
	for _, f := range found[:min(len(found), 10)] {
		w.t.Errorf("invariant %d: %s", f.Invariant, f.Text)
	}
	r.add("blocks, nodes in the store", "%d, %d", len(s.Blocks), len(s.Nodes))
	r.add("bytes of keys and values", "%.1f MB", float64(s.Size)/1e6)
}

func (w *world) simulate(r *report, revision func() int64) {
	r.add("nodes, pods", "%d, %d", len(w.nodes), len(w.nodes)*w.s.pods)
	w.phase(r, "cold start", revision, w.coldStart)
	w.check(r)
	w.phase(r, "churn", revision, w.churn)
	var fenced, free time.Duration
	w.phase(r, fmt.Sprintf("loss of %d nodes", w.s.lost), revision,
		func() { fenced, free = w.lose() })
	r.add("  until all blocks were reclaimed", "%.0f s", fenced.Seconds())
	r.add("  until all blocks were free", "%.0f s", free.Seconds())
	w.check(r)
	w.each(w.nodes[:len(w.nodes)-w.s.lost], func(n *sim.Node) error {
		n.Stop()
		return nil
	})
}

// inMemory simulates a cluster in virtual time. The caller is in a bubble.
func inMemory(t *testing.T, s settings, p *progress) *report {
	store := memkv.New()
	w := newWorld(t, s, p, store.Client("operator"))
	for i := range s.nodes {
		c := store.Client(fmt.Sprint(i))
		c.Fault(func(memkv.Call) memkv.Fault { // the round trip that was measured
			return memkv.Fault{Delay: 2 * time.Millisecond}
		})
		w.add(i, c, i >= s.seers)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s.seers < s.nodes {
			w.patrol(ctx)
		}
	}()
	r := new(report)
	w.simulate(r, store.Revision)
	stop()
	<-ended
	_, all := store.Size()
	r.add("bytes with history, without compaction", "%.1f MB", float64(all)/1e6)
	return r
}

// onEtcd runs a cluster on three members of etcd.
func onEtcd(t *testing.T, s settings, p *progress) *report {
	c := lab.Start(t, lab.Options{})
	operator := c.Client(nil)
	w := newWorld(t, s, p, operator)
	for i := range s.nodes {
		w.add(i, c.Client(nil), false)
	}
	r := new(report)
	w.simulate(r, func() int64 { return revision(t, operator) })
	status, err := operator.Status(t.Context(), c.Members[0].Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	r.add("database of a member, in use", "%.1f MB, %.1f MB", float64(status.DbSize)/1e6,
		float64(status.DbSizeInUse)/1e6)
	return r
}

func revision(t *testing.T, c *clientv3.Client) int64 {
	r, err := c.Get(t.Context(), "x", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// pause waits for a time that the simulated load takes.
func pause(d time.Duration) { <-time.After(d) }
