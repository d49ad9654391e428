package test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// fault is what happens to a request.
type fault struct {
	memkv.Fault
	kill bool // the agent, which starts again
}

// faults are the ways in which a request fails (scenario 4), or is the last one of the agent
// (scenario 3).
var faults = map[string]fault{
	"error":           {Fault: memkv.Fault{Error: errInjected}},
	"lost answer":     {Fault: memkv.Fault{Error: errInjected, Commit: memkv.Now}},
	"delayed commit":  {Fault: late},
	"slow":            {Fault: memkv.Fault{Delay: 4 * time.Second}},
	"slower than any": {Fault: memkv.Fault{Delay: time.Hour}},
	"killed before":   {Fault: memkv.Fault{Error: errInjected}, kill: true},
	"killed after":    {Fault: memkv.Fault{Error: errInjected, Commit: memkv.Now}, kill: true},
	"killed, delayed": {Fault: late, kill: true},
}

var (
	errInjected = errors.New("injected")
	late        = memkv.Fault{Error: errInjected, Commit: memkv.Later, After: 8 * time.Second}
)

// life lets the swept node make each transaction. The node joins, claims blocks, returns some, and
// gets a sticky address. It dies, is fenced and comes back in its next epoch. In the end it fences
// the other node. ADD may fail; life repeats the other steps.
func life(w *world, m, other *member) {
	add := func(from, to int) {
		for i := from; i < to; i++ {
			_, _ = m.Add(within(w.t, time.Minute), fmt.Sprintf("c%d", i))
		}
	}
	add(0, 30)
	all := m.Containers()
	for _, c := range all[:min(20, len(all))] {
		if err := m.Del(w.t.Context(), c); err != nil {
			w.t.Errorf("DEL: %v", err)
		}
	}
	for _, s := range []cluster.NodeState{cluster.NodeDraining, cluster.NodeActive} {
		w.until(func() error { return w.setState(m, s) })
		time.Sleep(time.Minute) // empty blocks go back
	}
	add(30, 60)
	for _, c := range []string{"s0", "s1"} {
		w.acquire(m, c, "web-0")
		if err := m.Del(w.t.Context(), c); err != nil {
			w.t.Errorf("DEL: %v", err)
		}
	}
	for _, dead := range []*member{m, other} {
		dead.powerOff()
		w.untilState(dead, cluster.NodeFenced, 1, 0)
		dead.on()
		w.untilState(dead, cluster.NodeActive, 2, 10)
		w.until(func() error { return dead.Ready(within(w.t, time.Minute)) })
	}
	add(60, 70)
}

// swept runs life in a bubble, with a fault at the n-th request of the node, and returns how many
// requests there were.
func swept(t *testing.T, number int, f fault) (calls int) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 1, pool: smallPool(), power: true})
		m := w.addNode("swept", w.memory.Client("swept"), nil)
		var restarts sync.WaitGroup
		m.link.Fault(func(c memkv.Call) memkv.Fault {
			if c.Number != number {
				return memkv.Fault{}
			}
			if f.kill {
				m.Die()
				restarts.Go(m.restart)
			}
			return f.Fault
		})
		m.on()
		w.until(func() error { return m.Ready(within(t, time.Minute)) })
		life(w, m, w.nodes[0])
		calls = m.link.Calls()
		m.link.Fault(func(memkv.Call) memkv.Fault { return memkv.Fault{} })
		restarts.Wait()
		w.finish()
	})
	return calls
}

// TestFaultAtEachRequest lets each request of a node fail, or kills the agent at it, in each way:
// nothing leaks, and no address has two holders (scenarios 3 and 4). Without -every, it takes every
// tenth request, from a random one on.
func TestFaultAtEachRequest(t *testing.T) {
	t.Parallel()
	calls := swept(t, 0, fault{})
	t.Logf("%d requests", calls)
	step := 10
	if *every {
		step = 1
	}
	first := 1 + rand.IntN(step)
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := first; n <= calls && !t.Failed(); n += step {
				swept(t, n, f)
				if t.Failed() {
					t.Logf("%s at request %d", name, n)
				}
			}
		})
	}
}
