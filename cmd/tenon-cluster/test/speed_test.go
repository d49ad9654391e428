package test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// wide are the options of the world in which speed is measured: the default blocks, and no faults.
func wide(nodes int) options {
	return options{nodes: nodes, pool: cluster.Pool{Name: "pods", Range: defaultRange}}
}

// thousand makes 1,000 allocations at once: 100 on each of ten nodes, which own no block.
func (w *world) thousand(round int) time.Duration {
	w.t.Helper()
	start := time.Now()
	var running sync.WaitGroup
	for _, m := range w.nodes {
		for i := range 100 {
			running.Go(func() {
				name := fmt.Sprintf("%s-%d-%d", m.Name, round, i)
				if _, err := m.Add(within(w.t, time.Minute), name); err != nil {
					w.t.Errorf("ADD: %v", err)
				}
			})
		}
	}
	running.Wait()
	return time.Since(start)
}

// TestThousandAllocations makes 1,000 allocations over ten nodes on three members (scenario 1). The
// limit of 2 s is for a host without other load: BenchmarkThousandAllocations measures it.
func TestThousandAllocations(t *testing.T) {
	t.Parallel()
	w := onEtcd(t, lab.Debian, wide(10))
	t.Logf("1,000 allocations took %v", w.thousand(0).Round(time.Millisecond))
	if n := len(w.seen.Live()); n != 1000 {
		t.Errorf("%d attachments have addresses", n)
	}
	w.finish()
}

// BenchmarkThousandAllocations measures 1,000 allocations over ten nodes that own no block, at most
// 2 s.
func BenchmarkThousandAllocations(b *testing.B) {
	for range b.N {
		b.StopTimer()
		w := onEtcd(b, lab.Debian, wide(10))
		b.StartTimer()
		took := w.thousand(0)
		b.StopTimer()
		b.ReportMetric(took.Seconds(), "s/1000")
		if took > 2*time.Second {
			b.Errorf("1,000 allocations took %v", took)
		}
		w.check()
	}
}

// TestNoRequestPerAllocation checks that an allocation from the node's own blocks sends nothing to
// etcd (scenario 2).
func TestNoRequestPerAllocation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, wide(1))
		m := w.nodes[0]
		w.add(m, 0, 1)
		time.Sleep(11 * time.Second) // just after a renewal
		before := m.link.Calls()
		w.add(m, 1, 40)
		if n := m.link.Calls() - before; n != 0 {
			t.Errorf("39 allocations made %d requests", n)
		}
		w.finish()
	})
}
