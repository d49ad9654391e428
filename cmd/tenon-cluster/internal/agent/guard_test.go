package agent_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// kernel records the limits of blocks.
type kernel struct {
	mu    sync.Mutex
	left  map[netip.Prefix]time.Duration
	first func(netip.Prefix) // called for each new block
	err   error
}

func (k *kernel) guard(_ context.Context, left map[netip.Prefix]time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	for b := range left {
		if _, ok := k.left[b]; !ok {
			k.first(b)
		}
	}
	k.left = maps.Clone(left)
	return nil
}

func (k *kernel) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// only returns the limit of the only block.
func (k *kernel) only(w *world) time.Duration {
	w.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.left) != 1 {
		w.Errorf("limits %v, expected one", k.left)
	}
	for _, d := range k.left {
		return d
	}
	return -1
}

func TestKernelEnforcesHold(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: cluster.MinHold})
		n := w.node("n1")
		k := &kernel{first: func(b netip.Prefix) {
			for _, have := range n.state("pods").Blocks {
				if have.Block == b {
					w.Errorf("block %s was usable before its limit was in the kernel", b)
				}
			}
		}}
		n.change = func(o *agent.Options) { o.Guard = k.guard }
		n.start()
		n.mustAdd("pods", "c1")
		pass(10 * time.Minute)
		if got := k.only(w); got < 58*time.Minute || got > minHold {
			w.Errorf("limit %s after ten minutes with contact, expected about an hour", got)
		}
		n.client.Partition(true)
		pass(30 * time.Minute)
		if got := k.only(w); got <= 0 || got > minHold {
			w.Errorf("limit %s after 30 minutes without contact", got)
		}
		n.asleep.Store(int64(time.Hour)) // the kernel does not count this time
		pass(20 * time.Second)
		if got := k.only(w); got != 0 {
			w.Errorf("limit %s after the host was suspended for an hour, expected none", got)
		}
		n.client.Partition(false)
		pass(time.Minute)
		if got := k.only(w); got < 58*time.Minute {
			w.Errorf("limit %s after the partition, expected about an hour", got)
		}
	})
}

func TestKernelDropsTrafficOfLostBlocks(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16")}) // without hold
		n := w.node("n1")
		k := &kernel{first: func(netip.Prefix) {}}
		n.change = func(o *agent.Options) { o.Guard = k.guard }
		n.start()
		n.mustAdd("pods", "c1")
		pass(time.Minute)
		if len(k.left) != 0 {
			w.Errorf("limits %v of a pool without hold", k.left)
		}
		n.fence()
		pass(time.Minute)
		if got := k.only(w); got != 0 {
			w.Errorf("limit %s of a lost block, expected none", got)
		}
		n.del("pods", "c1")
		pass(time.Minute)
		if len(k.left) != 0 {
			w.Errorf("limits %v after the node has rejoined", k.left)
		}
	})
}

func TestKernelEnforcesHoldOfSharedAddresses(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: cluster.MinHold})
		n := w.node("n1")
		k := &kernel{first: func(b netip.Prefix) {
			file := filepath.Join(n.dir, "addresses", "pods", b.Addr().String())
			if _, err := os.Stat(file); err == nil {
				w.Errorf("%s was reserved before its limit was in the kernel", b)
			}
		}}
		n.change = func(o *agent.Options) { o.Guard = k.guard }
		n.start()
		unit := netip.PrefixFrom(n.mustAcquire("c1", "web-0", ""), 32)
		limit := func() (left time.Duration, limited bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			left, limited = k.left[unit]
			return left, limited
		}
		pass(10 * time.Minute)
		if got, _ := limit(); got < 58*time.Minute || got > minHold {
			w.Errorf("limit %s after ten minutes with contact, expected about an hour", got)
		}
		n.client.Partition(true)
		pass(2 * time.Hour)
		if got, limited := limit(); got != 0 || !limited {
			w.Errorf("limit %s, %t after two hours without contact, expected none", got, limited)
		}
		n.client.Partition(false)
		pass(time.Minute)
		if got, _ := limit(); got < 58*time.Minute {
			w.Errorf("limit %s after the partition, expected about an hour", got)
		}
		n.fence()
		pass(time.Minute)
		if got, limited := limit(); got != 0 || !limited {
			w.Errorf("limit %s, %t after fencing, expected none", got, limited)
		}
		n.del("pods", "c1")
		pass(time.Minute)
		if _, limited := limit(); limited {
			w.Error("a limit of a released address")
		}
	})
}

func TestHoldIsNotPublishedUnlessTheKernelEnforcesIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), Hold: cluster.MinHold})
		n := w.node("n1")
		k := &kernel{first: func(netip.Prefix) {}}
		n.change = func(o *agent.Options) { o.Guard = k.guard }
		n.start()
		n.mustAdd("pods", "c1")
		pass(time.Minute)
		if holds := n.stored().Holds; holds["pods"] != cluster.MinHold {
			w.Errorf("published holds %v", holds)
		}
		k.fail(errors.New("no nftables"))
		pass(5 * time.Minute)
		if holds := n.stored().Holds; len(holds) != 0 {
			w.Errorf("published holds %v although the kernel does not enforce them", holds)
		}
		if s := n.status(); len(s.Problems) == 0 {
			w.Error("the status has no problem")
		}
		n.mustAdd("pods", "c2")
	})
}
