package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// TestTraffic runs hosts with the built programs: any pod reaches any pod, while blocks are added,
// a host joins, another one dies and returns, and agents are killed; nothing is left (scenario 19).
func TestTraffic(t *testing.T) {
	t.Parallel()
	programs := build(t)
	for mode, mtu := range map[string]int{"host-gw": 1500, "vxlan": 1450, "auto": 1450} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, programs, mode,
				[]string{"10.64.0.0/20", "--block-bits", "29", "--cooldown", "1s"},
				[]string{"fd00:64::/112", "--block-bits", "125", "--cooldown", "1s"})
			hosts := []*host{f.join(), f.join()}
			if mode == "host-gw" {
				hosts = append(hosts, f.join())
			} else {
				hosts = append(hosts, f.joinFar())
			}
			for _, h := range hosts {
				h.add()
				if h.mtu != mtu {
					t.Errorf("%s: MTU %d is published, expected %d", h.name, h.mtu, mtu)
				}
			}
			f.full(hosts...)
			for range 6 { // one more than a block has
				hosts[0].add()
			}
			if n := len(hosts[0].blocks()); n < 4 {
				t.Errorf("%d blocks, expected two of each pool", n)
			}
			f.full(hosts...)
			f.join().add()
			f.full(f.hosts...)
			f.die(hosts[2])
			f.sweep(hosts[1])
			f.drain()
			f.end()
		})
	}
}

// die kills a host, releases it, and lets it return.
func (f *fleet) die(dead *host) {
	f.Helper()
	blocks := dead.blocks()
	dead.stop(syscall.SIGKILL)
	dead.Cut()
	// The lease would end by itself after 30 s.
	if _, err := f.etcd.Client(nil).Delete(f.Context(),
		cluster.NewKeys(sim.Cluster).Live(dead.name)); err != nil {
		f.Fatal(err)
	}
	f.operate("release", "--node", dead.name, "--evidence", "the test has cut it off", "--yes")
	var others []*host
	for _, h := range f.hosts {
		if h != dead {
			others = append(others, h)
		}
	}
	without(f, others, blocks)
	snapshot, err := f.reg.Snapshot(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range snapshot.Blocks {
		if b.Owner == dead.name && b.State != cluster.BlockCooling {
			f.Errorf("block %s of the released node is %s", b.Block.Block, b.State)
		}
	}
	f.full(others...)
	dead.Join()
	dead.restoreRoutes()
	dead.start()
	dead.del() // its blocks are lost while they have pods
	testnet.Eventually(f, func() error {
		n, err := f.reg.Nodes.Read(f.Context(), dead.name)
		if err == nil && (n.State != cluster.NodeActive || n.Epoch != 2) {
			err = fmt.Errorf("the node that returned is %s in epoch %d", n.State, n.Epoch)
		}
		return err
	})
	dead.add()
	f.full(f.hosts...)
}

// restoreRoutes adds the default routes again, which the kernel has removed with the link.
func (h *host) restoreRoutes() {
	gateway, gateway6 := "10.99.254.1", "2001:db8::fe"
	if h.Addr == "10.98.0.2" {
		gateway, gateway6 = "10.98.0.1", "2001:db8:1::fe"
	}
	h.NS.Batch("route replace default via "+gateway, "route replace default via "+gateway6)
}

// sweep kills the agent of a host while it programs routes, at some changes, and starts it again:
// the kernel then has the same objects as before.
func (f *fleet) sweep(h *host) {
	f.Helper()
	testnet.Require(f, tracer.Supported)
	h.stop(syscall.SIGTERM)
	want := h.state()
	for _, at := range points(h.killed(-1, want), 3) {
		h.killed(at, want)
		h.start()
		testnet.Eventually(f, func() error {
			if d := testnet.Diff(want, h.state()); d != "" {
				return errors.New("after a kill and a start:\n" + d)
			}
			return nil
		})
		h.stop(syscall.SIGKILL)
	}
	h.start()
	f.full(f.hosts...)
}

// killed removes what the agent of a host has programmed, runs the agent until it has made a number
// of changes, or all, and returns how many.
func (h *host) killed(at int, want string) int {
	h.f.Helper()
	h.NS.Command("ip", "-4", "route", "flush", "protocol", "117")
	h.NS.Command("ip", "-6", "route", "flush", "protocol", "117")
	if strings.Contains(want, "tenon-vx") {
		h.NS.Command("ip", "link", "delete", "tenon-vx")
	}
	file := filepath.Join(h.dir, "pid")
	_ = os.Remove(file)
	agent := h.command("tenon-cluster", "agent")
	const leavePID = `echo $$ >"$0"; exec "$@"`
	cmd := exec.Command("sh", append([]string{"-c", leavePID, file}, agent.Args...)...)
	cmd.Env = agent.Env
	fault := tracer.Fault{Effect: tracer.Kill, N: at}
	if at < 0 {
		fault = tracer.Fault{}
	}
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() { // an agent that has made all changes
		defer close(watched)
		_ = testnet.Try(func() error {
			select {
			case <-ended:
				return nil
			default:
			}
			if h.state() != want {
				return errors.New("not yet")
			}
			return nil
		})
		select {
		case <-ended:
			return
		default:
		}
		var pid int
		if text, err := os.ReadFile(file); err == nil {
			_, _ = fmt.Sscan(string(text), &pid)
		}
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	var r *tracer.Run
	err := h.NS.Run(func() (err error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r, err = tracer.Trace(cmd, nil, fault)
		return err
	})
	close(ended)
	<-watched
	if err != nil {
		h.f.Fatal(err)
	}
	if !r.Killed {
		h.f.Fatalf("the agent of %s ended: %d\n%s", h.name, r.Code, r.Stderr)
	}
	return len(r.Changes)
}

// drain detaches all pods, and waits until the nodes have returned all blocks.
func (f *fleet) drain() {
	f.Helper()
	for _, h := range f.hosts {
		h.del()
		f.operate("node", "drain", h.name)
	}
	testnet.Eventually(f, func() error {
		snapshot, err := f.reg.Snapshot(f.Context())
		for _, b := range snapshot.Blocks {
			if b.State != cluster.BlockCooling {
				err = errors.Join(err, fmt.Errorf("block %s of %s is %s", b.Block.Block, b.Owner, b.State))
			}
		}
		for _, x := range snapshot.Holders {
			err = errors.Join(err, fmt.Errorf("%s has a holder", x.Addr))
		}
		for _, x := range snapshot.Check() {
			err = errors.Join(err, fmt.Errorf("invariant %d: %s", x.Invariant, x.Text))
		}
		return err
	})
}

// end detaches all pods, stops the agents, removes their routes, and checks that nothing is left.
func (f *fleet) end() {
	f.Helper()
	for _, h := range f.hosts {
		h.del()
		h.stop(syscall.SIGTERM)
		if _, err := h.run("tenon-cluster", "agent", "--remove"); err != nil {
			f.Error(err)
		}
		h.clean()
	}
}

// clean checks that the host has the objects that it had before, and no reservations.
func (h *host) clean() {
	h.f.Helper()
	h.NS.Command("ip", "link", "delete", "pods0") // DEL keeps it, as upstream does
	diff := testnet.Diff(h.objects, testnet.Objects(h.f, []*testnet.Namespace{h.NS}))
	for line := range strings.Lines(diff) {
		// The table stays with chains and empty sets.
		if !strings.Contains(line, " nft ") || strings.Contains(line, `"elem"`) {
			h.f.Errorf("left on %s: %s", h.name, line)
		}
	}
	store := h.files()
	names, err := store.Pools()
	if err != nil || len(names) != 2 {
		h.f.Errorf("pools of %s: %v, %v", h.name, names, err)
	}
	for _, name := range names {
		p, err := store.Open(h.f.Context(), name, true)
		if err != nil {
			h.f.Error(err)
			continue
		}
		leases, err := p.Leases(h.f.Context())
		if err = errors.Join(err, p.Close()); err != nil || len(leases) > 0 {
			h.f.Errorf("reservations of %s: %v, %v", h.name, leases, err)
		}
	}
}
