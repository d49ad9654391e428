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

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
)

// TestStickyAddresses moves pods with sticky addresses between nodes while requests fail in every
// way: a name keeps its address, and has one holder.
func TestStickyAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 4, pool: smallPool(), power: true})
		var all []memkv.Fault
		for _, f := range faults {
			if !f.kill {
				all = append(all, f.Fault)
			}
		}
		for _, m := range w.nodes {
			m.link.Fault(func(memkv.Call) memkv.Fault {
				if rand.N(20) == 0 {
					return all[rand.N(len(all))]
				}
				return memkv.Fault{}
			})
		}
		var running sync.WaitGroup
		for pod := range 6 {
			running.Go(func() { w.move(fmt.Sprintf("pod-%d", pod), 30) })
		}
		running.Wait()
		for _, m := range w.nodes {
			m.link.Fault(nil)
		}
		w.finish()
	})
}

// move starts a pod on a node, ends it, starts it on another one, and so on.
func (w *world) move(pod string, times int) {
	var first netip.Addr
	for i := range times {
		m := w.nodes[rand.N(len(w.nodes))]
		c := fmt.Sprintf("%s-%d", pod, i)
		a := w.acquire(m, c, pod)
		if first.IsValid() && a != first {
			w.t.Errorf("%s had %s and gets %s", pod, first, a)
		}
		first = a
		time.Sleep(time.Second)
		if err := m.Del(w.t.Context(), c); err != nil {
			w.t.Errorf("DEL: %v", err)
		}
	}
}

// acquire gives a container the sticky address of a pod. It tries until that succeeds.
func (w *world) acquire(m *member, container, pod string) (a netip.Addr) {
	w.until(func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if a, err = m.Acquire(ctx, container, pod); err != nil {
			return errors.Join(err, m.Del(w.t.Context(), container)) // as a runtime does
		}
		return nil
	})
	return a
}
