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
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/victim"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/tracer"
)

var every = flag.Bool("every", false, "kill at every point, instead of at some random ones")

// some is the number of points of a sweep without -every.
const some = 8

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
	if _, err := c.reg.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := smallPool()
	pool.Range = netip.MustParsePrefix("10.64.0.0/16") // victims keep their last blocks
	pool.Cooldown = cluster.Duration(time.Millisecond)
	if _, err := c.reg.PutPool(t.Context(), pool); err != nil {
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

// run runs a process, traced if f is not nil, and returns whether it was killed.
func (c *crowd) run(l victim.Life, f *tracer.Fault) (changes int, killed bool) {
	c.Helper()
	var err error
	var stderr string
	c.etcd.Inside(func() {
		cmd := l.Command()
		if f != nil {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var r *tracer.Run
			if r, err = tracer.Trace(cmd, nil, *f); err == nil {
				changes, killed, stderr = len(r.Changes), r.Killed, string(r.Stderr)
				if r.Code != 0 && !killed {
					err = fmt.Errorf("exit status %d", r.Code)
				}
			}
			return
		}
		var text strings.Builder
		cmd.Stderr = &text
		err, stderr = cmd.Run(), text.String()
	})
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	if err != nil && !killed {
		c.Fatalf("%s run %d: %v\n%s", l.Name, l.Run, err, stderr)
	}
	return changes, killed
}

// survive kills a victim, starts it again, and checks that nothing leaked and no address has two
// holders.
func (c *crowd) survive(l victim.Life, f *tracer.Fault) {
	c.Helper()
	if _, killed := c.run(l, f); !killed {
		return // the point lies behind the end of this run
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
	_, blocks, err := c.reg.Owned(c.Context(), l.Name)
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

// points returns the points at which a sweep kills.
func points(n int) (all []int) {
	for i := range n {
		if *every || n <= some || rand.N(n) < some {
			all = append(all, i)
		}
	}
	return all
}

// sweep kills victims at points, several at a time.
func (c *crowd) sweep(points []int, kill func(i int)) {
	limit := make(chan struct{}, 4)
	var running sync.WaitGroup
	for _, i := range points {
		limit <- struct{}{}
		running.Go(func() {
			kill(i)
			<-limit
		})
	}
	running.Wait()
}

// TestKillAtEachRequest kills the process of an agent before and after each request to etcd
// (scenario 3).
func TestKillAtEachRequest(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const requests = 60 // more than a life makes
	c.sweep(points(2*requests), func(i int) {
		l := c.victim(fmt.Sprintf("request-%d", i))
		l.Kill, l.After = 1+i/2, i%2 == 1
		c.survive(l, nil)
	})
}

// TestKillAtEachChange kills the process of an agent before each change of its files.
func TestKillAtEachChange(t *testing.T) {
	t.Parallel()
	testnet.Require(t, tracer.Supported)
	c := newCrowd(t)
	changes, _ := c.run(c.victim("count"), &tracer.Fault{})
	t.Logf("%d changes", changes)
	c.sweep(points(changes), func(i int) {
		c.survive(c.victim(fmt.Sprintf("change-%d", i)), &tracer.Fault{Effect: tracer.Kill, N: i})
	})
}
