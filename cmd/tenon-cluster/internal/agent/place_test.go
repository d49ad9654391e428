package agent_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// originals are what the agent of the original does before an agent starts with a copy.
var originals = map[string]func(*node){
	"the original runs": func(*node) {}, "its agent is killed": (*node).kill,
	"its agent is stopped": func(n *node) { n.stop() },
}

// TestCopyWithTheSameBoot starts an agent with a copy of a node's directory in the same boot, while
// the original's agent runs and while it does not. The copy gives out nothing, and does not lock the
// original out.
func TestCopyWithTheSameBoot(t *testing.T) {
	t.Parallel()
	for name, stop := range originals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 28})
				first := w.node("n1").start()
				first.mustAdd("pods", "a")
				pass(time.Minute)
				copied := w.node("n1")
				copied.dir = first.dir + "-copy"
				copyDir(w.T, first.dir, copied.dir)
				stop(first)
				err := copied.run()
				if !errors.Is(err, registry.ErrIdentity) || !errors.Is(err, local.ErrCopied) {
					w.Errorf("the copy: %v, expected %v", err, local.ErrCopied)
				}
				copied.agent = nil
				if got := copied.fill("b", 5); len(got) > 0 {
					w.Errorf("the copy has given out %v", got)
				}
				if got := first.fill("c", 5); len(got) != 5 {
					w.Errorf("the original has given out %d addresses, expected 5", len(got))
				}
			})
		})
	}
}

// TestRemovedDirectory removes the directory of a node under its running agent. The addresses of
// its containers are in use, and nothing shows which.
func TestRemovedDirectory(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 28})
		n := w.node("n1").start()
		n.fill("a", 5)
		pass(time.Minute)
		if err := os.RemoveAll(n.dir); err != nil {
			w.Fatal(err)
		}
		if got := n.fill("b", 5); len(got) > 0 {
			w.Errorf("given out at once: %v", got)
		}
		err := <-n.ended
		n.ended <- nil // for stop
		n.stop()
		if !errors.Is(err, local.ErrCopied) {
			w.Errorf("the agent ended with %v, expected %v", err, local.ErrCopied)
		}
		if got := n.fill("c", 5); len(got) > 0 {
			w.Errorf("given out later: %v", got)
		}
		if err := n.run(); !errors.Is(err, registry.ErrIdentity) {
			w.Errorf("the next agent ended with %v, expected %v", err, registry.ErrIdentity)
		}
	})
}

// clone copies a node as it is at this moment, with its memory or on a snapshot of its file system:
// nothing in the files shows that they are a copy.
func (n *node) clone() *node {
	n.Helper()
	c := n.world.node(n.name)
	c.dir, c.boot = n.dir+"-clone", n.boot
	copyDir(n.T, n.dir, c.dir)
	files := local.New(local.Options{Dir: c.dir, BootID: c.boot, Clock: c.clock})
	doc, err := files.Node()
	if err == nil {
		doc.Place, err = files.MarkPlace()
	}
	if err == nil {
		err = files.SetNode(doc)
	}
	if err != nil {
		n.Fatal(err)
	}
	p, err := files.Open(n.Context(), "pods", false)
	if err != nil {
		n.Fatal(err)
	}
	p.State.Place = doc.Place
	if err := errors.Join(p.Save(), p.Close()); err != nil {
		n.Fatal(err)
	}
	return c
}

// wantRival waits for the end of an agent with a rival, and checks that the plugin allocates
// nothing without it.
func (n *node) wantRival() {
	n.Helper()
	select {
	case err := <-n.ended:
		n.ended <- nil // for stop
		if !errors.Is(err, registry.ErrRival) {
			n.Errorf("the agent ended with %v, expected %v", err, registry.ErrRival)
		}
	case <-time.After(time.Minute):
		n.Fatal("the agent still runs after a minute")
	}
	n.stop()
	n.agent = nil
	if _, err := n.add("pods", "late"); !errors.Is(err, local.ErrRival) {
		n.Errorf("ADD: %v, expected %v", err, local.ErrRival)
	}
}

// TestClone starts a clone while the original runs. Each may have given out addresses that the other
// does not know: both stop, say so, and stay stopped until an operator has decided.
func TestClone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 28})
		first := w.node("n1").start()
		first.mustAdd("pods", "a")
		pass(time.Minute)
		copied := first.clone().start()
		pass(15 * time.Second) // a renewal, every third of a lease time
		first.wantRival()
		copied.wantRival()
		s, err := w.admin.Snapshot(w.Context())
		if err != nil || len(s.Doubts()) != 1 {
			w.Errorf("check finds %v, %v; expected the two processes", s.Doubts(), err)
		}
		if err := first.run(); !errors.Is(err, registry.ErrRival) {
			w.Errorf("started again, the agent ended with %v, expected %v", err, registry.ErrRival)
		}
		first.stop()

		if err := w.admin.Nodes.Settle(w.Context(), "n1"); err != nil {
			w.Fatal(err)
		}
		first.start()
		pass(time.Minute)
		if got := first.fill("c", 5); len(got) != 5 {
			w.Errorf("given out after the decision: %d addresses, expected 5", len(got))
		}
		if err := copied.run(); !errors.Is(err, registry.ErrRival) {
			w.Errorf("the clone ended with %v, expected %v", err, registry.ErrRival)
		}
		w.check()
	})
}

// TestOldFiles starts an agent with files from before the last lease time, while the agent of the
// newer files runs and while it does not. The old files lack addresses that containers use.
func TestOldFiles(t *testing.T) {
	t.Parallel()
	for name, stop := range originals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.pool(cluster.Pool{Range: prefix("10.64.0.0/24"), BlockBits: 28})
				first := w.node("n1").start()
				first.mustAdd("pods", "a")
				pass(time.Minute)
				old := first.clone()
				first.mustAdd("pods", "b")
				pass(time.Minute)
				stop(first)
				old.start().wantRival()
				if got := first.fill("c", 5); len(got) != 5 {
					w.Errorf("the original has given out %d addresses, expected 5", len(got))
				}
			})
		})
	}
}
