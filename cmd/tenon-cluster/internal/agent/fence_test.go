package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// fence makes a node suspect and then fenced, like an operator after a power failure.
func (n *node) fence() registry.Node {
	n.Helper()
	n.kv.ExpireKey(cluster.NewKeys("c").Live(n.name))
	doc, err := n.admin.Nodes.Suspect(context.Background(), n.stored())
	if err == nil {
		doc, err = n.admin.Nodes.Fence(context.Background(), doc, "power is off", "operator")
	}
	if err != nil {
		n.Fatal(err)
	}
	return doc
}

func TestFencedWhileItAllocates(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n, other := w.node("n1").start(), w.node("n2").start()
		pass(time.Minute)
		var attached []string
		var running sync.WaitGroup
		running.Go(func() {
			for i := range 60 {
				c := fmt.Sprint("c", i)
				if _, err := n.add("pods", c); err == nil {
					attached = append(attached, c)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		time.Sleep(200 * time.Millisecond)
		fenced := n.fence()
		running.Wait()
		pass(20 * time.Second)
		if now := n.stored(); now.Epoch != 1 || len(now.Blocks) > len(fenced.Blocks) {
			w.Errorf("the node has gained since it was fenced: %+v, then %+v", fenced, now)
		}
		if len(attached) == 0 || len(attached) == 60 {
			w.Fatalf("%d attachments; the node was not fenced while it allocated", len(attached))
		}
		for _, b := range n.state("pods").Blocks {
			if b.Phase != local.Lost {
				w.Errorf("block %s is %s on a fenced node", b.Block, b.Phase)
			}
		}
		if _, err := n.add("pods", "late"); err == nil {
			w.Error("a fenced node allocated an address")
		}
		problems := strings.Join(n.status().Problems, "\n")
		if !strings.Contains(problems, attached[0]) {
			w.Errorf("the status does not name %s: %s", attached[0], problems)
		}
		w.check()
		for _, c := range attached {
			n.del("pods", c)
		}
		pass(time.Minute)
		n.mustAdd("pods", "again")
		if now := n.stored(); now.Epoch != 2 || now.State != cluster.NodeActive {
			w.Errorf("the node after its containers have ended: %+v", now)
		}
		other.mustAdd("pods", "d")
		w.check()
	})
}

func TestEvidenceFencesASuspectNode(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		dead := w.node("dead").start()
		dead.mustAdd("pods", "c1")
		off := make(chan struct{})
		n := w.node("n1")
		n.change = func(o *agent.Options) {
			o.Evidence = func(_ context.Context, node string) (string, error) {
				select {
				case <-off:
					return node + " is off", nil
				default:
					return "", errors.New("it is on")
				}
			}
		}
		n.start()
		dead.kill()
		pass(30 * time.Minute)
		if got := dead.stored(); got.State != cluster.NodeSuspect || len(got.Blocks) != 1 {
			w.Errorf("without evidence the dead node is %+v, expected suspect with its block", got)
		}
		close(off)
		pass(2 * time.Minute)
		got := dead.stored()
		if got.State != cluster.NodeFenced || len(got.Blocks) != 0 || got.Evidence != "dead is off" {
			w.Errorf("with evidence the dead node is %+v, expected fenced without blocks", got)
		}
		w.check()
	})
}

func TestWaitForHoldBeginsAgainAfterARestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: cluster.MinHold})
		dead, n := w.node("dead").start(), w.node("n1").start()
		dead.mustAdd("pods", "c1")
		pass(time.Minute)
		dead.kill()
		pass(50 * time.Minute)
		n.kill()
		n.start()
		pass(minHold)
		if got := dead.stored().State; got != cluster.NodeSuspect {
			t.Errorf("the node is %s an hour after the restart of the reclaimer, expected suspect", got)
		}
		pass(10 * time.Minute)
		if got := dead.stored().State; got != cluster.NodeFenced {
			t.Errorf("the node is %s 70 minutes after the restart, expected fenced", got)
		}
	})
}

func TestNodeWithoutHoldIsNeverFencedByTime(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")})
		dead := w.node("dead").start()
		w.node("n1").start()
		dead.mustAdd("pods", "c1")
		dead.kill()
		pass(time.Minute)
		// The dead node has never observed this hold.
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: cluster.MinHold})
		pass(5 * minHold)
		if got := dead.stored(); got.State != cluster.NodeSuspect || len(got.Blocks) != 1 {
			w.Errorf("the node is %+v, expected suspect with its block", got)
		}
	})
}

// TestHoldChangesInSafeOrder checks that a node publishes a longer hold before it observes that,
// and a shorter one afterwards.
func TestHoldChangesInSafeOrder(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: 2 * cluster.MinHold}
		w.pool(p)
		n := w.node("n1").start()
		n.mustAdd("pods", "c1")
		pass(time.Minute)
		key := cluster.NewKeys("c").Node("n1")
		deaf := func(c memkv.Call) memkv.Fault {
			if c.Write && slices.Contains(c.Keys, key) {
				return memkv.Fault{Error: errors.New("unavailable")}
			}
			return memkv.Fault{}
		}
		left := func() time.Duration { return n.state("pods").Hold.Left(n.clock) }

		n.client.Fault(deaf)
		p.Hold = cluster.MinHold
		w.pool(p)
		pass(time.Minute)
		if got := left(); got > minHold {
			w.Errorf("a node that cannot publish a shorter hold observes %s", got)
		}
		n.client.Fault(nil)
		pass(time.Minute)
		if got := time.Duration(n.stored().Holds["pods"]); got != minHold {
			w.Errorf("published %s, expected 1h", got)
		}

		n.client.Fault(deaf)
		p.Hold = 3 * cluster.MinHold
		w.pool(p)
		pass(time.Minute)
		if got := left(); got > minHold {
			w.Errorf("a node that cannot publish a longer hold observes %s", got)
		}
		n.client.Fault(nil)
		pass(time.Minute)
		if got := left(); got < 2*minHold {
			w.Errorf("after the longer hold was published, %s are left", got)
		}
	})
}
