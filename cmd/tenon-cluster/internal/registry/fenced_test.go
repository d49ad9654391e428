package registry

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// gains are the methods that give node a something.
var gains = map[string]func(w *world, r *Registry, s Session) error{
	"Claim": func(w *world, r *Registry, s Session) error {
		free, err := r.Blocks.Free(w.Context(), w.pool, "a", 2)
		if err == nil {
			_, _, err = r.Blocks.Claim(w.Context(), s.Node, w.pool, free, fixed)
		}
		return err
	},
	"Acquire": func(w *world, r *Registry, s Session) error {
		_, err := r.Shared.Acquire(w.Context(), s.Node, w.pool, holdOf("web-0"))
		return err
	},
	"Draw": func(w *world, r *Registry, s Session) error {
		_, err := r.Quotas.Draw(w.Context(), s.Node, w.pool, "ns", 8)
		return err
	},
	"Update": func(w *world, r *Registry, s Session) error {
		_, err := r.Nodes.Update(w.Context(), s.Node, func(n *cluster.Node) { n.MTU = 9000 })
		return err
	},
}

// TestFencedInTheMiddle fences node a and reclaims what it has before each call of each method
// that gives it something. The method then gains nothing, whatever it has read before.
func TestFencedInTheMiddle(t *testing.T) {
	for name, gain := range gains {
		calls := 0
		run := func(t *testing.T, at int) {
			w := newWorld(t)
			w.quota()
			client := w.store.Client("under test")
			r := New(client, Options{Cluster: "c", Timeout: time.Second})
			_, s := w.join("a")
			w.owner("b", 1)
			before := client.Calls()
			client.Fault(func(c memkv.Call) memkv.Fault {
				if c.Number-before != at {
					return memkv.Fault{}
				}
				n := w.fence("a")
				for done := false; !done; {
					var err error
					if n, done, err = w.registry("x").Nodes.Reclaim(t.Context(), n, "dead"); err != nil {
						t.Error(err)
						break
					}
				}
				return memkv.Fault{}
			})
			err := gain(w, r, s)
			if at == 0 {
				calls = client.Calls() - before
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Error("a fenced node has got something")
			}
			w.consistent()
			n := must(r.Nodes.Read(t.Context(), "a"))(w)
			left := must(r.Nodes.belongings(t.Context(), "a"))(w)
			if len(n.Blocks)+len(left) > 0 {
				t.Errorf("the fenced node has %v and %v", n.Blocks, left)
			}
		}
		bubble(t, name, func(t *testing.T) { run(t, 0) })
		for at := 1; at <= calls; at++ {
			bubble(t, fmt.Sprintf("%s, fenced at call %d", name, at), func(t *testing.T) { run(t, at) })
		}
	}
}

func TestNodeIsCreatedAgainWhileBlocksCool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, old, blocks := w.owner("a", 1)
		fenced := w.fence("a")
		_, done, err := w.registry("x").Nodes.Reclaim(t.Context(), fenced, "dead")
		if err != nil || done {
			t.Fatal(done, err)
		}
		if err := w.registry("x").Nodes.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		r := w.registry("new a")
		s := must(r.Nodes.Join(t.Context(), cluster.Node{Name: "a", Identity: "new"}, 0))(w)
		_, _, err = r.Blocks.Claim(t.Context(), s.Node, w.pool,
			[]netip.Prefix{blocks[0].Block.Block}, "")
		wantErr(t, err, ErrConflict)
		// The old host returns: it must not touch the new one's document.
		late := w.registry("old a")
		_, err = late.Blocks.Return(t.Context(), old, blocks[0], "late")
		if err != nil {
			t.Fatal("the block has left the node already:", err)
		}
		_, _, err = late.Blocks.Claim(t.Context(), old, w.pool, []netip.Prefix{w.pool.Block(9)}, "")
		wantErr(t, err, ErrIdentity)
		time.Sleep(time.Duration(w.pool.Cooldown) + time.Second)
		free, err := r.Blocks.Free(t.Context(), w.pool, "a", 16)
		if err != nil || len(free) != 15 {
			t.Fatalf("%d free blocks, want all but the cooling one: %v", len(free), err)
		}
		if n, err := r.Blocks.Expire(t.Context(), "pods", 5); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		n, again, err := r.Blocks.Claim(t.Context(), s.Node, w.pool,
			[]netip.Prefix{blocks[0].Block.Block}, "")
		if err != nil || again[0].Generation == blocks[0].Generation {
			t.Fatal(n, again, err)
		}
		w.consistent()
	})
}

func TestRestoredSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		meta := must(w.registry("x").Meta.Read(t.Context()))(w)
		r := New(w.store.Client("a"), Options{Cluster: "c", Store: meta.Nonce})
		s := must(r.Nodes.Join(t.Context(), node("a"), 0))(w)
		backup := w.store.Backup()
		n, _ := w.claim(r, s.Node, 2)
		s.Node = n
		w.store.Restore(backup)
		w.consistent()
		wantErr(t, r.Nodes.Renew(t.Context(), s), ErrConflict) // the document is an older one
		must(w.registry("operator").Meta.NewNonce(t.Context()))(w)
		wantErr(t, r.Nodes.Renew(t.Context(), s), ErrForeign)
		_, _, err := r.Blocks.Claim(t.Context(), s.Node, w.pool, []netip.Prefix{w.pool.Block(3)}, "")
		wantErr(t, err, ErrForeign)
		now := must(w.registry("a").Nodes.Read(t.Context(), "a"))(w)
		_, err = r.Blocks.Return(t.Context(), now,
			Block{Block: cluster.Block{Pool: "pods", Block: w.pool.Block(0)}}, "x")
		if err != nil {
			t.Fatal("a block that is not the node's:", err)
		}
	})
}

// TestCheckFinds damages a store and expects the finding.
func TestCheckFinds(t *testing.T) {
	type damage func(w *world, put func(key string, document any), s Snapshot)
	for name, c := range map[string]struct {
		invariant int
		do        damage
	}{
		"pools overlap": {oneOwner, func(w *world, put func(string, any), _ Snapshot) {
			p := w.pool.Pool
			p.Name = "twin"
			put(w.keys.Pool("twin"), p)
		}},
		"two owners": {sameLists, func(w *world, put func(string, any), s Snapshot) {
			n := s.Nodes[1].Node
			n.Blocks = s.Nodes[0].Blocks
			put(w.keys.Node(n.Name), n)
		}},
		"list without block": {sameLists, func(w *world, put func(string, any), s Snapshot) {
			n := s.Nodes[0].Node
			n.Blocks = nil
			put(w.keys.Node(n.Name), n)
		}},
		"epoch": {epochs, func(w *world, put func(string, any), s Snapshot) {
			n := s.Nodes[0].Node
			n.Epoch++
			put(w.keys.Node(n.Name), n)
		}},
		"claim after the last change": {fencedGains, func(w *world, put func(string, any), s Snapshot) {
			b := s.Blocks[slices.IndexFunc(s.Blocks, func(b Block) bool { return b.Owner == "a" })].Block
			if _, err := w.store.Client("x").Delete(w.Context(), w.keys.Block(b.Pool, b.Block)); err != nil {
				w.Fatal(err)
			}
			put(w.keys.Block(b.Pool, b.Block), b)
		}},
		"cooling with an owner": {cooldown, func(w *world, put func(string, any), s Snapshot) {
			b := s.Blocks[0].Block
			b.State, b.Owner = cluster.BlockCooling, "a"
			put(w.keys.Block(b.Pool, b.Block), b)
		}},
		"excluded address": {dynamic, func(w *world, put func(string, any), s Snapshot) {
			h := s.Holders[0]
			h.Addr = w.pool.Block(5).Addr()
			put(w.keys.Addr(h.Pool, h.Addr), h)
		}},
		"holder in another node's block": {oneHolder, func(w *world, put func(string, any), s Snapshot) {
			h := s.Holders[0]
			h.Addr = s.Nodes[0].Blocks[0].Block.Addr().Next().Next()
			put(w.keys.Addr(h.Pool, h.Addr), h)
		}},
		"holder not in the block": {inOwnBlock, func(w *world, put func(string, any), s Snapshot) {
			h := s.Holders[0]
			h.Node = "b"
			put(w.keys.Addr(h.Pool, h.Addr), h)
		}},
		"another sticky address": {stickyNames, func(w *world, put func(string, any), s Snapshot) {
			sticky := s.Stickies[0]
			sticky.Addr = sticky.Addr.Next()
			put(w.keys.Sticky(sticky.Pool, sticky.Namespace, sticky.Name), sticky)
		}},
		"too many tokens": {quotas, func(w *world, put func(string, any), s Snapshot) {
			tokens := s.Tokens["pods"]["ns/a"]
			tokens.Count = 21
			put(w.keys.Quota("pods", "ns", "a"), tokens)
		}},
		"holder of a deleted node": {leftovers, func(w *world, put func(string, any), s Snapshot) {
			h := s.Holders[0]
			h.Node = "gone"
			put(w.keys.Addr(h.Pool, h.Addr), h)
		}},
		"unreadable document": {leftovers, func(w *world, put func(string, any), s Snapshot) {
			put(w.keys.Node("x"), "no node")
		}},
		"unknown grant": {leftovers, func(w *world, put func(string, any), s Snapshot) {
			b := s.Blocks[0].Block
			b.Grants = maps.Clone(b.Grants)
			if b.Grants == nil {
				b.Grants = map[netip.Addr]cluster.Grant{}
			}
			b.Grants[slices.Collect(units(w.pool, b.Block))[40]] = cluster.Grant{Node: "b", Epoch: 1}
			put(w.keys.Block(b.Pool, b.Block), b)
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			s, pool := w.quota()
			_, n, _ := w.owner("a", 1)
			w.owner("b", 1)
			r := w.registry("a")
			must(r.Shared.Acquire(t.Context(), n, pool, holdOf("web-0")))(w)
			must(r.Quotas.Draw(t.Context(), s.Node, pool, "ns", 8))(w)
			w.consistent()
			before := must(r.Snapshot(t.Context()))(w)
			c.do(w, func(key string, document any) {
				if _, err := w.store.Client("x").Put(context.Background(), key, encode(document)); err != nil {
					t.Fatal(err)
				}
			}, before)
			found := must(r.Snapshot(t.Context()))(w).Check()
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Invariant == c.invariant }) {
				t.Errorf("findings %+v, want one of invariant %d", found, c.invariant)
			}
		})
	}
}
