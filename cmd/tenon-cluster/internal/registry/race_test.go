package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// crowd is a number of nodes that use the registry at the same time over bad connections.
type crowd struct {
	*world
	mu    sync.Mutex
	owner map[netip.Prefix]string // who believes that it may use a block or an address
	done  map[string]int          // successful operations by name
}

// uses records that a node believes it may use a block or address. Two nodes must never do so.
func (c *crowd) uses(p netip.Prefix, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, owner := range c.owner {
		if other.Overlaps(p) && owner != name {
			c.Errorf("%s and %s both use %s (%s)", owner, name, p, other)
		}
	}
	c.owner[p] = name
}

func (c *crowd) unuses(p netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.owner, p)
}

func (c *crowd) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[what]++
}

// forget removes what a dead node used.
func (c *crowd) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, owner := range c.owner {
		if owner == name {
			delete(c.owner, p)
		}
	}
}

// member is a node of a crowd.
type member struct {
	c       *crowd
	name    string
	r       *Registry
	rng     *rand.Rand
	session Session
	blocks  []Block
	held    []cluster.Holder
	nonces  int
}

func (m *member) nonce() string {
	m.nonces++
	return fmt.Sprintf("%s-%d-%d", m.name, m.session.Node.Epoch, m.nonces)
}

// badNetwork makes some calls of a member fail or slow.
func (m *member) badNetwork(call memkv.Call) memkv.Fault {
	slow := time.Duration(m.rng.IntN(30)) * time.Millisecond
	switch m.rng.IntN(20) {
	case 0:
		return memkv.Fault{Error: lost, Delay: slow}
	case 1:
		return memkv.Fault{Error: lost, Commit: memkv.Now, Delay: slow}
	case 2:
		after := time.Duration(1+m.rng.IntN(3000)) * time.Millisecond
		if m.rng.IntN(4) == 0 { // longer than the lease: after the node was fenced
			after *= 30
		}
		return memkv.Fault{Error: lost, Commit: memkv.Later, After: after}
	}
	return memkv.Fault{Delay: slow}
}

// known repeats an operation until its outcome is known.
func known(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || decided(err) && !errors.Is(err, ErrUnknown) || ctx.Err() != nil {
			return err
		}
	}
}

// live does random operations until ctx ends. ctx is the power of the node.
func (m *member) live(ctx context.Context) {
	for ctx.Err() == nil {
		ops := []func(context.Context) error{m.claim, m.giveBack, m.acquire, m.release, m.draw, m.renew}
		err := ops[m.rng.IntN(len(ops))](ctx)
		if errors.Is(err, ErrFenced) || errors.Is(err, ErrSuspect) || errors.Is(err, ErrLease) {
			err = m.join(ctx)
		}
		if err != nil && ctx.Err() == nil && !expected(err) {
			m.c.Errorf("%s: %v", m.name, err)
		}
		wait(ctx, time.Duration(m.rng.IntN(200))*time.Millisecond)
	}
}

func expected(err error) bool {
	return slices.ContainsFunc([]error{ErrConflict, ErrFull, ErrQuota, ErrInUse, ErrUnknown, ErrLease,
		ErrSuspect, ErrRefused}, func(e error) bool { return errors.Is(err, e) })
}

func (m *member) join(ctx context.Context) error {
	return known(ctx, func() error {
		s, err := m.r.Nodes.Join(ctx, node(m.name), 0)
		if errors.Is(err, ErrFenced) {
			s, err = m.r.Nodes.Rejoin(ctx, node(m.name), 0)
		}
		if err == nil {
			m.session = s
		}
		return err
	})
}

func (m *member) renew(ctx context.Context) error {
	err := m.r.Nodes.Renew(ctx, m.session)
	if errors.Is(err, ErrConflict) {
		var now Node
		if now, err = m.r.Nodes.Read(ctx, m.name); err == nil {
			m.session.Node = now
		}
	}
	if err != nil && !decided(err) {
		return nil
	}
	return err
}

func (m *member) claim(ctx context.Context) error {
	free, err := m.r.Blocks.Free(ctx, m.c.pool, "all", 2) // every node tries the same blocks
	if err != nil {
		return answered(err)
	}
	nonce := m.nonce()
	return known(ctx, func() error {
		now, blocks, err := m.r.Blocks.Claim(ctx, m.session.Node, m.c.pool, free, nonce)
		if err != nil || ctx.Err() != nil {
			return err
		}
		m.session.Node, m.blocks = now, append(m.blocks, blocks...)
		for _, b := range blocks {
			m.c.uses(b.Block.Block, m.name)
		}
		m.c.count("claim")
		return nil
	})
}

// answered hides errors that are not answers of the store.
func answered(err error) error {
	if decided(err) {
		return err
	}
	return nil
}

func (m *member) giveBack(ctx context.Context) error {
	if len(m.blocks) < 2 {
		return nil
	}
	b := m.blocks[0]
	m.blocks = m.blocks[1:]
	m.c.unuses(b.Block.Block)
	return known(ctx, func() error {
		now, err := m.r.Blocks.Return(ctx, m.session.Node, b, "empty")
		if err == nil {
			m.session.Node = now
			m.c.count("return")
		}
		return err
	})
}

func (m *member) acquire(ctx context.Context) error {
	h := holdOf(fmt.Sprint("web-", m.rng.IntN(4)))
	h.Nonce, h.Container, h.Sticky = m.nonce(), m.name, m.rng.IntN(2) == 0
	if !h.Sticky {
		h.Addr = netip.AddrFrom4([4]byte{10, 64, 3, byte(200 + m.rng.IntN(8))})
	}
	return known(ctx, func() error {
		got, err := m.r.Shared.Acquire(ctx, m.session.Node, m.c.pool, h)
		if err == nil && ctx.Err() == nil {
			m.held = append(m.held, got)
			m.c.uses(alone(got.Addr), m.name)
			m.c.count("acquire")
		}
		return err
	})
}

func (m *member) release(ctx context.Context) error {
	if len(m.held) == 0 {
		return nil
	}
	h := m.held[0]
	m.held = m.held[1:]
	m.c.unuses(alone(h.Addr))
	err := known(ctx, func() error { return m.r.Shared.Release(ctx, h, m.rng.IntN(3) == 0) })
	if err == nil {
		m.c.count("release")
	}
	return err
}

func (m *member) draw(ctx context.Context) error {
	if m.rng.IntN(2) == 0 {
		return known(ctx, func() error {
			return m.r.Quotas.Yield(ctx, m.session.Node, "pods", "ns", uint64(m.rng.IntN(5)))
		})
	}
	err := known(ctx, func() error {
		_, err := m.r.Quotas.Draw(ctx, m.session.Node, m.c.pool, "ns", 8)
		return err
	})
	if err == nil {
		m.c.count("draw")
	}
	return err
}

// TestCrowd lets nodes do random operations over bad connections while nodes lose power, are
// fenced and return. No two nodes ever use the same block or address, and the invariants hold
// throughout.
func TestCrowd(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		bubble(t, fmt.Sprint("seed ", seed), func(t *testing.T) { runCrowd(t, seed) })
	}
}

func runCrowd(t *testing.T, seed uint64) {
	w := newWorld(t)
	p := w.pool.Pool
	p.Quota, p.Cooldown = map[string]uint64{"ns": 20}, cluster.Duration(20*time.Second)
	w.pool = must(w.registry("operator").Pools.Put(t.Context(), p))(w)
	c := &crowd{world: w, owner: map[netip.Prefix]string{}, done: map[string]int{}}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() { c.machine(ctx, fmt.Sprint("n", i), seed*100+uint64(i)) })
	}
	for ctx.Err() == nil {
		wait(ctx, time.Second)
		w.consistent()
		if t.Failed() {
			stop()
		}
	}
	wg.Wait()
	synctest.Wait()
	time.Sleep(5 * time.Second)
	w.consistent()
	for _, op := range []string{"claim", "return", "acquire", "release", "draw", "power cut"} {
		if c.done[op] < 5 {
			t.Errorf("%d × %s; the test shows too little", c.done[op], op)
		}
	}
	t.Log(c.done)
}

// machine runs a node, cuts its power now and then, fences it and starts it again.
func (c *crowd) machine(ctx context.Context, name string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for life := 0; ctx.Err() == nil; life++ {
		client := c.store.Client(fmt.Sprint(name, ".", life))
		m := &member{
			c: c, name: name, rng: rng,
			r: New(client, Options{Cluster: "c", Timeout: time.Second}),
		}
		client.Fault(m.badNetwork)
		power, cut := context.WithTimeout(ctx, time.Duration(20+rng.IntN(100))*time.Second)
		if err := m.join(power); err != nil && power.Err() == nil {
			c.Errorf("%s: %v", name, err)
		}
		m.live(power)
		cut()
		c.forget(name)
		if ctx.Err() == nil {
			c.count("power cut")
			c.bury(ctx, name)
		}
	}
}

// bury fences a node without power and reclaims what it has.
func (c *crowd) bury(ctx context.Context, name string) {
	r := c.registry("reclaimer of " + name)
	n, err := r.Nodes.Read(ctx, name)
	for err == nil && ctx.Err() == nil && n.Live {
		wait(ctx, time.Second)
		n, err = r.Nodes.Read(ctx, name)
	}
	if err == nil {
		n, err = r.Nodes.Suspect(ctx, n)
	}
	if err == nil {
		n, err = r.Nodes.Fence(ctx, n, "no power", "test")
	}
	for done := false; err == nil && !done; {
		n, done, err = r.Nodes.Reclaim(ctx, n, "dead")
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
		c.Errorf("bury %s: %v", name, err)
	}
}
