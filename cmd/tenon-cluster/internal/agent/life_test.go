package agent_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

const minHold = time.Duration(cluster.MinHold)

// status returns the agent's status.
func (n *node) status() agentcall.Status {
	return *n.agent.Handle(n.Context(), &agentcall.Request{Verb: agentcall.Report}).Status
}

// wantBlocks compares the blocks in the files.
func (n *node) wantBlocks(pool string, want ...string) {
	n.Helper()
	if got := n.blocks(pool); !slices.Equal(got, want) {
		n.Errorf("blocks of %s: %q, expected %q", n.name, got, want)
	}
}

func TestRestartKeepsBlocksAndEpoch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		before := n.blocks("pods")
		n.kill()
		if _, err := n.add("pods", "c2"); err != nil {
			w.Errorf("add while the agent is down: %v", err)
		}
		n.start()
		n.wantBlocks("pods", before...)
		if got := n.stored(); got.Epoch != 1 || got.State != cluster.NodeActive {
			w.Errorf("node after a restart: %+v", got)
		}
		w.check()
	})
}

func TestPartitionedNodeGoesOnAndReports(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		n.client.Partition(true)
		pass(10 * time.Minute)
		for _, c := range []string{"c2", "c3", "c4", "c5"} {
			n.mustAdd("pods", c)
		}
		_, err := n.add("pods", "c6")
		var refused *cni.Error
		if !errors.As(err, &refused) || refused.Code != cni.CodeTryAgainLater {
			w.Fatalf("add with full blocks: %v, expected code 11", err)
		}
		if text := refused.Msg + refused.Details; !strings.Contains(text, "pods") ||
			!strings.Contains(text, "last contact with the store 10m") {
			w.Errorf("the error lacks the pool or the last contact: %s", text)
		}
		if s := n.status(); len(s.Problems) == 0 || s.Pools[0].Exhausted == "" {
			w.Errorf("status of a partitioned node has no problem: %+v", s)
		}
		n.client.Partition(false)
		pass(time.Minute)
		n.mustAdd("pods", "c6")
		if s := n.status(); s.State != "active" || len(s.Problems) != 0 || s.Pools[0].Exhausted != "" {
			w.Errorf("status after the partition: %+v", s)
		}
		w.check()
	})
}

// TestReturnAfterTheBlockWasGivenAway is the sequence of flannel issue 1289: A is offline for long,
// B receives A's block, A returns with its files.
func TestReturnAfterTheBlockWasGivenAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/28"), BlockBits: 29, Hold: cluster.MinHold})
		a := w.node("a").start()
		address := a.mustAdd("pods", "c1")
		b := w.node("b").start()
		b.mustAdd("pods", "d0")
		pass(time.Minute)

		a.client.Partition(true)
		pass(50 * time.Minute)
		a.mustAdd("pods", "c2") // within hold
		pass(11 * time.Minute)
		if _, err := a.add("pods", "c3"); !errors.Is(err, local.ErrHold) {
			w.Errorf("add after hold: %v, expected %v", err, local.ErrHold)
		}
		if got := a.stored().State; got != cluster.NodeSuspect {
			w.Errorf("the node is %s before hold and margin have ended, expected suspect", got)
		}
		pass(20 * time.Minute)
		if got := a.stored(); got.State != cluster.NodeFenced || len(got.Blocks) != 0 {
			w.Errorf("node after hold: %+v, expected fenced without blocks", got)
		}
		for _, c := range []string{"d1", "d2", "d3", "d4", "d5"} {
			got := b.mustAdd("pods", c)
			if c == "d5" && !prefix("10.64.0.0/28").Contains(got) {
				w.Errorf("b received %s", got)
			}
		}
		w.check()

		a.client.Partition(false)
		pass(time.Minute)
		if _, err := a.add("pods", "c4"); err == nil {
			w.Error("a fenced node allocated an address")
		}
		s := a.status()
		if s.State != "fenced" || !strings.Contains(strings.Join(s.Problems, "\n"), address.String()) {
			w.Errorf("status of the fenced node does not list its containers: %+v", s)
		}
		a.del("pods", "c1")
		a.del("pods", "c2")
		pass(time.Minute)
		if got := a.stored(); got.State != cluster.NodeActive || got.Epoch != 2 {
			w.Errorf("node after its containers have ended: %+v, expected active in epoch 2", got)
		}
		w.check()
	})
}

func TestHoldFollowsBothClocks(t *testing.T) {
	jumps := map[string]func(n *node){
		"the wall clock jumps forward": func(n *node) { n.skew.Store(int64(2 * minHold)) },
		"the host was suspended":       func(n *node) { n.asleep.Store(int64(2 * minHold)) },
	}
	for name, jump := range jumps {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: cluster.MinHold})
				n := w.node("n1").start()
				n.mustAdd("pods", "c1")
				n.client.Partition(true)
				jump(n)
				if _, err := n.add("pods", "c2"); !errors.Is(err, local.ErrHold) {
					w.Errorf("add: %v, expected %v", err, local.ErrHold)
				}
				n.client.Partition(false)
				pass(time.Minute)
				n.mustAdd("pods", "c2")
			})
		})
	}
}

func TestWallClockBackwardsExtendsNoHold(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: cluster.MinHold})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		n.client.Partition(true)
		n.skew.Store(-int64(10 * minHold))
		pass(minHold)
		if _, err := n.add("pods", "c2"); !errors.Is(err, local.ErrHold) {
			w.Errorf("add: %v, expected %v", err, local.ErrHold)
		}
	})
}

func TestRebootWithoutStore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		blocks := n.blocks("pods")
		n.reboot()
		pass(time.Minute)
		n.change = func(o *agent.Options) {}
		n.start()
		n.client.Partition(true)
		pass(time.Minute)
		n.kill()
		// Now the agent starts without store.
		n.reboot()
		n.startPartitioned()
		if _, err := n.add("pods", "c2"); cni.CodeOf(err) != cni.CodeTryAgainLater {
			w.Errorf("add after a reboot without store: %v, expected code 11", err)
		}
		n.client.Partition(false)
		pass(time.Minute)
		n.mustAdd("pods", "c2")
		n.wantBlocks("pods", blocks...)
		w.check()
	})
}

func TestSecondHostOfANameIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("n1").start()
		other := w.node("n1")
		other.dir += "-other"
		if err := other.run(); !errors.Is(err, registry.ErrIdentity) {
			w.Errorf("the second host: %v, expected %v", err, registry.ErrIdentity)
		}
	})
}

func TestCopiedDiskIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		first := w.node("n1").start()
		first.mustAdd("pods", "c1")
		copied := w.node("n1")
		copied.dir, copied.boot = first.dir+"-copy", "another boot"
		copyDir(w.T, first.dir, copied.dir)
		err := copied.run()
		if !errors.Is(err, registry.ErrIdentity) ||
			!strings.Contains(cni.AsError(err).Details, "node reset") {
			w.Errorf("the copy: %v, expected %v with a hint", err, registry.ErrIdentity)
		}
		first.mustAdd("pods", "c2")
	})
}

func TestLostLeaseIsNoLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		n := w.node("n1").start()
		other := w.node("n2").start()
		n.mustAdd("pods", "c1")
		blocks := n.blocks("pods")
		n.client.Partition(true)
		for range 20 { // until the other agent has noticed it
			pass(time.Minute)
		}
		if got := n.stored().State; got != cluster.NodeSuspect {
			w.Errorf("the node is %s, expected suspect", got)
		}
		n.client.Partition(false)
		pass(time.Minute)
		if got := n.stored(); got.State != cluster.NodeActive || got.Epoch != 1 || !got.Live {
			w.Errorf("node after recovery: %+v", got)
		}
		n.wantBlocks("pods", blocks...)
		if s := other.status(); len(s.Problems) != 0 {
			w.Errorf("problems of the other agent: %q", s.Problems)
		}
		w.check()
	})
}

func TestEmptyBlocksReturn(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n := w.node("n1").start()
		containers := []string{"c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"}
		for _, c := range containers {
			n.mustAdd("pods", c)
		}
		pass(time.Minute)
		if got := len(n.blocks("pods")); got != 3 {
			w.Fatalf("9 of 10 addresses in use: %d blocks, expected 3", got)
		}
		for _, c := range containers[2:] {
			n.del("pods", c)
		}
		pass(9 * time.Minute)
		if got := len(n.blocks("pods")); got != 3 {
			w.Errorf("9 minutes after the last DEL: %d blocks, expected 3", got)
		}
		pass(5 * time.Minute)
		if got := len(n.blocks("pods")); got != 1 {
			w.Errorf("14 minutes after the last DEL: %d blocks, expected 1", got)
		}
		if got := len(n.stored().Blocks); got != 1 {
			w.Errorf("the store shows %d blocks, expected 1", got)
		}
		w.check()
	})
}

// TestSpareBlockIsKept excludes most addresses of a block while they are in use: the node keeps the
// other block.
func TestSpareBlockIsKept(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29}
		w.pool(p)
		n := w.node("n1").start()
		var last netip.Addr
		for _, c := range []string{"c1", "c2", "c3", "c4", "c5"} {
			last = n.mustAdd("pods", c)
		}
		pass(time.Minute)
		before := n.blocks("pods")
		if len(before) != 2 {
			w.Fatalf("5 of 5 addresses in use: blocks %q, expected 2", before)
		}
		p.Exclude = []netip.Prefix{netip.PrefixFrom(last, 30).Masked()}
		w.pool(p)
		pass(15 * time.Minute)
		n.wantBlocks("pods", before...)
	})
}

// TestPastProblemOfAClaim: the status forgets that a claim failed when no block is necessary.
func TestPastProblemOfAClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/29"), BlockBits: 29})
		n := w.node("n1").start()
		containers := []string{"c1", "c2", "c3", "c4", "c5"}
		for _, c := range containers {
			n.mustAdd("pods", c)
		}
		if _, err := n.add("pods", "c6"); cni.CodeOf(err) != cni.CodeTryAgainLater {
			w.Errorf("add to a full pool: %v, expected code 11", err)
		}
		pass(time.Minute)
		if s := n.status(); len(s.Problems) != 1 {
			w.Errorf("problems of a full pool: %q, expected one", s.Problems)
		}
		for _, c := range containers[1:] {
			n.del("pods", c)
		}
		pass(time.Minute)
		if s := n.status(); len(s.Problems) != 0 {
			w.Errorf("problems of a pool with free addresses: %q", s.Problems)
		}
	})
}

func TestDrainingNodeGivesItsBlocksBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		_, err := w.admin.Nodes.Update(w.Context(), n.stored(), func(n *cluster.Node) {
			n.State = cluster.NodeDraining
		})
		if err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		if _, err := n.add("pods", "c2"); !errors.Is(err, local.ErrDraining) {
			w.Errorf("add on a draining node: %v, expected %v", err, local.ErrDraining)
		}
		n.del("pods", "c1")
		pass(time.Minute)
		n.wantBlocks("pods")
		if got := n.stored(); len(got.Blocks) != 0 || got.State != cluster.NodeDraining {
			w.Errorf("drained node: %+v", got)
		}
		w.check()
	})
}

// TestJoinWithoutDisk joins while node.json cannot be written. The node confirms its blocks as soon
// as it can.
func TestJoinWithoutDisk(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		n := w.node("n1")
		n.startPartitioned()
		path := filepath.Join(n.dir, "node.json")
		if err := os.Remove(path); err != nil {
			w.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
			w.Fatal(err)
		}
		n.client.Partition(false)
		pass(time.Minute)
		if err := os.RemoveAll(path); err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		doc, err := n.files.Node()
		if err != nil || doc.Store == "" || doc.Epoch != 1 {
			w.Errorf("node.json: %+v, %v; expected store and epoch", doc, err)
		}
		if s := n.status(); s.State != "active" || len(s.Problems) != 0 {
			w.Errorf("status %+v", s)
		}
	})
}

func TestServiceManagerKnowsTheState(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n := w.node("n1")
		var mu sync.Mutex
		var states []string
		n.change = func(o *agent.Options) {
			o.Notify = func(state string) {
				mu.Lock()
				defer mu.Unlock()
				states = append(states, state)
			}
		}
		n.startPartitioned()
		pass(time.Minute) // the first attempt to join has failed
		n.client.Partition(false)
		pass(2 * time.Minute)
		if problems := n.status().Problems; len(problems) > 0 {
			w.Errorf("problems %q", problems)
		}
		n.stop()
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(states, "|")
		const want = "READY=1\nSTATUS=no contact with the store|STATUS=active, epoch 1|STOPPING=1"
		if got != want {
			w.Errorf("states %q, expected %q", got, want)
		}
	})
}

func TestNameIsUsedAgainWhileBlocksCool(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/28"), BlockBits: 29,
			Cooldown: cluster.Duration(time.Hour)})
		old := w.node("n1").start()
		before := old.mustAdd("pods", "c1")
		old.kill()
		pass(time.Minute)
		old.fence()
		w.node("n2").start() // reclaims
		pass(2 * time.Minute)
		next := w.node("n1")
		next.dir += "-next"
		if err := w.admin.Nodes.Delete(w.Context(), "n1"); err != nil {
			w.Fatal(err)
		}
		next.start()
		after := next.mustAdd("pods", "c1")
		if block := next.state("pods").Blocks[0].Block; block.Contains(before) {
			w.Errorf("the new host of the name has block %s while it cools down", block)
		}
		if before == after {
			w.Errorf("address %s is used again", before)
		}
		w.check()
	})
}
