package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// TestRestoredStore is the procedure after a snapshot was restored: growth stops on all nodes, and
// they go on with their own blocks, until an operator has confirmed them.
func TestRestoredStore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		pass(time.Minute)
		meta, err := w.admin.Meta.NewNonce(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		for _, c := range []string{"c2", "c3", "c4", "c5"} {
			n.mustAdd("pods", c)
		}
		if _, err := n.add("pods", "c6"); cni.CodeOf(err) != cni.CodeTryAgainLater {
			w.Errorf("growth in a restored store: %v, expected code 11", err)
		}
		if got := n.stored(); len(got.Blocks) != 1 || got.Store == meta.Nonce {
			w.Errorf("the node before the confirmation: %+v", got)
		}
		if !strings.Contains(strings.Join(n.status().Problems, "\n"), "restored") {
			w.Errorf("problems %q do not mention the restored store", n.status().Problems)
		}
		_, err = w.admin.Nodes.Update(w.Context(), n.stored(),
			func(n *cluster.Node) { n.Store = meta.Nonce })
		if err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		n.mustAdd("pods", "c6")
		if s := n.status(); len(s.Problems) != 0 {
			w.Errorf("problems after the confirmation: %q", s.Problems)
		}
		w.check()
	})
}

// TestConfirmedWithoutSession confirms a node while its agent is down: the agent must not undo that
// when it joins again.
func TestConfirmedWithoutSession(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		meta, err := w.admin.Meta.NewNonce(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		n.kill()
		_, err = w.admin.Nodes.Update(w.Context(), n.stored(),
			func(n *cluster.Node) { n.Store = meta.Nonce })
		if err != nil {
			w.Fatal(err)
		}
		n.start()
		pass(time.Minute)
		for i := range 6 {
			n.mustAdd("pods", fmt.Sprint("d", i))
		}
		if s := n.status(); len(s.Problems) != 0 {
			w.Errorf("problems after the confirmation: %q", s.Problems)
		}
	})
}

// TestStoreThatForgotAClaim restores a store that does not know a block of the node, and shows one
// that the node has returned since.
func TestStoreThatForgotAClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		n.kill()
		// The files are as if the store had lost a claim, and kept a returned block.
		n.edit("pods", func(st *local.State) {
			st.Blocks[0].Block, st.Blocks[0].Nonce = prefix("10.64.77.0/29"), "lost"
		})
		n.start()
		pass(time.Minute)
		for _, b := range n.state("pods").Blocks {
			if b.Phase == local.Owned {
				w.Errorf("the node uses %s, on which files and store do not agree", b.Block)
			}
		}
		if _, err := n.add("pods", "c2"); err == nil {
			w.Error("the node allocates although files and store do not agree")
		}
		if got := n.stored(); len(got.Blocks) != 1 {
			w.Errorf("the node has %d blocks in the store, expected its only one", len(got.Blocks))
		}
	})
}

// TestDeletedPoolIsForgotten checks that the files of a pool disappear with the pool.
func TestDeletedPoolIsForgotten(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Cooldown: cluster.Duration(time.Second)})
		n := w.node("n1").start()
		pass(time.Minute)
		if st := n.state("pods"); st.Pool.Name != "pods" {
			w.Errorf("the node does not know the pool: %+v", st)
		}
		if err := w.admin.Pools.Delete(w.Context(), "pods"); err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		if st := n.state("pods"); st.Pool.Name != "" {
			w.Errorf("the node still knows the deleted pool: %+v", st)
		}
		w.pool(cluster.Pool{Range: prefix("10.65.0.0/16")})
		pass(time.Minute)
		if a := n.mustAdd("pods", "c1"); !prefix("10.65.0.0/16").Contains(a) {
			w.Errorf("address %s is not of the new pool", a)
		}
	})
}

// TestStoreRestoredWhileTheAgentIsDown restores an older store of the same nonce before the agent
// starts again: the revision of its document in node.json shows that.
func TestStoreRestoredWhileTheAgentIsDown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		pass(time.Minute)
		yesterday := w.kv.Backup()
		change := func(n *cluster.Node) { n.MTU = 9000 }
		if _, err := w.admin.Nodes.Update(w.Context(), n.stored(), change); err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		n.kill()
		w.kv.Restore(yesterday)
		n.start()
		pass(time.Minute)
		if got := strings.Join(n.status().Problems, "\n"); !strings.Contains(got, "restored") {
			w.Errorf("problems %q do not mention the restored store", got)
		}
	})
}

// TestQuietNodeNoticesRestore restores a snapshot that has all transactions of n1, and not all of
// n2. n1 must not claim the blocks that n2 has.
func TestQuietNodeNoticesRestore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/25"), BlockBits: 29})
		n1, n2 := w.node("n1").start(), w.node("n2").start()
		n1.mustAdd("pods", "a")
		n2.mustAdd("pods", "b")
		pass(time.Minute)
		old, holder := w.kv.Backup(), map[netip.Addr]bool{}
		for i := range 40 {
			if a, err := n2.add("pods", fmt.Sprint("b", i)); err == nil {
				holder[a] = true
			}
		}
		pass(time.Minute)
		w.kv.Restore(old)
		pass(5 * time.Minute)
		for i := range 40 {
			a, err := n1.add("pods", fmt.Sprint("a", i))
			if err != nil {
				break
			}
			if holder[a] {
				t.Error(a, "has two holders")
			}
		}
	})
}

// forgetful is a store that has lost a block of n2, which n2 has noticed and n1 has not seen. The
// pool has a free block for n1.
func (w *world) forgetful() (n1, n2 *node, old *memkv.Backup) {
	w.Helper()
	w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 29})
	n1, n2 = w.node("n1").start(), w.node("n2").start()
	n1.mustAdd("pods", "a")
	n2.mustAdd("pods", "b")
	pass(time.Minute)
	old = w.kv.Backup()
	n1.kill()
	n2.fill("c", 12)
	pass(time.Minute)
	w.kv.Restore(old)
	pass(time.Minute)
	if !n2.distrusts() {
		w.Fatalf("n2 has not noticed the restore: %q", n2.status().Problems)
	}
	return n1, n2, old
}

// fill adds containers, which may fail, and returns the addresses.
func (n *node) fill(name string, count int) map[netip.Addr]bool {
	got := map[netip.Addr]bool{}
	for i := range count {
		if a, err := n.add("pods", fmt.Sprint(name, i)); err == nil {
			got[a] = true
		}
	}
	return got
}

// distrusts reports whether the status of a node names a restored store.
func (n *node) distrusts() bool {
	return strings.Contains(strings.Join(n.status().Problems, "\n"), "restored")
}

// confirmAll is `tenon-cluster confirm --all-nodes`.
func (w *world) confirmAll() {
	w.Helper()
	s, err := w.admin.Snapshot(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, n := range s.Nodes {
		confirm := func(n *cluster.Node) { n.Store = s.Meta.Nonce }
		if _, err := w.admin.Nodes.Update(w.Context(), n, confirm); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.admin.Meta.EndDoubt(w.Context(), s.Meta.Nonce); err != nil {
		w.Fatal(err)
	}
}

// TestOneNodeSpeaksForAll: the node that notices a restore says so in the store. No node grows
// before an operator's confirmation: neither one that was off, nor one that joins for the first
// time.
func TestOneNodeSpeaksForAll(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n1, n2, _ := w.forgetful()
		n1.start()
		n3 := w.node("n3").start()
		pass(5 * time.Minute)
		if got := n3.fill("e", 12); len(got) > 0 {
			w.Errorf("a new node has addresses %v", got)
		}
		if got := n1.fill("e", 12); len(got) != 4 {
			w.Errorf("n1 has %d new addresses, expected the 4 of its block", len(got))
		}
		for _, n := range []*node{n1, n2, n3} {
			if !n.distrusts() {
				w.Errorf("%s does not mention the restore: %q", n.name, n.status().Problems)
			}
		}
		for _, c := range n2.attached() { // as check asks for
			n2.del("pods", c)
		}
		w.confirmAll()
		pass(2 * time.Minute)
		for _, n := range []*node{n1, n2, n3} {
			if got := n.fill("f", 12); len(got) != 12 || n.distrusts() {
				w.Errorf("%s has %d addresses after the confirmation; %q", n.name, len(got),
					n.status().Problems)
			}
		}
		w.check()
	})
}

// TestAnswer: when an operator asks, each node names the addresses in use that the store has
// forgotten, also after a restart and after another restore.
func TestAnswer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n1, n2, old := w.forgetful()
		n1.start()
		pass(time.Minute)
		ask := func() map[string]cluster.Answer {
			question, err := w.admin.Questions.Ask(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			pass(time.Minute)
			answers, err := w.admin.Questions.Answers(w.Context(), question)
			if err != nil || len(answers) != 2 || len(answers["n1"].Lost) > 0 {
				w.Errorf("answers %+v, %v", answers, err)
			}
			return answers
		}
		want := n2.lost()
		wantLost := func(lost []cluster.Loss) {
			used := 0
			for _, l := range lost {
				used += int(l.Used)
				for _, addr := range l.Addrs {
					if !l.Block.Contains(addr) || !slices.Contains(want, addr) {
						w.Errorf("n2 names %v of %s", addr, l.Block)
					}
				}
				if len(l.Addrs) != min(int(l.Used), 4) {
					w.Errorf("n2 names %v, and uses %d", l.Addrs, l.Used)
				}
			}
			if used != len(want) || used == 0 {
				w.Errorf("n2 answers %+v, and has lost %v", lost, want)
			}
		}
		wantLost(ask()["n2"].Lost)
		n2.stop()
		w.kv.Restore(old)
		n2.start()
		pass(time.Minute)
		wantLost(ask()["n2"].Lost)
		for _, c := range n2.attached() {
			n2.del("pods", c)
		}
		if lost := ask()["n2"].Lost; len(lost) > 0 {
			w.Errorf("n2 answers %+v without containers", lost)
		}
	})
}

// lost returns the addresses in use that are in no block which the store shows as the node's, sorted.
func (n *node) lost() (addrs []netip.Addr) {
	n.Helper()
	blocks := n.stored().Blocks
	for _, l := range n.leases() {
		if !slices.ContainsFunc(blocks, func(b cluster.BlockRef) bool { return b.Block.Contains(l.Addr) }) {
			addrs = append(addrs, l.Addr)
		}
	}
	return addrs
}

// TestRestoreIsNotForgotten restarts the agent that has noticed a restore, and restores the store
// again, so that the store does not know either.
func TestRestoreIsNotForgotten(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*node){"SIGKILL": (*node).kill, "SIGTERM": func(n *node) { n.stop() }}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				n1, n2, old := w.forgetful()
				end(n2)
				w.kv.Restore(old)
				pass(time.Minute)
				n2.start()
				pass(2 * time.Minute)
				before := len(n2.stored().Blocks)
				n2.fill("d", 12)
				if after := len(n2.stored().Blocks); after > before || !n2.distrusts() {
					w.Errorf("n2 has %d blocks in the store, and had %d; %q", after, before,
						n2.status().Problems)
				}
				n1.start()
				pass(2 * time.Minute)
				if !n1.distrusts() {
					w.Errorf("n1 does not know: %q", n1.status().Problems)
				}
			})
		})
	}
}

// TestGrowthWaitsAfterAllConnectionsBroke: after a break, a node that needs a block lets other nodes
// speak first. A block that was claimed meanwhile is not used before.
func TestGrowthWaitsAfterAllConnectionsBroke(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 29})
		var breaks atomic.Uint64
		n := w.node("n1")
		n.change = func(o *agent.Options) { o.Breaks = breaks.Load }
		n.start()
		n.fill("a", 4) // claims a second block ahead
		pass(time.Minute)
		q := &agentcall.Request{Verb: agentcall.Grow, Pool: "pods", Have: nonces(n.state("pods"))}
		start := time.Now()
		breaks.Add(1)
		short, cancel := context.WithTimeout(w.Context(), 20*time.Second)
		defer cancel()
		if r := n.agent.Handle(short, q); r.Error == nil || time.Since(start) > time.Second {
			w.Errorf("growth after %s: %v, expected an error at once", time.Since(start),
				r.Error)
		}
		n.client.Fault(func(c memkv.Call) memkv.Fault {
			if c.Write && strings.Contains(strings.Join(c.Keys, " "), "/blocks/") {
				breaks.Add(1) // while the claim is on its way
			}
			return memkv.Fault{}
		})
		if r := n.agent.Handle(w.Context(), q); r.Error == nil || time.Since(start) < 30*time.Second {
			w.Errorf("growth after %s: %v, expected a claim without success after a lease time",
				time.Since(start), r.Error)
		}
		if got := len(n.stored().Blocks); got != 3 || len(n.blocks("pods")) != 2 {
			w.Errorf("%d blocks in the store, in the files %q; expected 3 and 2", got, n.blocks("pods"))
		}
		pass(time.Minute)
		if got := n.blocks("pods"); len(got) != 3 {
			w.Errorf("blocks after another lease time: %q, expected 3", got)
		}
	})
}

// TestRestoreAfterLongOutage: the time in which other nodes may speak begins when the store answers
// again, not when the connections break.
func TestRestoreAfterLongOutage(t *testing.T) {
	t.Parallel()
	for offset := range 15 {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.pool(cluster.Pool{Range: prefix("10.64.0.0/25"), BlockBits: 29})
				var breaks atomic.Uint64
				n1, n2 := w.node("n1"), w.node("n2")
				n1.change = func(o *agent.Options) { o.Breaks = breaks.Load }
				n1.start()
				n2.start()
				n1.fill("a", 4)
				n2.mustAdd("pods", "b")
				pass(time.Minute)
				n1.fill("a", 8)
				pass(time.Minute)
				old := w.kv.Backup()
				n1.client.Partition(true)
				breaks.Add(1)
				held := n2.fill("b", 40)
				n2.client.Partition(true)
				n1.fill("x", 20) // plugins ask for a block during the outage
				pass(5*time.Minute + time.Duration(offset)*time.Second)
				w.kv.Restore(old)
				n2.client.Partition(false)
				n1.client.Partition(false)
				w.disjoint(n1.fill("y", 20), held)
			})
		})
	}
}

// TestOnlyWitnessCannotJoin: a node that cannot join the restored store, because the store shows an
// earlier epoch of it or shows it as fenced, says nevertheless that the store was restored.
func TestOnlyWitnessCannotJoin(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.pool(cluster.Pool{Range: prefix("10.64.0.0/25"), BlockBits: 29,
					Cooldown: cluster.Duration(time.Second)})
				n1, n2 := w.node("n1").start(), w.node("n2").start()
				n1.mustAdd("pods", "a")
				n2.mustAdd("pods", "b")
				pass(time.Minute)
				n1.kill()
				old := w.kv.Backup()
				n2.del("pods", "b")
				n2.kill()
				pass(5 * time.Minute)
				w.fence("n2")
				if fenced {
					old = w.kv.Backup()
				}
				n2.start()
				pass(2 * time.Minute)
				held := n2.fill("c", 40)
				pass(2 * time.Minute)
				w.kv.Restore(old)
				pass(time.Minute)
				n1.start()
				pass(5 * time.Minute)
				if !n1.distrusts() || !n2.distrusts() {
					w.Errorf("n1: %q, n2: %q", n1.status().Problems, n2.status().Problems)
				}
				w.disjoint(n1.fill("x", 80), held)
			})
		})
	}
}

// TestCopyOfDoubtingNode: two processes with one identity find each other also while the store is
// in doubt.
func TestCopyOfDoubtingNode(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 28})
		n1 := w.node("n1").start()
		n1.mustAdd("pods", "a")
		pass(time.Minute)
		if _, err := w.admin.Meta.NewNonce(w.Context()); err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		if !n1.distrusts() {
			w.Fatalf("n1: %q", n1.status().Problems)
		}
		copied := n1.clone().start()
		pass(time.Minute)
		n1.wantRival()
		copied.wantRival()
	})
}

// TestSecondRestoreInDoubt: a node that doubts the store, and finds an even older one, goes on with
// the addresses that it has, because the older proof in the store is its own.
func TestSecondRestoreInDoubt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 28})
		n1 := w.node("n1").start()
		n1.mustAdd("pods", "a")
		pass(time.Minute)
		first := w.kv.Backup()
		n1.mustAdd("pods", "b")
		pass(5 * time.Minute)
		w.kv.Restore(first)
		pass(5 * time.Minute)
		second := w.kv.Backup() // with the doubt, and proofs for it
		pass(5 * time.Minute)
		w.kv.Restore(second)
		pass(5 * time.Minute)
		n1.kill()
		n1.start()
		pass(5 * time.Minute)
		s := n1.status()
		if got := n1.fill("x", 3); len(got) != 3 || s.State != "active" || len(s.Problems) != 1 ||
			!n1.distrusts() {
			w.Errorf("%d addresses, state %q, problems %q", len(got), s.State, s.Problems)
		}
	})
}

// TestMissingBlockWhileWaiting: a node finds out about a restore by its missing block, also while it
// waits for other nodes, and although its lease and a newer document survived.
func TestMissingBlockWhileWaiting(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 29})
		var breaks atomic.Uint64
		n := w.node("n1")
		n.change = func(o *agent.Options) { o.Breaks = breaks.Load }
		n.start()
		n.fill("a", 6)
		pass(time.Minute)
		keys, client := cluster.NewKeys("c"), w.kv.Client("restore")
		doc := n.stored().Node
		lost := doc.Blocks[len(doc.Blocks)-1]
		doc.Blocks = doc.Blocks[:len(doc.Blocks)-1]
		text, err := json.Marshal(doc)
		if err == nil {
			_, err = client.Put(w.Context(), keys.Node("n1"), string(text))
		}
		if err == nil {
			_, err = client.Delete(w.Context(), keys.Block(lost.Pool, lost.Block))
		}
		if err != nil {
			w.Fatal(err)
		}
		breaks.Add(1)
		pass(15 * time.Second) // less than the wait of a lease time
		if !n.distrusts() {
			w.Errorf("the node does not notice: %q", n.status().Problems)
		}
	})
}

// TestRestoreDuringJoin: a restore between the look at the store and the transaction of a join does
// not go unnoticed, although the store shows the node's last proof, and revisions as new as before.
func TestRestoreDuringJoin(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 29})
		n := w.node("n1").start()
		n.mustAdd("pods", "a")
		pass(time.Minute)
		old := w.kv.Backup()
		doc, err := w.admin.Nodes.Read(w.Context(), "n1") // the document changes, and the proof does not
		if err == nil {
			_, err = w.admin.Nodes.Update(w.Context(), doc, func(d *cluster.Node) { d.MTU = 1400 })
		}
		if err != nil {
			w.Fatal(err)
		}
		pass(11 * time.Second) // a renewal
		n.kill()
		client := w.kv.Client("n1")
		restored := false
		client.Fault(func(c memkv.Call) memkv.Fault {
			if c.Method != "Grant" || restored {
				return memkv.Fault{}
			}
			restored = true
			w.kv.Restore(old)
			for range 100 {
				if _, err := w.kv.Client("x").Put(w.Context(), "/other", "x"); err != nil {
					w.Error(err)
				}
			}
			return memkv.Fault{}
		})
		n.startWith(client)
		pass(time.Minute)
		if !restored || !n.distrusts() {
			w.Errorf("restored %v, and the node does not notice: %q", restored, n.status().Problems)
		}
	})
}

// disjoint fails the test if an address has two holders.
func (w *world) disjoint(a, b map[netip.Addr]bool) {
	w.Helper()
	for x := range a {
		if b[x] {
			w.Errorf("%s has two holders", x)
		}
	}
}

// fence fences a node that is off, and frees its blocks.
func (w *world) fence(name string) {
	w.Helper()
	n, err := w.admin.Nodes.Read(w.Context(), name)
	if err == nil && n.State != cluster.NodeSuspect {
		n, err = w.admin.Nodes.Suspect(w.Context(), n)
	}
	if err == nil {
		n, err = w.admin.Nodes.Fence(w.Context(), n, "off", "me")
	}
	for done := false; err == nil && !done; {
		n, done, err = w.admin.Nodes.Reclaim(w.Context(), n, "released")
	}
	if err != nil {
		w.Fatal(err)
	}
}

// nonces returns the nonces of the blocks in a state.
func nonces(s local.State) (all []string) {
	for _, b := range s.Blocks {
		all = append(all, b.Nonce)
	}
	return all
}

// TestRestoreFromBeforeAConfirmation: a snapshot from before a confirmed restore shows the earlier
// nonce of the store, and documents with this nonce. Nodes do not take that for a confirmation.
func TestRestoreFromBeforeAConfirmation(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 29})
		n1, n2 := w.node("n1").start(), w.node("n2").start()
		n1.mustAdd("pods", "a")
		n2.mustAdd("pods", "b")
		pass(time.Minute)
		old := w.kv.Backup()
		held := n2.fill("b", 40)
		if _, err := w.admin.Meta.NewNonce(w.Context()); err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		w.confirmAll()
		pass(time.Minute)
		if n1.distrusts() || n2.distrusts() {
			w.Fatalf("after the confirmation: %q, %q", n1.status().Problems, n2.status().Problems)
		}
		trusted := n1.trusts()
		w.kv.Restore(old)
		pass(time.Minute)
		for _, n := range []*node{n1, n2} {
			if got := n.trusts(); got != trusted || !n.distrusts() {
				w.Errorf("%s trusts store %s, expected %s; %q", n.name, got, trusted, n.status().Problems)
			}
		}
		n3 := w.node("n3").start()
		pass(time.Minute)
		for _, n := range []*node{n1, n3} {
			w.disjoint(n.fill("c", 60), held)
		}
		n2.endAll()
		w.confirmAll()
		pass(time.Minute)
		for _, n := range []*node{n1, n2, n3} {
			if got := n.fill("d", 8); len(got) != 8 || n.distrusts() {
				w.Errorf("%s after the second confirmation: %d addresses, %q", n.name, len(got),
					n.status().Problems)
			}
		}
	})
}

// trusts returns the nonce of the store that the node trusts.
func (n *node) trusts() string {
	n.Helper()
	doc, err := n.files.Node()
	if err != nil {
		n.Fatal(err)
	}
	return doc.Store
}

// endAll releases the addresses of all containers.
func (n *node) endAll() {
	n.Helper()
	for _, c := range n.attached() {
		n.del("pods", c)
	}
}
