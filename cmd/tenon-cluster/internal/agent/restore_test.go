package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
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
		meta, err := w.admin.NewNonce(w.Context())
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
		_, err = w.admin.Update(w.Context(), n.stored(), func(n *cluster.Node) { n.Store = meta.Nonce })
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
		meta, err := w.admin.NewNonce(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		n.kill()
		_, err = w.admin.Update(w.Context(), n.stored(), func(n *cluster.Node) { n.Store = meta.Nonce })
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
		if err := w.admin.DeletePool(w.Context(), "pods"); err != nil {
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
		if _, err := w.admin.Update(w.Context(), n.stored(), change); err != nil {
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
