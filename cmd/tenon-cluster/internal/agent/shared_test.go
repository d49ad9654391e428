package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// acquire asks the agent for a shared address: the sticky one of a name, or a requested one.
func (n *node) acquire(container, name, addr string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	q := agentcall.Request{Verb: agentcall.Acquire, Pool: "pods", Network: "net",
		Container: container, IfName: "eth0", Namespace: "ns", Name: name}
	if addr != "" {
		q.Addr = netip.MustParseAddr(addr)
	}
	r := n.agent.Handle(ctx, &q)
	if r.Error != nil {
		return netip.Addr{}, r.Error
	}
	return r.Address.Addr(), nil
}

func (n *node) mustAcquire(container, name, addr string) netip.Addr {
	n.Helper()
	got, err := n.acquire(container, name, addr)
	if err != nil {
		n.Fatalf("acquire %s%s for %s on %s: %v", name, addr, container, n.name, err)
	}
	return got
}

// released reports to the agent that the plugin has written notes.
func (n *node) released() {
	n.agent.Handle(context.Background(), &agentcall.Request{Verb: agentcall.Released})
	pass(time.Second)
}

// held describes the shared addresses that the store shows for a node.
func (n *node) held() (all []string) {
	n.Helper()
	held, err := n.admin.Shared.Held(context.Background(), n.name)
	if err != nil {
		n.Fatal(err)
	}
	for _, h := range held {
		all = append(all, fmt.Sprintf("%s %s", h.Addr, h.Container))
	}
	slices.Sort(all)
	return all
}

// reservations describes the shared addresses in the files of a node.
func (n *node) reservations() (all []string) {
	n.Helper()
	p, err := n.files.Open(context.Background(), "pods", true)
	if err != nil {
		n.Fatal(err)
	}
	defer p.Close()
	_, shared, err := p.Usage(context.Background())
	if err != nil {
		n.Fatal(err)
	}
	for _, l := range shared {
		all = append(all, fmt.Sprintf("%s %s", l.Addr, l.Owner.Container))
	}
	slices.Sort(all)
	return all
}

// agree fails the test if files and store differ, or the store violates an invariant.
func (n *node) agree() {
	n.Helper()
	if store, files := n.held(), n.reservations(); !slices.Equal(store, files) {
		n.Errorf("the store shows %v, the files have %v", store, files)
	}
	snapshot, err := n.admin.Snapshot(context.Background())
	if err != nil {
		n.Fatal(err)
	}
	for _, f := range snapshot.Check() {
		n.Errorf("invariant %d: %s", f.Invariant, f.Text)
	}
	notes, err := n.files.Notes()
	if err != nil || len(notes) > 0 {
		n.Errorf("notes are left: %v, %v", notes, err)
	}
}

func TestStickyAddress(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/22")})
		n1, n2 := w.node("n1").start(), w.node("n2").start()
		pass(time.Minute)
		got := n1.mustAcquire("c1", "web-0", "")
		other := n2.mustAcquire("c2", "web-1", "")
		if got == other {
			w.Fatal("two names have one address")
		}
		_, err := n2.acquire("c3", "web-0", "")
		if e := cni.AsError(err); e == nil || e.Code != cni.CodeTryAgainLater {
			w.Fatalf("the name has a holder on another node: %v", err)
		}
		n1.del("pods", "c1")
		n1.released()
		n1.agree()
		if again := n2.mustAcquire("c3", "web-0", ""); again != got {
			w.Errorf("the name got %s, had %s", again, got)
		}
		n2.agree()
	})
}

func TestRequestedAddress(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/22"),
			Reserve: []netip.Prefix{prefix("10.64.2.0/28")},
			Exclude: []netip.Prefix{prefix("10.64.2.7/32")}})
		n := w.node("n1").start()
		pass(time.Minute)
		n.mustAcquire("c1", "", "10.64.2.5")
		_, err := n.acquire("c2", "", "10.64.2.5")
		if e := cni.AsError(err); err == nil || e.Code != cni.CodeTryAgainLater {
			w.Error("in use:", err)
		}
		_, err = n.acquire("c2", "", "10.64.2.7")
		if e := cni.AsError(err); err == nil || e.Code != cni.CodeInvalidConfig {
			w.Error("excluded:", err)
		}
		_, err = n.acquire("c1", "", "10.64.2.6")
		if err == nil {
			w.Error("an attachment got a second address")
		}
		n.agree()
	})
}

func TestReleaseWithoutStore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/22")})
		n := w.node("n1").start()
		pass(time.Minute)
		n.mustAcquire("c1", "", "10.64.2.5")
		n.client.Partition(true)
		n.del("pods", "c1")
		n.released()
		if len(n.held()) != 1 {
			w.Fatal("the store forgot the address without a request")
		}
		n.client.Partition(false)
		pass(time.Minute)
		n.agree()
		if held := n.held(); len(held) > 0 {
			w.Errorf("the store still shows %v", held)
		}
	})
}

// TestLookWithoutLock: while the agent asks the store who holds a shared address, ADD and DEL of the
// node can lock the pool.
func TestLookWithoutLock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/22")})
		n := w.node("n1").start()
		pass(time.Minute)
		n.mustAcquire("c1", "", "10.64.2.5")
		held, err := w.admin.Shared.Held(w.Context(), "n1")
		if err != nil || len(held) != 1 {
			w.Fatalf("held: %+v, %v", held, err)
		}
		if err := w.admin.Shared.Release(w.Context(), held[0], true); err != nil { // an operator's mistake
			w.Fatal(err)
		}
		lock, err := os.Open(filepath.Join(n.dir, "addresses", "pods", "lock"))
		if err != nil {
			w.Fatal(err)
		}
		defer lock.Close()
		about := func(key string) bool { return strings.Contains(key, "10.64.2.5") }
		var asked, locked atomic.Int64
		n.client.Fault(func(c memkv.Call) memkv.Fault {
			if c.Write || !slices.ContainsFunc(c.Keys, about) {
				return memkv.Fault{}
			}
			asked.Add(1)
			if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
				locked.Add(1)
			} else if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
				w.Error(err)
			}
			return memkv.Fault{}
		})
		pass(20 * time.Minute)
		if asked.Load() == 0 || locked.Load() > 0 {
			w.Errorf("of %d requests about the address, %d were made under the lock of the pool",
				asked.Load(), locked.Load())
		}
	})
}

func TestSharedAddressesAfterReboot(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/22")})
		n := w.node("n1").start()
		pass(time.Minute)
		n.mustAcquire("c1", "", "10.64.2.5")
		got := n.mustAcquire("c2", "web-0", "")
		n.reboot()
		n.start()
		pass(2 * time.Minute)
		n.agree()
		if held := n.held(); len(held) > 0 {
			w.Errorf("the store still shows %v", held)
		}
		if again := n.mustAcquire("c3", "web-0", ""); again != got {
			w.Errorf("the name got %s, had %s", again, got)
		}
	})
}

// TestAcquireInterrupted loses each call to the store during a request, alone or with all later
// ones, and kills the agent; afterwards files and store agree.
func TestAcquireInterrupted(t *testing.T) {
	lost := rpctypes.ErrGRPCTimeout
	faults := map[string]memkv.Fault{
		"lost request": {Error: lost},
		"lost answer":  {Error: lost, Commit: memkv.Now},
		"late commit":  {Error: lost, Commit: memkv.Later, After: 3 * time.Second},
	}
	calls := 0
	run := func(w *world, at int, f memkv.Fault, after string) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/22")})
		n := w.node("n1").start()
		pass(2 * time.Minute)
		before := n.client.Calls()
		struck := false
		n.client.Fault(func(c memkv.Call) memkv.Fault {
			struck = struck || c.Number-before == at
			switch {
			case c.Number-before == at:
				return f
			case struck && after != "":
				return memkv.Fault{Error: errKilled}
			}
			return memkv.Fault{}
		})
		result := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		go func() {
			r := n.agent.Handle(ctx, &agentcall.Request{Verb: agentcall.Acquire, Pool: "pods",
				Network: "net", Container: "c1", IfName: "eth0", Namespace: "ns", Name: "web-0"})
			if r.Error != nil {
				result <- r.Error
				return
			}
			result <- nil
		}()
		err := <-result
		calls = max(calls, n.client.Calls()-before)
		if after == "killed" {
			n.kill()
			n.start()
		}
		n.client.Fault(nil)
		pass(time.Minute)
		n.agree()
		if held := len(n.held()); err == nil && held != 1 || err != nil && held != 0 {
			w.Errorf("the request ended with %v, and the store shows %v", err, n.held())
		}
		n.del("pods", "c1")
		n.released()
		pass(time.Minute)
		n.agree()
	}
	t.Run("no fault", func(t *testing.T) {
		inWorld(t, func(w *world) { run(w, 0, memkv.Fault{}, "") })
	})
	for name, f := range faults {
		for at := 1; at <= calls; at++ {
			for _, after := range []string{"", "cut off", "killed"} {
				t.Run(fmt.Sprintf("%s at call %d, %s", name, at, after), func(t *testing.T) {
					inWorld(t, func(w *world) { run(w, at, f, after) })
				})
			}
		}
	}
}

// addIn is add for a pod of a namespace with a quota.
func (n *node) addIn(namespace, container string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		p, err := n.files.Open(ctx, "pods", false)
		if err != nil {
			return netip.Addr{}, err
		}
		got, err := p.Allocate(ctx, local.Request{Owner: owner(container), Namespace: namespace})
		p.Close()
		q := agentcall.Request{Pool: "pods", Namespace: namespace}
		var full *local.FullError
		switch {
		case errors.As(err, &full):
			q.Verb, q.Have = agentcall.Grow, full.Blocks
		case errors.Is(err, local.ErrUnconfirmed), errors.Is(err, local.ErrNoPool):
			q.Verb = agentcall.Grow
		case errors.Is(err, local.ErrQuota):
			q.Verb = agentcall.Draw
		default:
			return got.Addr.Addr(), err
		}
		if r := n.agent.Handle(ctx, &q); r.Error != nil {
			return netip.Addr{}, r.Error
		}
	}
}

func TestQuota(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/22"), Quota: map[string]uint64{"ns": 20}})
		var nodes []*node
		for i := range 3 {
			nodes = append(nodes, w.node(fmt.Sprint("n", i)).start())
		}
		pass(time.Minute)
		var has []string // "NODE/CONTAINER"
		fill := func() {
			for i := range 60 {
				n := nodes[i%3]
				container := fmt.Sprint("c", len(has), "-", i)
				if _, err := n.addIn("ns", container); err == nil {
					has = append(has, fmt.Sprint(i%3, "/", container))
				} else if cni.AsError(err).Code != cni.CodeTryAgainLater {
					w.Error(err)
				}
			}
		}
		fill()
		pass(time.Minute) // unused tokens return
		fill()
		if len(has) != 20 {
			w.Errorf("%d addresses, the quota is 20", len(has))
		}
		for _, n := range nodes {
			n.agree()
		}
		for _, one := range has {
			var i int
			var container string
			if _, err := fmt.Sscanf(one, "%d/%s", &i, &container); err != nil {
				w.Fatal(err)
			}
			nodes[i].del("pods", container)
		}
		pass(time.Minute)
		for _, n := range nodes {
			n.agree()
			if drawn, err := w.admin.Quotas.Drawn(w.Context(), n.name); err != nil || len(drawn) > 0 {
				w.Errorf("node %s keeps tokens %v, %v", n.name, drawn, err)
			}
		}
		// One node may use the whole quota afterwards.
		has = nil
		for i := range 25 {
			if _, err := nodes[0].addIn("ns", fmt.Sprint("d", i)); err == nil {
				has = append(has, "")
			}
		}
		if len(has) != 20 {
			w.Errorf("one node got %d addresses, the quota is 20", len(has))
		}
	})
}
