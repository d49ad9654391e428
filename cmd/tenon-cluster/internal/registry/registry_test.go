package registry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

var prefix = netip.MustParsePrefix

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// world is a store with a cluster and one pool of 16 blocks.
type world struct {
	*testing.T
	store *memkv.Store
	keys  cluster.Keys
	pool  Pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, store: memkv.New(), keys: cluster.NewKeys("c")}
	r := w.registry("operator")
	if _, err := r.Meta.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := r.Pools.Put(t.Context(), cluster.Pool{Name: "pods", Range: prefix("10.64.0.0/22")})
	if err != nil {
		t.Fatal(err)
	}
	w.pool = pool
	return w
}

// registry returns a registry with a client of its own.
func (w *world) registry(client string) *Registry {
	return New(w.store.Client(client), Options{Cluster: "c", Timeout: time.Second})
}

// join joins a node with its name as identity.
func (w *world) join(name string) (*Registry, Session) {
	w.Helper()
	r := w.registry(name)
	s, err := r.Nodes.Join(w.Context(), node(name), 0)
	if err != nil {
		w.Fatal(err)
	}
	return r, s
}

func node(name string) cluster.Node {
	return cluster.Node{Name: name, Identity: "id-" + name}
}

// claim claims count blocks and returns them.
func (w *world) claim(r *Registry, n Node, count int) (Node, []Block) {
	w.Helper()
	free, err := r.Blocks.Free(w.Context(), w.pool, n.Name, count)
	if err != nil {
		w.Fatal(err)
	}
	n, blocks, err := r.Blocks.Claim(w.Context(), n, w.pool, free, "")
	if err != nil {
		w.Fatal(err)
	}
	return n, blocks
}

// fence lets the lease of a node end and fences it.
func (w *world) fence(name string) Node {
	w.Helper()
	r := w.registry("reclaimer")
	w.store.ExpireKey(w.keys.Live(name))
	n, err := r.Nodes.Read(w.Context(), name)
	if err == nil {
		n, err = r.Nodes.Suspect(w.Context(), n)
	}
	if err == nil {
		n, err = r.Nodes.Fence(w.Context(), n, "powered off", "test")
	}
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// text describes nodes and blocks, for comparisons of whole states.
func (w *world) text() string {
	w.Helper()
	var out strings.Builder
	s := must(w.registry("reader").Snapshot(w.Context()))(w)
	for _, n := range s.Nodes {
		fmt.Fprintf(&out, "%s %s epoch %d live %t:", n.Name, n.State, n.Epoch, n.Live)
		for _, ref := range n.Blocks {
			fmt.Fprintf(&out, " %s", ref.Block)
		}
		fmt.Fprintln(&out)
	}
	for _, b := range s.Blocks {
		fmt.Fprintf(&out, "%s %s %s\n", b.Block.Block, b.State, b.Owner)
	}
	return out.String()
}

func (w *world) want(text string) {
	w.Helper()
	if got := w.text(); strings.TrimSpace(got) != strings.TrimSpace(text) {
		w.Errorf("state:\n%s\nwant:\n%s", got, text)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func TestLifeOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx := t.Context()
		a, s := w.join("a")
		n, blocks := w.claim(a, s.Node, 2)
		list := fmt.Sprintf("%s %s", n.Blocks[0].Block, n.Blocks[1].Block)
		w.want("a active epoch 1 live true: " + list + "\n" + ownedBy(w, "a"))
		s.Node = n
		if err := a.Nodes.Renew(ctx, s); err != nil {
			t.Fatal(err)
		}
		again, owned, err := a.Blocks.Owned(ctx, "a")
		if err != nil || len(owned) != 2 || again.Revision != n.Revision {
			t.Fatal(again, owned, err)
		}
		if owned[0].Generation != n.Revision {
			t.Errorf("generation %d, want the revision of the claim %d", owned[0].Generation, n.Revision)
		}
		n, err = a.Blocks.Return(ctx, n, blocks[0], "empty")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = a.Blocks.Return(ctx, n, blocks[0], "empty"); err != nil {
			t.Fatal("the second return fails:", err)
		}
		wantErr(t, a.Nodes.Renew(ctx, s), ErrConflict)
		if freed, err := a.Blocks.Expire(ctx, "pods", 100); freed != 0 || err != nil {
			t.Fatal("a block is free before the cooldown has passed", freed, err)
		}
		time.Sleep(time.Duration(w.pool.Cooldown) + time.Second)
		if freed, err := a.Blocks.Expire(ctx, "pods", 100); freed != 1 || err != nil {
			t.Fatal(freed, err)
		}
		wantErr(t, a.Nodes.Renew(ctx, s), ErrLease) // 30 s have passed

		n = w.fence("a")
		if _, err := a.Nodes.Rejoin(ctx, node("a"), 0); !errors.Is(err, ErrInUse) {
			t.Fatal("rejoin with a block:", err)
		}
		for done := false; !done; {
			if n, done, err = w.registry("x").Nodes.Reclaim(ctx, n, "dead"); err != nil {
				t.Fatal(err)
			}
		}
		s, err = a.Nodes.Rejoin(ctx, node("a"), 0)
		if err != nil || s.Node.Epoch != 2 {
			t.Fatal(s, err)
		}
		w.want("a active epoch 2 live true:\n" + blocks[1].Block.Block.String() + " cooling")
	})
}

// ownedBy lists the blocks of the pool in the order of their keys.
func ownedBy(w *world, owner string) (text string) {
	for line := range strings.Lines(w.text()) {
		if strings.Contains(line, " owned "+owner) {
			text += line
		}
	}
	return text
}

func TestJoin(t *testing.T) {
	bubble(t, "another host of the same name is refused", func(t *testing.T) {
		w := newWorld(t)
		w.join("a")
		_, err := w.registry("b").Nodes.Join(t.Context(), cluster.Node{Name: "a", Identity: "other"}, 0)
		wantErr(t, err, ErrIdentity)
	})
	bubble(t, "a suspect node becomes active", func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		w.store.ExpireKey(w.keys.Live("a"))
		if _, err := r.Nodes.Suspect(t.Context(), s.Node); err != nil {
			t.Fatal(err)
		}
		wantErr(t, r.Nodes.Renew(t.Context(), s), ErrLease)
		w.join("a")
		w.want("a active epoch 1 live true:")
	})
	bubble(t, "a fenced node is refused, another host may take its name", func(t *testing.T) {
		w := newWorld(t)
		r, _ := w.join("a")
		w.fence("a")
		_, err := r.Nodes.Join(t.Context(), node("a"), 0)
		wantErr(t, err, ErrFenced)
		s, err := r.Nodes.Rejoin(t.Context(), cluster.Node{Name: "a", Identity: "new"}, 0)
		if err != nil || s.Node.Epoch != 2 {
			t.Fatal(s.Node, err)
		}
		_, err = r.Nodes.Join(t.Context(), node("a"), 0)
		wantErr(t, err, ErrIdentity)
	})
	bubble(t, "a node with a later epoch finds a restored store", func(t *testing.T) {
		w := newWorld(t)
		r, _ := w.join("a")
		n := node("a")
		n.Epoch = 3
		_, err := r.Nodes.Join(t.Context(), n, 0)
		wantErr(t, err, ErrForeign)
	})
	bubble(t, "the cluster does not exist", func(t *testing.T) {
		r := New(memkv.New().Client("a"), Options{Cluster: "c"})
		_, err := r.Nodes.Join(t.Context(), node("a"), 0)
		wantErr(t, err, ErrNotFound)
	})
	bubble(t, "a new nonce stops registries of the old one", func(t *testing.T) {
		w := newWorld(t)
		meta, err := w.registry("x").Meta.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := New(w.store.Client("a"), Options{Cluster: "c", Store: meta.Nonce})
		if _, err := r.Nodes.Join(t.Context(), node("a"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := w.registry("x").Meta.NewNonce(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = r.Nodes.Join(t.Context(), node("a"), 0)
		wantErr(t, err, ErrForeign)
	})
}

func TestTwoNodesRaceForTheSameBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		type result struct {
			blocks []Block
			err    error
		}
		results := make(chan result)
		want := []netip.Prefix{w.pool.Block(0), w.pool.Block(1), w.pool.Block(2)}
		for _, name := range []string{"a", "b", "c", "d"} {
			r, s := w.join(name)
			go func() {
				_, blocks, err := r.Blocks.Claim(t.Context(), s.Node, w.pool, want, "")
				results <- result{blocks, err}
			}()
		}
		claimed := map[netip.Prefix]string{}
		for range 4 {
			got := <-results
			if got.err != nil && !errors.Is(got.err, ErrConflict) {
				t.Error(got.err)
			}
			for _, b := range got.blocks {
				if claimed[b.Block.Block] != "" {
					t.Errorf("%s has two owners", b.Block.Block)
				}
				claimed[b.Block.Block] = b.Owner
			}
		}
		if len(claimed) != 3 {
			t.Errorf("claimed %v, want 3 blocks", claimed)
		}
	})
}

func TestClaim(t *testing.T) {
	bubble(t, "a repeated claim returns the blocks of the first", func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		first := []netip.Prefix{w.pool.Block(0)}
		if _, _, err := r.Blocks.Claim(t.Context(), s.Node, w.pool, first, "nonce"); err != nil {
			t.Fatal(err)
		}
		_, blocks, err := r.Blocks.Claim(t.Context(), s.Node, w.pool,
			[]netip.Prefix{w.pool.Block(5)}, "nonce")
		if err != nil || len(blocks) != 1 || blocks[0].Block.Block != first[0] {
			t.Fatal(blocks, err)
		}
	})
	bubble(t, "a lost request that arrives later does not commit after Exclude", func(t *testing.T) {
		w := newWorld(t)
		c := w.store.Client("a")
		r := New(c, Options{Cluster: "c", Timeout: time.Second})
		s, err := r.Nodes.Join(t.Context(), node("a"), 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c.Fault(func(call memkv.Call) memkv.Fault {
			cancel()
			return memkv.Fault{Error: context.DeadlineExceeded, Commit: memkv.Later}
		})
		_, _, err = r.Blocks.Claim(ctx, s.Node, w.pool, []netip.Prefix{w.pool.Block(0)}, "nonce")
		wantErr(t, err, ErrUnknown)
		c.Fault(nil)
		_, found, err := r.Blocks.Exclude(t.Context(), s.Node, "nonce")
		if err != nil || len(found) != 0 {
			t.Fatal(found, err)
		}
		w.store.Deliver()
		w.want("a active epoch 1 live true:")
	})
	bubble(t, "all blocks are in use", func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		n, _ := w.claim(r, s.Node, 16)
		_, err := r.Blocks.Free(t.Context(), w.pool, "b", 1)
		wantErr(t, err, ErrFull)
		_, _, err = r.Blocks.Claim(t.Context(), n, w.pool, []netip.Prefix{w.pool.Block(0)}, "")
		wantErr(t, err, ErrConflict)
	})
	bubble(t, "a block is excluded while it cools down", func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		n, blocks := w.claim(r, s.Node, 16)
		if _, err := r.Blocks.Return(t.Context(), n, blocks[0], "test"); err != nil {
			t.Fatal(err)
		}
		p := w.pool.Pool
		p.Exclude = []netip.Prefix{blocks[0].Block.Block}
		pool := must(r.Pools.Put(t.Context(), p))(w)
		time.Sleep(time.Duration(p.Cooldown) + time.Second)
		_, err := r.Blocks.Free(t.Context(), pool, "b", 1)
		wantErr(t, err, ErrFull)
	})
	bubble(t, "the rules of the pool", func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		p := w.pool.Pool
		p.MaxBlocks, p.Nodes = 1, map[string]string{"zone": "x"}
		pool, err := r.Pools.Put(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		two := []netip.Prefix{w.pool.Block(0), w.pool.Block(1)}
		_, _, err = r.Blocks.Claim(t.Context(), s.Node, w.pool, two, "")
		wantErr(t, err, ErrConflict) // the pool has changed
		_, _, err = r.Blocks.Claim(t.Context(), s.Node, pool, two, "")
		wantErr(t, err, ErrRefused)
		n, err := r.Nodes.Update(t.Context(), s.Node, func(n *cluster.Node) {
			n.Labels = map[string]string{"zone": "x"}
		})
		if err != nil {
			t.Fatal(err)
		}
		n, blocks, err := r.Blocks.Claim(t.Context(), n, pool, two, "")
		if err != nil || len(blocks) != 1 {
			t.Fatal(blocks, err)
		}
		_, _, err = r.Blocks.Claim(t.Context(), n, pool, two, "")
		wantErr(t, err, ErrFull)
	})
	bubble(t, "a fenced node gains nothing", func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		w.fence("a")
		_, _, err := r.Blocks.Claim(t.Context(), s.Node, w.pool, []netip.Prefix{w.pool.Block(0)}, "")
		wantErr(t, err, ErrFenced)
	})
}

func TestAcquireNeedsNameOrAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		_, err := r.Shared.Acquire(t.Context(), s.Node, w.pool, Hold{})
		wantErr(t, err, ErrRefused)
	})
}

func TestPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.registry("operator")
		for name, p := range map[string]cluster.Pool{
			"overlap":    {Name: "other", Range: prefix("10.64.1.0/24")},
			"range":      {Name: "pods", Range: prefix("10.64.0.0/21")},
			"block size": {Name: "pods", Range: prefix("10.64.0.0/22"), BlockBits: 27},
		} {
			_, err := r.Pools.Put(t.Context(), p)
			if !errors.Is(err, ErrRefused) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		results := make(chan error)
		for i := range 8 {
			go func() {
				_, err := w.registry("x").Pools.Put(t.Context(), cluster.Pool{
					Name: fmt.Sprint("new", i), Range: prefix("10.96.0.0/20")})
				results <- err
			}()
		}
		created := 0
		for range 8 {
			if err := <-results; err == nil {
				created++
			} else if !errors.Is(err, ErrRefused) {
				t.Error(err)
			}
		}
		if created != 1 {
			t.Errorf("%d overlapping pools were created", created)
		}
		a, s := w.join("a")
		n, blocks := w.claim(a, s.Node, 1)
		wantErr(t, r.Pools.Delete(t.Context(), "pods"), ErrInUse)
		if _, err := a.Blocks.Return(t.Context(), n, blocks[0], "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(w.pool.Cooldown) + time.Second)
		if err := r.Pools.Delete(t.Context(), "pods"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		c := w.store.Client("watcher")
		r := New(c, Options{Cluster: "c", Timeout: time.Second})
		var last View
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Watch(ctx, 5*time.Minute, func(v View, err error) {
				if err == nil {
					last = v
				}
			})
		}()
		synctest.Wait()
		if len(last.Pools) != 1 || len(last.Nodes) != 0 {
			t.Fatalf("first view %+v", last)
		}
		a, s := w.join("a")
		w.join("b")
		w.claim(a, s.Node, 2)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(last.Nodes) != 2 || len(last.Nodes[0].Blocks) != 2 {
			t.Fatalf("view after joins %+v", last)
		}
		// The node is deleted while the watcher is cut off, and a compaction hides that.
		c.Partition(true)
		w.fence("b")
		if err := a.Nodes.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Compact(w.store.Revision()); err != nil {
			t.Fatal(err)
		}
		w.join("c")
		c.Partition(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(last.Nodes) != 2 || last.Nodes[1].Name != "c" {
			t.Fatalf("view after a compaction %+v", last)
		}
		w.store.BreakWatches()
		w.join("d")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(last.Nodes) != 3 {
			t.Fatalf("view after lost watches %+v", last)
		}
		cancel()
		<-done
	})
}

func TestWatchReportsADamagedDocumentUntilItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var last error
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.registry("watcher").Watch(ctx, time.Hour, func(_ View, err error) { last = err })
		}()
		synctest.Wait()
		c := w.store.Client("operator")
		if _, err := c.Put(ctx, w.keys.Node("a"), "{"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if last == nil {
			t.Error("the damaged document is not reported")
		}
		if _, err := c.Delete(ctx, w.keys.Node("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if last != nil {
			t.Error("the deleted document is still reported:", last)
		}
		cancel()
		<-done
	})
}
