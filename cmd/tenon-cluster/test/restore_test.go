package test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// TestRestoredSnapshot restores yesterday's snapshot (scenario 16). The store has forgotten blocks
// that nodes use, and shows a block as its earlier owner's that another node has claimed since.
// Nodes notice it themselves, before an operator confirms the store. Then they go on.
func TestRestoredSnapshot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		w := onEtcd(t, s, quick(4))
		add := func(m *member, from, to int) { _, _ = addMany(m, from, to) }
		for _, m := range w.nodes[:3] {
			add(m, 0, 10)
		}
		debian := slices.Equal(s.Command, lab.Debian.Command)
		backup, restore := w.etcd.Copy, w.etcd.Rewind
		if debian {
			backup, restore = w.etcd.Snapshot, w.etcd.Restore
		}
		old := backup()
		w.handOver(w.nodes[0], w.nodes[3])
		for _, m := range w.nodes {
			add(m, 100, 140) // claims blocks that the snapshot does not have
		}
		w.check()
		restore(old)
		if *every { // no agent may claim before it has noticed the restore
			for _, m := range w.nodes {
				add(m, 200, 220)
			}
		}
		wait(2 * w.o.ttl)
		for _, m := range w.nodes {
			add(m, 300, 320)
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

// handOver lets a node return all of its blocks and another one claim them.
func (w *world) handOver(from, to *member) {
	w.t.Helper()
	blocks, err := from.Blocks(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range from.Containers() {
		if err := from.Del(w.t.Context(), c); err != nil {
			w.t.Fatal(err)
		}
	}
	w.until(func() error { return w.setState(from, cluster.NodeDraining) })
	w.untilState(from, cluster.NodeDraining, 1, 0)
	for i := 1000; ; i++ {
		w.untilAdded(to, i)
		own, err := to.Blocks(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for _, b := range own {
			if b.Block == blocks[0].Block {
				w.until(func() error { return w.setState(from, cluster.NodeActive) })
				return
			}
		}
	}
}

// operate does what the operator does: "confirm --restored", detach the containers in blocks that
// the store has forgotten, "confirm --all-nodes".
func (w *world) operate() {
	w.t.Helper()
	w.until(func() error {
		_, err := w.reg.NewNonce(w.t.Context())
		return err
	})
	wait(2 * w.o.ttl)
	detached := 0
	for _, m := range w.nodes {
		detached += w.detachLost(m)
	}
	if detached == 0 {
		w.t.Error("no node has noticed that the store has forgotten its blocks")
	}
	for _, m := range w.nodes {
		w.until(func() error {
			meta, err := w.reg.Meta(w.t.Context())
			if err != nil {
				return err
			}
			n, err := w.reg.Node(w.t.Context(), m.Name)
			if err == nil {
				_, err = w.reg.Update(w.t.Context(), n,
					func(n *cluster.Node) { n.Store = meta.Nonce })
			}
			return err
		})
	}
}

// detachLost deletes the containers of a node in lost blocks, and returns their number.
func (w *world) detachLost(m *member) (detached int) {
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
				detached++
			}
		}
	}
	return detached
}
