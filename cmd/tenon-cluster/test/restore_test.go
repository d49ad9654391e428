package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// TestRestoredSnapshot restores a snapshot that has no block of n0, and all transactions of the other
// nodes (scenario 16). Package agent has the cases in virtual time. Here all nodes find out with
// etcd's own answers, from the first node that does, and go on after an operator's confirmation.
func TestRestoredSnapshot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		w := onEtcd(t, s, quick(3))
		for _, m := range w.nodes[1:] {
			w.untilAdded(m, 0)
		}
		backup, restore := w.etcd.Copy, w.etcd.Rewind
		if slices.Equal(s.Command, lab.Debian.Command) {
			backup, restore = w.etcd.Snapshot, w.etcd.Restore
		}
		old := backup()
		for i := range 5 {
			w.untilAdded(w.nodes[0], i)
		}
		w.check()
		restore(old)
		for _, m := range w.nodes { // whatever they get now, no other node has
			_, _ = addMany(m, 100, 140)
		}
		for _, m := range w.nodes {
			w.until(func() error {
				if p := m.Status(t.Context()).Problems; !strings.Contains(fmt.Sprint(p), "restored") {
					return fmt.Errorf("node %s does not mention the restore: %q", m.Name, p)
				}
				return nil
			})
			_, _ = addMany(m, 200, 240)
		}
		w.checkHolders()
		w.operate()
		for _, m := range w.nodes {
			for i := 400; i < 420; i++ {
				w.untilAdded(m, i)
			}
		}
		w.checkState()
	})
}

// untilAdded adds a container. It tries until that succeeds.
func (w *world) untilAdded(m *member, i int) {
	w.t.Helper()
	w.until(func() error {
		_, err := m.Add(within(w.t, w.o.ttl), fmt.Sprintf("%s-%d", m.Name, i))
		return err
	})
}

// operate does what the operator does: detach the containers in blocks that the store has
// forgotten, "confirm --all-nodes".
func (w *world) operate() {
	w.t.Helper()
	for _, m := range w.nodes {
		w.detachLost(m)
	}
	for _, m := range w.nodes {
		w.until(func() error {
			meta, err := w.reg.Meta.Read(w.t.Context())
			if err != nil {
				return err
			}
			n, err := w.reg.Nodes.Read(w.t.Context(), m.Name)
			if err == nil {
				_, err = w.reg.Nodes.Update(w.t.Context(), n,
					func(n *cluster.Node) { n.Store = meta.Nonce })
			}
			return err
		})
	}
}

// detachLost deletes the containers of a node in lost blocks.
func (w *world) detachLost(m *member) {
	w.t.Helper()
	blocks, err := m.Blocks(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	leases, err := m.Leases(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range leases {
		for _, b := range blocks {
			if b.Phase == local.Lost && b.Block.Contains(l.Addr) {
				if err := m.Del(w.t.Context(), l.Owner.Container); err != nil {
					w.t.Error(err)
				}
			}
		}
	}
}
