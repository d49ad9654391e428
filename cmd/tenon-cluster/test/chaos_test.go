package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// defaultRange is the range of a cluster with 16,384 blocks.
var defaultRange = netip.MustParsePrefix("10.64.0.0/12")

// smallerRange has 16 blocks.
var smallerRange = netip.MustParsePrefix("10.64.0.0/24")

// quick are the options of worlds on etcd: short leases, so that faults take effect soon.
func quick(nodes int) options {
	return options{nodes: nodes, pool: smallPool(), ttl: 3 * time.Second, timeout: 3 * time.Second,
		power: true}
}

// TestChaos runs ten nodes that allocate and release while members and nodes are killed, paused and
// cut off (scenarios 3, 5, 6, 9).
func TestChaos(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		o := quick(10)
		o.pool.BlockBits = 29 // 128 blocks with 5 addresses each
		w := onEtcd(t, s, o)
		end, undrain := w.background(20), w.drains()
		faults := []struct {
			name string
			do   func()
		}{
			{"kill the leader", func() { w.etcd.WaitLeader().Kill() }},
			{"pause the leader beyond leases", func() {
				leader := w.etcd.WaitLeader()
				leader.Pause()
				wait(2 * w.o.ttl)
				leader.Resume()
			}},
			{"cut the leader off", func() { w.etcd.WaitLeader().Cut() }},
			{"pause two of three members", func() {
				for _, m := range w.etcd.Members[:2] {
					m.Pause()
				}
				wait(2 * w.o.timeout)
			}},
			{"kill all members", func() {
				for _, m := range w.etcd.Members {
					m.Kill()
				}
				wait(time.Second)
			}},
			{"cut nodes off", func() {
				for _, m := range w.nodes[:4] {
					m.cut()
				}
				wait(2 * w.o.ttl)
				for _, m := range w.nodes[:4] {
					m.join()
				}
			}},
			{"restart agents", func() {
				for _, m := range w.nodes[4:7] {
					m.restart()
				}
				w.nodes[7].Stop()
				w.nodes[7].Start()
			}},
			{"compact", func() { w.etcd.Compact() }},
		}
		rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, f := range faults {
			t.Log(f.name)
			before := w.seen.Len()
			f.do()
			w.etcd.Heal()
			testnet.Eventually(t, func() error { // nodes go on
				if w.seen.Len() < before+10 {
					return errors.New("no allocations after the fault: " + f.name)
				}
				return nil
			})
		}
		end()
		undrain()
		w.finish()
	})
}

// wait waits for a duration that a fault takes.
func wait(d time.Duration) { time.Sleep(d) }

// drains drains two nodes after two others until the returned function is called, so that blocks go
// back to the store and are claimed again all the time.
func (w *world) drains() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			some := []*member{w.nodes[i%len(w.nodes)], w.nodes[(i+4)%len(w.nodes)]}
			for _, m := range some {
				_ = w.setState(m, cluster.NodeDraining) // the store may be away
			}
			select {
			case <-stop:
				return
			case <-time.After(w.o.ttl / 2):
			}
			for _, m := range some {
				_ = w.setState(m, cluster.NodeActive)
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		for _, m := range w.nodes {
			w.until(func() error { return w.setState(m, cluster.NodeActive) })
		}
	}
}

// setState drains a node, or ends that. It leaves a suspect node alone.
func (w *world) setState(m *member, s cluster.NodeState) error {
	n, err := w.reg.Nodes.Read(w.t.Context(), m.Name)
	known := n.State == cluster.NodeActive || n.State == cluster.NodeDraining
	if err != nil || n.State == s || !known {
		return err
	}
	_, err = w.reg.Nodes.Update(w.t.Context(), n, func(n *cluster.Node) { n.State = s })
	return err
}

// TestDeadNodes switches nodes off while others allocate, waits until their blocks are reclaimed
// and used by others, and switches them on again (scenarios 9 and 13).
func TestDeadNodes(t *testing.T) {
	t.Parallel()
	o := quick(6)
	w := onEtcd(t, lab.Debian, o)
	for _, m := range w.nodes {
		for i := range 20 {
			if _, err := m.Add(t.Context(), fmt.Sprintf("%s-%d", m.Name, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	dead := w.nodes[:2]
	for _, m := range dead {
		m.powerOff()
	}
	for _, m := range dead {
		w.untilState(m, cluster.NodeFenced, 1, 0)
	}
	w.check()
	w.fill(w.nodes[2:]) // the blocks of the dead nodes, too
	for _, m := range dead {
		m.on()
	}
	for _, m := range dead { // they are back in their next epoch
		w.untilState(m, cluster.NodeActive, 2, 0)
		if _, err := m.Add(t.Context(), "late"); err == nil {
			t.Errorf("%s allocates although the pool is full", m.Name)
		}
	}
	w.finish()
}

// fill allocates on nodes until every address of the pool is in use.
func (w *world) fill(nodes []*member) {
	w.t.Helper()
	total := int(w.o.pool.Blocks()) * 13
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, m := range nodes {
		running.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%s-fill-%d", m.Name, i)
				err := testnet.Try(func() error {
					if len(w.seen.Live()) >= total {
						return nil
					}
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					defer cancel()
					_, err := m.Add(ctx, name)
					return err
				})
				mu.Lock()
				if err != nil {
					w.t.Errorf("fill %s: %v", m.Name, err)
				}
				done := err != nil || len(w.seen.Live()) >= total
				mu.Unlock()
				if done {
					return
				}
			}
		})
	}
	running.Wait()
}

// TestEveryAddress fills the pool to its last address and empties it, ten rounds (scenario 17).
func TestEveryAddress(t *testing.T) {
	t.Parallel()
	o := quick(8)
	o.pool.Range = smallerRange
	w := onEtcd(t, lab.Debian, o)
	for round := range 10 {
		w.fill(w.nodes)
		if n, total := len(w.seen.Live()), int(o.pool.Blocks())*13; n != total {
			t.Fatalf("round %d: %d of %d addresses are in use", round, n, total)
		}
		for _, m := range w.nodes {
			for _, c := range m.Containers() {
				if err := m.Del(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w.finish()
}
