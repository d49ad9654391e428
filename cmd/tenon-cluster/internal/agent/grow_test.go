package agent_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/internal/cluster"
)

func TestFirstAddressClaimsABlock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/20")})
		n := w.node("n1").start()
		a := n.mustAdd("pods", "c1")
		if !prefix("10.64.0.0/20").Contains(a) {
			w.Errorf("address %s is not of the pool", a)
		}
		if got := n.stored(); len(got.Blocks) != 1 || got.Epoch != 1 || !got.Live {
			w.Errorf("node in the store: %+v", got)
		}
		w.check()
	})
}

func TestConcurrentRequestsShareAClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		n := w.node("n1").start()
		got := map[netip.Addr]bool{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				a := n.mustAdd("pods", fmt.Sprint("c", i))
				mu.Lock()
				defer mu.Unlock()
				if got[a] {
					w.Errorf("%s was given twice", a)
				}
				got[a] = true
			})
		}
		all.Wait()
		// 50 of 61 addresses are in use after one claim: the second block is claimed ahead.
		if blocks := n.stored().Blocks; len(blocks) != 1 {
			w.Errorf("50 requests claimed %d blocks, expected 1", len(blocks))
		}
		pass(time.Minute)
		if blocks := n.stored().Blocks; len(blocks) != 2 {
			w.Errorf("the node has %d blocks after a minute at 82 %% use, expected 2", len(blocks))
		}
		w.check()
	})
}

func TestManyRequestsClaimManyBlocks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		n := w.node("n1").start()
		var all sync.WaitGroup
		for i := range 250 {
			all.Go(func() { n.mustAdd("pods", fmt.Sprint("c", i)) })
		}
		all.Wait()
		// The first claim is for the requests that wait by then. One that follows soon takes twice
		// as many blocks: at most 8 after 4, with room for 244.
		if blocks := len(n.stored().Blocks); blocks < 5 || blocks > 12 {
			w.Errorf("250 requests claimed %d blocks of 61 addresses, expected 5 to 12", blocks)
		}
		if asks := n.asks.Load(); asks > 3 { // as often as the plugin asks
			w.Errorf("an ADD needed %d requests to the agent, expected at most 3", asks)
		}
	})
}

func TestSmallPoolIsUsedExactly(t *testing.T) {
	const nodes, units = 10, 13 // a /28 without network, gateway, broadcast
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 28,
			Cooldown: cluster.Duration(time.Second)})
		var all []*node
		for i := range nodes {
			all = append(all, w.node(fmt.Sprint("n", i)).start())
		}
		pass(time.Second) // until each agent knows the others
		for round := range rounds {
			use := map[int]int{} // blocks that each node fills in this round; 16 in all
			for b := range 16 {
				use[(b*7+round)%nodes]++
			}
			addAll(w.T, all, func(i int) int { return use[i] * units })
			w.check()
			pass(5 * time.Minute) // empty blocks of a scarce pool return after a minute
		}
	})
}

// addAll lets all nodes attach containers at the same time, and detach them.
func addAll(t *testing.T, nodes []*node, count func(i int) int) {
	t.Helper()
	var mu sync.Mutex
	got := map[netip.Addr]string{}
	var running sync.WaitGroup
	for i, n := range nodes {
		running.Go(func() {
			for c := range count(i) {
				name := fmt.Sprintf("%s-%d", n.name, c)
				a, err := n.add("pods", name)
				if err != nil {
					t.Errorf("add %s: %v", name, err)
					for i, n := range nodes {
						t.Logf("%s: needs %d, has %q", n.name, count(i), n.blocks("pods"))
					}
					return
				}
				mu.Lock()
				if other := got[a]; other != "" {
					t.Errorf("%s was given to %s and %s", a, other, name)
				}
				got[a] = name
				mu.Unlock()
			}
		})
	}
	running.Wait()
	for i, n := range nodes {
		for c := range count(i) {
			n.del("pods", fmt.Sprintf("%s-%d", n.name, c))
		}
	}
}

// The status names the pools of which the node gets no further block: a full one, until another
// node returns a block, and any pool while the node drains.
func TestStatusNamesExhaustedPools(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/28"), BlockBits: 29,
			Cooldown: cluster.Duration(time.Second)})
		a, b := w.node("a").start(), w.node("b").start()
		want := func(want string) {
			w.Helper()
			pass(time.Minute)
			if got := a.status().Pools[0].Exhausted; got != want {
				w.Errorf("exhausted: %q, expected %q", got, want)
			}
		}
		a.mustAdd("pods", "c1")
		want("")
		b.mustAdd("pods", "d1")
		want("the nodes own all blocks of the pool")
		b.del("pods", "d1")
		pass(time.Hour)
		want("")
		w.check()
	})
}

// TestStatusAfterTheLastBlock: the status knows that the node has claimed the last block of a pool
// before the store reports the claim back to the agent.
func TestStatusAfterTheLastBlock(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 20 {
			name := fmt.Sprintf("pool%d", i)
			w.pool(cluster.Pool{Name: name, Range: prefix(fmt.Sprintf("10.64.%d.0/29", i)), BlockBits: 29})
		}
		n := w.node("n1").start()
		pass(time.Minute)
		for i := range 20 {
			name := fmt.Sprintf("pool%d", i)
			n.mustAdd(name, "c1")
			for _, p := range n.status().Pools {
				if p.Pool == name && p.Exhausted != "the nodes own all blocks of the pool" {
					w.Errorf("%s: exhausted: %q", name, p.Exhausted)
				}
			}
		}
	})
}

// TestNoClaimAheadBeyondTheLimit: the node looks at its pool after a change and has as many blocks
// as the pool allows; that is no problem while addresses are free.
func TestNoClaimAheadBeyondTheLimit(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29, MaxBlocks: 1})
		n := w.node("n1")
		changes := make(chan struct{})
		n.change = func(o *agent.Options) {
			o.Changes = func(ctx context.Context, changed func(pool string)) error {
				for {
					select {
					case <-changes:
						changed("pods")
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
		}
		n.start()
		for i := range 4 { // of 5 addresses
			n.mustAdd("pods", fmt.Sprint("c", i))
		}
		changes <- struct{}{}
		pass(time.Second)
		if s := n.status(); len(s.Problems) > 0 {
			w.Errorf("problems %q", s.Problems)
		}
	})
}
