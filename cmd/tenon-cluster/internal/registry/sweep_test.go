package registry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// scenario is one method of the registry with the state that it needs.
type scenario struct {
	name string
	// prepare brings the store into the state before the call and returns the call. The call is
	// repeated after an error.
	prepare func(w *world, r *Registry) func(ctx context.Context) error
	// after checks the result, if the invariants are not enough.
	after func(w *world, r *Registry) error
}

// fault is a way in which a call of the client fails.
type fault struct {
	name  string
	fault memkv.Fault
}

var lost = rpctypes.ErrGRPCTimeout

var sweepFaults = []fault{
	{"refused", memkv.Fault{Error: rpctypes.ErrGRPCNoSpace}},
	{"lost request", memkv.Fault{Error: lost}},
	{"lost answer", memkv.Fault{Error: lost, Commit: memkv.Now}},
	{"late commit", memkv.Fault{Error: lost, Commit: memkv.Later}},
	{"commit 300 ms later", memkv.Fault{Error: lost, Commit: memkv.Later,
		After: 300 * time.Millisecond}},
	{"slow", memkv.Fault{Delay: 2 * time.Second}},
}

// TestSweep fails each call of the client of each method in each way. The caller repeats the
// method until it succeeds; late requests arrive before, between or after that.
func TestSweep(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			calls := 0
			synctest.Test(t, func(t *testing.T) { calls = s.run(t, nil, 0) })
			for _, f := range sweepFaults {
				for at := 1; at <= calls; at++ {
					name := fmt.Sprintf("%s at call %d", f.name, at)
					bubble(t, name, func(t *testing.T) { s.run(t, &f.fault, at) })
					if f.fault.Commit == memkv.Later {
						bubble(t, name+", caller gives up", func(t *testing.T) { s.giveUp(t, f.fault, at) })
					}
				}
			}
		})
	}
}

// run runs a scenario with a fault at a call, and returns the number of calls without fault.
func (s scenario) run(t *testing.T, f *memkv.Fault, at int) int {
	w := newWorld(t)
	client := w.store.Client("under test")
	r := New(client, Options{Cluster: "c", Timeout: time.Second})
	call := s.prepare(w, r)
	before := client.Calls()
	if f != nil {
		client.Fault(func(c memkv.Call) memkv.Fault {
			if c.Number-before == at {
				return *f
			}
			return memkv.Fault{}
		})
	}
	var err error
	for range 5 {
		if err = call(t.Context()); err == nil {
			break
		}
		if !errors.Is(err, ErrUnknown) && f == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("the method does not succeed: %v", err)
	}
	calls := client.Calls() - before
	client.Fault(nil)
	w.consistent()
	w.cooling()
	if s.after != nil {
		if err := s.after(w, r); err != nil {
			t.Error(err)
		}
	}
	state := w.text()
	w.store.Deliver()
	time.Sleep(2 * time.Second)
	if after := w.text(); after != state {
		t.Errorf("a late request changed the state from\n%s\nto\n%s", state, after)
	}
	w.consistent()
	w.noLeak()
	return calls
}

// giveUp runs a scenario and cancels the context of the caller with the fault. The late request
// then arrives, or not; the caller excludes it and the invariants hold.
func (s scenario) giveUp(t *testing.T, f memkv.Fault, at int) {
	w := newWorld(t)
	client := w.store.Client("under test")
	r := New(client, Options{Cluster: "c", Timeout: time.Second})
	call := s.prepare(w, r)
	before := client.Calls()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client.Fault(func(c memkv.Call) memkv.Fault {
		if c.Number-before == at {
			cancel()
			return f
		}
		return memkv.Fault{}
	})
	if err := call(ctx); err == nil {
		return // the call was a courtesy
	}
	client.Fault(nil)
	w.consistent()
	w.store.Deliver()
	time.Sleep(2 * time.Second)
	w.consistent()
	for range 5 {
		if err := call(t.Context()); err == nil {
			w.consistent()
			w.cooling()
			w.noLeak()
			return
		}
	}
	t.Fatal("the method does not succeed later")
}

// consistent checks the invariants.
func (w *world) consistent() {
	w.Helper()
	s, err := w.registry("checker").Snapshot(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range s.Check() {
		w.Errorf("invariant %d: %s", f.Invariant, f.Text)
	}
}

// cooling checks that no block has lost its cool key before the cooldown has passed.
func (w *world) cooling() {
	w.Helper()
	for _, b := range must(w.registry("checker").Snapshot(w.Context()))(w).Blocks {
		if b.State == cluster.BlockCooling && !b.Cool {
			w.Errorf("block %s has lost its cool key", b.Block.Block)
		}
	}
}

// noLeak checks that leases without keys end: after the longest cooldown none is left.
func (w *world) noLeak() {
	w.Helper()
	time.Sleep(2 * time.Duration(w.pool.Cooldown))
	c := w.store.Client("checker")
	leases, err := c.Leases(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, l := range leases.Leases {
		w.Errorf("lease %x is left", l.ID)
	}
	w.consistent()
}

// fixed returns a nonce that a caller keeps over repetitions.
const fixed = "nonce-of-the-caller"

func holdOf(name string) Hold {
	return Hold{Sticky: true, Holder: cluster.Holder{
		Network: "net", Container: "ctr", IfName: "eth0", Namespace: "ns", Name: name, Nonce: fixed,
	}}
}

// must fails the test of the world on an error.
func must[T any](v T, err error) func(w *world) T {
	return func(w *world) T {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		return v
	}
}

// owner joins a node in another registry and lets it claim blocks.
func (w *world) owner(name string, count int) (*Registry, Node, []Block) {
	r, s := w.join(name)
	n, blocks := w.claim(r, s.Node, count)
	return r, n, blocks
}

var scenarios = []scenario{
	{name: "PutPool", prepare: func(_ *world, r *Registry) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.Pools.Put(ctx, cluster.Pool{Name: "other", Range: prefix("10.80.0.0/22")})
			return err
		}
	}},
	{name: "DeletePool", prepare: func(_ *world, r *Registry) func(context.Context) error {
		return func(ctx context.Context) error { return r.Pools.Delete(ctx, "pods") }
	}},
	{name: "Join", prepare: func(_ *world, r *Registry) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.Nodes.Join(ctx, node("a"), 0)
			return err
		}
	}},
	{name: "Join suspect", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		w.store.ExpireKey(w.keys.Live("a"))
		must(w.registry("x").Nodes.Suspect(w.Context(), s.Node))(w)
		return func(ctx context.Context) error {
			_, err := r.Nodes.Join(ctx, node("a"), 0)
			return err
		}
	}},
	{name: "Rejoin", prepare: func(w *world, r *Registry) func(context.Context) error {
		w.join("a")
		w.fence("a")
		return func(ctx context.Context) error {
			s, err := r.Nodes.Rejoin(ctx, node("a"), 0)
			if errors.Is(err, ErrConflict) { // an earlier call has succeeded
				s, err = r.Nodes.Join(ctx, node("a"), 0)
			}
			if err == nil && s.Node.Epoch != 2 {
				err = fmt.Errorf("epoch %d", s.Node.Epoch)
			}
			return err
		}
	}},
	{name: "Renew", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		return func(ctx context.Context) error { return r.Nodes.Renew(ctx, s) }
	}},
	{name: "Update", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		return func(ctx context.Context) error {
			_, err := r.Nodes.Update(ctx, s.Node, func(n *cluster.Node) { n.MTU = 1400 })
			return err
		}
	}},
	{name: "DeleteNode", prepare: func(w *world, r *Registry) func(context.Context) error {
		w.join("a")
		w.fence("a")
		return func(ctx context.Context) error { return r.Nodes.Delete(ctx, "a") }
	}},
	{name: "Claim", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		return func(ctx context.Context) error {
			free, err := r.Blocks.Free(ctx, w.pool, "a", 3)
			if err != nil {
				return err
			}
			now, err := r.Nodes.Read(ctx, "a")
			if err != nil {
				return err
			}
			now.Epoch = s.Node.Epoch
			_, blocks, err := r.Blocks.Claim(ctx, now, w.pool, free, fixed)
			if err == nil && len(blocks) != 3 {
				err = fmt.Errorf("%d blocks", len(blocks))
			}
			return err
		}
	}, after: func(w *world, r *Registry) error {
		n, blocks, err := r.Blocks.Owned(w.Context(), "a")
		if len(blocks) != 3 || len(n.Blocks) != 3 {
			err = fmt.Errorf("node a has %d blocks, want 3", len(blocks))
		}
		return err
	}},
	{name: "Claim taken", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		_, _, taken := w.owner("b", 1)
		return func(ctx context.Context) error {
			_, _, err := r.Blocks.Claim(ctx, s.Node, w.pool, []netip.Prefix{taken[0].Block.Block}, fixed)
			if errors.Is(err, ErrConflict) {
				return nil
			}
			if err == nil {
				err = errors.New("claimed a block of another node")
			}
			return err
		}
	}},
	{name: "Exclude", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		return func(ctx context.Context) error {
			_, _, err := r.Blocks.Exclude(ctx, s.Node, fixed)
			return err
		}
	}},
	{name: "Return", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, n, blocks := w.owner("a", 2)
		return func(ctx context.Context) error {
			_, err := r.Blocks.Return(ctx, n, blocks[0], "empty")
			return err
		}
	}},
	{name: "Expire", prepare: func(w *world, r *Registry) func(context.Context) error {
		a, n, blocks := w.owner("a", 1)
		must(a.Blocks.Return(w.Context(), n, blocks[0], "empty"))(w)
		time.Sleep(time.Duration(w.pool.Cooldown) + time.Second)
		return func(ctx context.Context) error {
			_, err := r.Blocks.Expire(ctx, "pods", 10)
			return err
		}
	}},
	{name: "Suspect", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, n, _ := w.owner("a", 1)
		w.store.ExpireKey(w.keys.Live("a"))
		return func(ctx context.Context) error {
			_, err := r.Nodes.Suspect(ctx, n)
			return err
		}
	}},
	{name: "Fence", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, n, _ := w.owner("a", 1)
		w.store.ExpireKey(w.keys.Live("a"))
		n = must(w.registry("x").Nodes.Suspect(w.Context(), n))(w)
		return func(ctx context.Context) error {
			_, err := r.Nodes.Fence(ctx, n, "off", "test")
			return err
		}
	}},
	{name: "Reclaim", prepare: prepareReclaim, after: func(w *world, r *Registry) error {
		left, err := r.Nodes.belongings(w.Context(), "a")
		if n, e := r.Nodes.Read(w.Context(), "a"); e != nil || len(n.Blocks)+len(left) > 0 {
			err = fmt.Errorf("left: %v, %v, %v", n.Blocks, left, e)
		}
		return err
	}},
	{name: "Acquire sticky", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		return func(ctx context.Context) error {
			_, err := r.Shared.Acquire(ctx, s.Node, w.pool, holdOf("web-0"))
			return err
		}
	}, after: heldCount(1)},
	{name: "Acquire requested", prepare: func(w *world, r *Registry) func(context.Context) error {
		_, s := w.join("a")
		h := holdOf("web-0")
		h.Sticky, h.Addr = false, netip.MustParseAddr("10.64.2.9")
		return func(ctx context.Context) error {
			_, err := r.Shared.Acquire(ctx, s.Node, w.pool, h)
			return err
		}
	}, after: heldCount(1)},
	{name: "Release", prepare: prepareRelease(false), after: heldCount(0)},
	{name: "Release and forget", prepare: prepareRelease(true), after: heldCount(0)},
	{name: "Forget", prepare: func(w *world, r *Registry) func(context.Context) error {
		a, s := w.join("a")
		h := must(a.Shared.Acquire(w.Context(), s.Node, w.pool, holdOf("web-0")))(w)
		if err := a.Shared.Release(w.Context(), h, false); err != nil {
			w.Fatal(err)
		}
		return func(ctx context.Context) error { return r.Shared.Forget(ctx, "pods", "ns", "web-0") }
	}},
	{name: "Draw", prepare: func(w *world, r *Registry) func(context.Context) error {
		s, pool := w.quota()
		return func(ctx context.Context) error {
			_, err := r.Quotas.Draw(ctx, s.Node, pool, "ns", 8)
			if errors.Is(err, ErrQuota) { // drawn twice after an unknown outcome
				return nil
			}
			return err
		}
	}},
	{name: "Yield", prepare: func(w *world, r *Registry) func(context.Context) error {
		s, pool := w.quota()
		must(w.registry("x").Quotas.Draw(w.Context(), s.Node, pool, "ns", 8))(w)
		return func(ctx context.Context) error { return r.Quotas.Yield(ctx, s.Node, "pods", "ns", 3) }
	}},
}

// prepareReclaim fences a node with blocks, a shared address, and tokens.
func prepareReclaim(w *world, r *Registry) func(context.Context) error {
	_, pool := w.quota()
	a := w.registry("a")
	s := must(a.Nodes.Join(w.Context(), node("a"), 0))(w)
	must(a.Shared.Acquire(w.Context(), s.Node, pool, holdOf("web-0")))(w)
	n, _ := w.claim(a, s.Node, 2)
	must(a.Quotas.Draw(w.Context(), n, pool, "ns", 8))(w)
	fenced := w.fence("a")
	return func(ctx context.Context) error {
		for {
			if _, done, err := r.Nodes.Reclaim(ctx, fenced, "dead"); done || err != nil {
				return err
			}
		}
	}
}

// prepareRelease lets a node hold a sticky address.
func prepareRelease(forget bool) func(w *world, r *Registry) func(context.Context) error {
	return func(w *world, r *Registry) func(context.Context) error {
		a, s := w.join("a")
		h := must(a.Shared.Acquire(w.Context(), s.Node, w.pool, holdOf("web-0")))(w)
		return func(ctx context.Context) error { return r.Shared.Release(ctx, h, forget) }
	}
}

func heldCount(want int) func(w *world, r *Registry) error {
	return func(w *world, r *Registry) error {
		held, err := r.Shared.Held(w.Context(), "a")
		if err == nil && len(held) != want {
			err = fmt.Errorf("node a holds %v, want %d", held, want)
		}
		return err
	}
}

// quota joins node a and limits namespace ns to 20 addresses.
func (w *world) quota() (Session, Pool) {
	w.Helper()
	_, s := w.join("a")
	p := w.pool.Pool
	p.Quota = map[string]uint64{"ns": 20}
	w.pool = must(w.registry("operator").Pools.Put(w.Context(), p))(w)
	return s, w.pool
}
