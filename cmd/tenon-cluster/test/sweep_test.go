package test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// faults are the ways in which a request fails (scenario 4).
var faults = map[string]memkv.Fault{
	"error":           {Error: errInjected},
	"lost answer":     {Error: errInjected, Commit: memkv.Now},
	"delayed commit":  {Error: errInjected, Commit: memkv.Later, After: 8 * time.Second},
	"slow":            {Delay: 4 * time.Second},
	"slower than any": {Delay: time.Hour},
}

var errInjected = errors.New("injected")

// life is what the swept node does: it joins, claims blocks, returns some, dies, is fenced, and
// comes back in its next epoch. ADD may fail; the other steps are repeated.
func life(w *world, m *member) {
	add := func(from, to int) {
		for i := from; i < to; i++ {
			_, _ = m.Add(within(w.t, time.Minute), fmt.Sprintf("c%d", i))
		}
	}
	add(0, 30)
	for _, c := range m.Containers()[:20] {
		if err := m.Del(w.t.Context(), c); err != nil {
			w.t.Errorf("DEL: %v", err)
		}
	}
	for _, s := range []cluster.NodeState{cluster.NodeDraining, cluster.NodeActive} {
		w.until(func() error { return w.setState(m, s) })
		time.Sleep(time.Minute) // empty blocks go back
	}
	add(30, 60)
	m.powerOff()
	w.until(func() error {
		n, err := w.reg.Node(w.t.Context(), m.Name)
		if err == nil && (n.State != cluster.NodeFenced || len(n.Blocks) > 0) {
			err = fmt.Errorf("node is %s with %d blocks", n.State, len(n.Blocks))
		}
		return err
	})
	m.on()
	w.until(func() error { return m.Ready(within(w.t, time.Minute)) })
	add(60, 70)
}

// swept runs life in a bubble, with a fault at the n-th request of the node, and returns how many
// requests there were.
func swept(t *testing.T, number int, f memkv.Fault) (calls int) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 2, pool: smallPool(), power: true})
		m := w.addNode("swept", w.memory.Client("swept"), nil)
		m.link.Fault(func(c memkv.Call) memkv.Fault {
			if c.Number == number {
				return f
			}
			return memkv.Fault{}
		})
		m.on()
		w.until(func() error { return m.Ready(within(t, time.Minute)) })
		life(w, m)
		calls = m.link.Calls()
		w.finish()
	})
	return calls
}

// TestFaultAtEachRequest lets each request of a node fail, in each way: nothing leaks, and no
// address has two holders (scenarios 3 and 4).
func TestFaultAtEachRequest(t *testing.T) {
	t.Parallel()
	calls := swept(t, 0, memkv.Fault{})
	t.Logf("%d requests", calls)
	step := 1
	if testing.Short() {
		step = 7
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= calls && !t.Failed(); n += step {
				swept(t, n, f)
				if t.Failed() {
					t.Logf("%s at request %d", name, n)
				}
			}
		})
	}
}
