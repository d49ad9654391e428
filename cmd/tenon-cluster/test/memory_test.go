package test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// TestChurn is the smallest world: nodes allocate and release, and nothing fails.
func TestChurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 5, pool: smallPool()})
		end := w.background(20)
		time.Sleep(10 * time.Second)
		if n := end(); n == 0 {
			t.Error("nothing was allocated")
		}
		w.finish()
	})
}

// held returns options with a pool that nodes may use for an hour after the last contact.
func held() options {
	o := options{nodes: 3, pool: smallPool()}
	o.pool.Hold = cluster.MinHold
	return o
}

func (w *world) add(m *member, from, to int) {
	w.t.Helper()
	for i := from; i < to; i++ {
		if _, err := m.Add(within(w.t, time.Minute), fmt.Sprintf("%s-%d", m.Name, i)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) node(m *member) registry.Node {
	w.t.Helper()
	n, err := w.reg.Nodes.Read(w.t.Context(), m.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// untilState waits until a node is in a state with a number of blocks at most.
func (w *world) untilState(m *member, s cluster.NodeState, epoch uint64, blocks int) {
	w.t.Helper()
	w.until(func() error {
		n, err := w.reg.Nodes.Read(w.t.Context(), m.Name)
		if err == nil && (n.State != s || n.Epoch != epoch || len(n.Blocks) > blocks) {
			err = fmt.Errorf("node %s is %s in epoch %d with %d blocks", m.Name, n.State, n.Epoch,
				len(n.Blocks))
		}
		return err
	})
}

// TestPartitionBeyondHold cuts a node off: it allocates from its own blocks until its hold ends,
// and then no more; only then do others get its blocks; when it returns, its containers have lost
// their addresses, and it starts its next epoch when they have ended (scenarios 8 and 9).
func TestPartitionBeyondHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, held())
		cut := w.nodes[0]
		w.add(cut, 0, 5)
		cut.cut()
		since := time.Now()
		time.Sleep(50 * time.Minute)
		w.add(cut, 5, 10) // from its own block
		if _, err := addMany(cut, 10, 40); err == nil {
			t.Error("a node without contact allocates more than its block")
		}
		var refused time.Duration
		w.until(func() error {
			_, err := cut.Add(within(t, time.Minute), "late")
			refused = time.Since(since)
			if errors.Is(err, local.ErrHold) {
				return nil
			}
			if err == nil {
				err = cut.Del(t.Context(), "late")
			}
			return errors.Join(errors.New("not refused yet"), err)
		})
		if refused > time.Hour+time.Minute {
			t.Errorf("the node allocates %v after the last contact", refused)
		}
		if n := w.node(cut); n.State == cluster.NodeFenced {
			t.Error("fenced before its hold was over")
		}
		// Its containers may use their addresses until hold ends: the kernel drops their traffic
		// then.
		w.untilState(cut, cluster.NodeFenced, 1, 0)
		const wait = time.Duration(cluster.MinHold)*11/10 + time.Minute
		if fenced := time.Since(since); fenced < refused || fenced < wait {
			t.Errorf("fenced after %v, and the node stopped after %v", fenced, refused)
		}
		w.seen.Died(cut.Name)
		w.fill(w.nodes[1:])
		cut.join()
		time.Sleep(10 * time.Minute)
		if n := w.node(cut); n.State != cluster.NodeFenced {
			t.Errorf("the node is %s while containers use addresses of lost blocks", n.State)
		}
		if _, err := cut.Add(within(t, time.Minute), "late"); err == nil {
			t.Error("a fenced node allocates")
		}
		for _, c := range cut.Containers() {
			if err := cut.Del(t.Context(), c); err != nil {
				t.Error(err)
			}
		}
		w.untilState(cut, cluster.NodeActive, 2, 0)
		w.finish()
	})
}

// addMany adds containers until an ADD fails, and returns how many it added.
func addMany(m *member, from, to int) (int, error) {
	for i := from; i < to; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := m.Add(ctx, fmt.Sprintf("%s-%d", m.Name, i))
		cancel()
		if err != nil {
			return i - from, err
		}
	}
	return to - from, nil
}

// TestPausedNode pauses a machine beyond hold, as a hypervisor does: all its clocks are late. The
// plugin notices when it reads them (scenario 10).
func TestPausedNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, held())
		paused := w.nodes[0]
		w.add(paused, 0, 5)
		paused.cut()
		paused.clock.Advance(61 * time.Minute) // it wakes up
		if _, err := paused.Add(t.Context(), "late"); !errors.Is(err, local.ErrHold) {
			t.Errorf("after a pause beyond hold: %v", err)
		}
		paused.join()
		w.until(func() error { return paused.Ready(within(t, time.Minute)) })
		w.finish()
	})
}

// TestClocks sets the wall clocks of nodes an hour forward and back, several times (scenario 7).
func TestClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, held())
		w.nodes[0].clock.Jump(time.Hour)
		w.nodes[1].clock.Jump(-time.Hour)
		end := w.background(20)
		for i := range 20 {
			time.Sleep(3 * time.Second)
			w.nodes[2].clock.Jump(time.Duration(2*(i%2)-1) * 2 * time.Hour)
		}
		end()
		for _, m := range w.nodes {
			if n := w.node(m); n.State != cluster.NodeActive || n.Epoch != 1 {
				t.Errorf("node %s is %s in epoch %d", m.Name, n.State, n.Epoch)
			}
		}
		// A wall clock that is set back must not extend hold.
		m := w.nodes[2]
		w.until(func() error { return m.Ready(within(t, time.Minute)) })
		m.cut()
		m.clock.Jump(-24 * time.Hour)
		time.Sleep(61 * time.Minute)
		if _, err := m.Add(within(t, time.Minute), "late"); !errors.Is(err, local.ErrHold) {
			t.Errorf("hold with a clock set back: %v", err)
		}
		m.join()
		w.finish()
	})
}

// TestRebootWithoutStore restarts a machine that cannot reach the store: ADD must wait until the
// blocks are confirmed (scenario 11).
func TestRebootWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 2, pool: smallPool()})
		m := w.nodes[0]
		w.add(m, 0, 5)
		m.cut()
		m.powerOff()
		m.on()
		_, err := m.Add(within(t, time.Minute), "early")
		if !errors.Is(err, local.ErrUnconfirmed) {
			t.Errorf("after a reboot without store: %v", err)
		}
		m.join()
		w.until(func() error { return m.Ready(within(t, time.Minute)) })
		w.add(m, 5, 10)
		w.finish()
	})
}

// TestSecondMachine starts a machine under the name of another one (scenario 12).
func TestSecondMachine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 2, pool: smallPool()})
		w.add(w.nodes[0], 0, 5)
		second := sim.New(sim.Options{Name: w.nodes[0].Name, Client: w.memory.Client("second"),
			Dir: filepath.Join(ram(t), "second"), Pool: w.o.pool.Name})
		second.Boot()
		select {
		case <-second.Ended():
			if err := second.Err(); !errors.Is(err, registry.ErrIdentity) {
				t.Errorf("a second machine with the name: %v", err)
			}
		case <-time.After(10 * time.Minute):
			t.Error("a second machine with the name joins")
			second.Stop()
		}
		w.add(w.nodes[0], 5, 10)
		w.finish()
	})
}

// TestRecreatedNode installs a node again under its name while its blocks cool (scenario 13): it
// gets another identity, and none of the old blocks.
func TestRecreatedNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options{nodes: 3, pool: smallPool(), power: true}
		o.pool.Cooldown = cluster.Duration(5 * time.Minute)
		w := inMemory(t, o)
		old := w.nodes[0]
		w.add(old, 0, 5)
		blocks, err := old.Blocks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old.powerOff()
		w.untilState(old, cluster.NodeFenced, 1, 0)
		w.nodes = w.nodes[1:]
		if err := w.reg.Nodes.Delete(t.Context(), old.Name); err != nil {
			t.Fatal(err)
		}
		again := w.addNode(old.Name, w.memory.Client("again"), nil)
		again.on()
		w.until(func() error { return again.Ready(within(t, time.Minute)) })
		w.add(again, 0, 5)
		fresh, err := again.Blocks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if contains(fresh, b.Block.Addr()) {
				t.Errorf("the new node has block %s, which cools down", b.Block)
			}
		}
		w.finish()
	})
}

// TestCompactedWatch compacts the store while a node cannot reach it and another one disappears
// from it: after the gap the node's view must not show it (scenario 15).
func TestCompactedWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options{nodes: 4, pool: smallPool(), power: true}
		w := inMemory(t, o)
		away, gone := w.nodes[0], w.nodes[1]
		w.add(gone, 0, 5)
		client := w.memory.Client("watcher")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		views, ended := make(chan registry.View, 1000), make(chan struct{})
		go func() {
			defer close(ended)
			reg := sim.Registry(client, time.Second)
			reg.Watch(ctx, time.Hour, func(v registry.View, err error) {
				if err == nil {
					views <- v
				}
			})
		}()
		synctest.Wait()
		client.Partition(true)
		away.cut()
		gone.powerOff()
		w.untilState(gone, cluster.NodeFenced, 1, 0)
		w.nodes = append(w.nodes[:1:1], w.nodes[2:]...)
		if err := w.reg.Nodes.Delete(t.Context(), gone.Name); err != nil {
			t.Fatal(err)
		}
		if err := w.memory.Compact(w.memory.Revision()); err != nil {
			t.Fatal(err)
		}
		client.Partition(false)
		w.memory.BreakWatches()
		away.join()
		time.Sleep(time.Minute)
		var last registry.View
		for len(views) > 0 {
			last = <-views
		}
		var names []string
		for _, n := range last.Nodes {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); got != "n0 n2 n3" {
			t.Errorf("the view shows %s", got)
		}
		stop()
		<-ended
		w.finish()
	})
}

// TestSilentNode cuts a node off for hours without hold and without evidence: it keeps its blocks
// and allocates from them, because a lost lease alone proves nothing (scenario 6).
func TestSilentNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 3, pool: smallPool()})
		m := w.nodes[0]
		w.add(m, 0, 5)
		m.cut()
		time.Sleep(2 * time.Hour)
		n := w.node(m)
		if n.State != cluster.NodeSuspect || len(n.Blocks) == 0 {
			t.Errorf("a node without contact is %s with %d blocks", n.State, len(n.Blocks))
		}
		w.add(m, 5, 10) // hold is off
		m.join()
		w.untilState(m, cluster.NodeActive, 1, 2)
		w.finish()
	})
}
