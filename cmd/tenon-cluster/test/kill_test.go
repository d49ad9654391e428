package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/victim"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

var every = flag.Bool("every", false, "kill at every point, instead of at some random ones")

// crowd is a store with a node that holds addresses all the time, for victims one after another.
type crowd struct {
	*testing.T
	etcd  *lab.Cluster
	reg   *registry.Registry
	other map[netip.Addr]bool
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{T: t, etcd: lab.Start(t, lab.Options{Members: 1}), other: map[netip.Addr]bool{}}
	client := c.etcd.Client(nil)
	c.reg = sim.Registry(client, 0)
	if _, err := c.reg.Meta.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := smallPool()
	pool.Range = netip.MustParsePrefix("10.64.0.0/16") // victims keep their last blocks
	pool.Cooldown = cluster.Duration(time.Millisecond)
	if _, err := c.reg.Pools.Put(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	n := sim.New(sim.Options{Name: "other", Client: client, Dir: filepath.Join(ram(t), "other")})
	n.Boot()
	t.Cleanup(n.Stop)
	for i := range 20 {
		a, err := n.Add(within(t, testnet.Patience), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		c.other[a] = true
	}
	return c
}

// victim returns the life of a new node.
func (c *crowd) victim(name string) victim.Life {
	dir := filepath.Join(ram(c), name)
	return victim.Life{Endpoints: c.etcd.Endpoints(), Name: name, Dir: dir, Events: dir + ".events",
		TTL: 3 * time.Second}
}

// run runs a process. It returns the number of its requests or, if f is not nil, of its changes,
// and whether it was killed.
func (c *crowd) run(l victim.Life, f *tracer.Fault) (points int, killed bool) {
	c.Helper()
	var err error
	var stdout, stderr string
	c.etcd.Inside(func() {
		cmd := l.Command()
		if f != nil {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var r *tracer.Run
			if r, err = tracer.Trace(cmd, nil, *f); err == nil {
				points, killed, stderr = len(r.Changes), r.Killed, string(r.Stderr)
				if r.Code != 0 && !killed {
					err = fmt.Errorf("exit status %d", r.Code)
				}
			}
			return
		}
		var out, text strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &text
		err, stdout, stderr = cmd.Run(), out.String(), text.String()
	})
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	if err == nil && f == nil {
		_, err = fmt.Sscan(stdout, &points)
	}
	if err != nil && !killed {
		c.Fatalf("%s run %d: %v\n%s", l.Name, l.Run, err, stderr)
	}
	return points, killed
}

// survive kills a victim, starts it again, and checks that nothing leaked and no address has two
// holders. It returns false if the point lies behind the end of this run.
func (c *crowd) survive(l victim.Life, f *tracer.Fault) bool {
	c.Helper()
	if _, killed := c.run(l, f); !killed {
		return false
	}
	l.Run, l.Kill, l.Last = l.Run+1, 0, true
	c.run(l, nil)
	events, err := victim.Read(l.Events)
	if err != nil {
		c.Error(err)
	}
	for name, e := range events {
		if c.other[e.Addr] {
			c.Errorf("%s: %s has address %s of another node", l.Name, name, e.Addr)
		}
	}
	c.clean(l)
	return true
}

// clean checks the files of the victim and the store.
func (c *crowd) clean(l victim.Life) {
	c.Helper()
	n := sim.New(sim.Options{Name: l.Name, Dir: l.Dir})
	left, err := n.Asleep().Leftovers(c.Context())
	if err != nil {
		c.Error(err)
	}
	for _, text := range left {
		c.Errorf("left over: %s", text)
	}
	own, err := n.Blocks(c.Context())
	if err != nil {
		c.Error(err)
	}
	_, blocks, err := c.reg.Blocks.Owned(c.Context(), l.Name)
	if err != nil {
		c.Error(err)
	}
	if len(own) != len(blocks) {
		c.Errorf("%s has %d blocks in its files, and the store gives it %d", l.Name, len(own),
			len(blocks))
	}
	snapshot, err := c.reg.Snapshot(context.Background())
	if err != nil {
		c.Error(err)
	}
	for _, f := range snapshot.Check() {
		c.Errorf("invariant %d: %s", f.Invariant, f.Text)
	}
}

// points returns the points at which a sweep kills: some of n random ones, or all with -every.
func points(n, some int) []int {
	all := rand.Perm(n)
	if *every {
		return all
	}
	return all[:min(n, some)]
}

// sweep kills victims at points, several at a time. At most some of the last points may lie behind
// the end of a run.
func (c *crowd) sweep(points []int, kill func(i int) bool) {
	c.Helper()
	limit := make(chan struct{}, 4)
	var running sync.WaitGroup
	var killed atomic.Int64
	for _, i := range points {
		limit <- struct{}{}
		running.Go(func() {
			defer func() { <-limit }()
			if kill(i) {
				killed.Add(1)
			}
		})
	}
	running.Wait()
	if n := int(killed.Load()); 2*n < len(points) {
		c.Errorf("only %d of %d victims were killed", n, len(points))
	}
}

// TestKillAtEachRequest kills the process of an agent before and after each request to etcd
// (scenario 3).
func TestKillAtEachRequest(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	requests, _ := c.run(c.victim("count"), nil)
	t.Logf("%d requests", requests)
	c.sweep(points(2*requests, 8), func(i int) bool {
		l := c.victim(fmt.Sprintf("request-%d", i))
		l.Kill, l.After = 1+i/2, i%2 == 1
		return c.survive(l, nil)
	})
}

// TestKillAtEachChange kills the process of an agent before each change of its files.
func TestKillAtEachChange(t *testing.T) {
	t.Parallel()
	testnet.Require(t, tracer.Supported)
	c := newCrowd(t)
	changes, _ := c.run(c.victim("count"), &tracer.Fault{})
	t.Logf("%d changes", changes)
	c.sweep(points(changes, 8), func(i int) bool {
		return c.survive(c.victim(fmt.Sprintf("change-%d", i)),
			&tracer.Fault{Effect: tracer.Kill, N: i})
	})
}
