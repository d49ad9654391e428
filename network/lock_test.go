package network_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// LIF-06, DIS-37: operations on one container never overlap, over all its attachments and all
// clients of a state directory; operations on different containers do.
func TestContainersOneAtATime(t *testing.T) {
	t.Parallel()
	var running sync.Map // container → *atomic.Int32
	var most atomic.Int32
	all := new(atomic.Int32)
	busy := func(_ context.Context, c invoke.Call) ([]byte, bool) {
		env := c.Env
		count, _ := running.LoadOrStore(env.ContainerID, new(atomic.Int32))
		if n := count.(*atomic.Int32).Add(1); n > 1 {
			t.Errorf("%d operations of %s", n, env.ContainerID)
		}
		for m := all.Add(1); m > most.Load(); {
			most.Store(m)
		}
		time.Sleep(2 * time.Millisecond)
		all.Add(-1)
		count.(*atomic.Int32).Add(-1)
		return []byte("{}"), true
	}
	state := t.TempDir()
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			// Every goroutine has its own client, as in another process.
			c := &network.Client{Isolated: true, StateDir: state,
				Caller: invoke.Fake{"x": {cni.Add: busy, cni.Del: busy, cni.Check: busy}}}
			n := list(t, "1.1.0", fmt.Sprintf("net%d", i%3), "x")
			q := request(fmt.Sprintf("c%d", i%4))
			q.IfName = fmt.Sprintf("eth%d", i)
			if _, err := c.Add(t.Context(), n, q); err != nil {
				t.Error(err)
			}
			a := q.Attachment(n.Name)
			if err := c.Check(t.Context(), a, nil); err != nil {
				t.Error(err)
			}
			if err := c.Del(t.Context(), a, network.Fallback{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most.Load() < 2 {
		t.Error("containers did not overlap")
	}
	locks, err := os.ReadDir(filepath.Join(state, "locks"))
	if err != nil {
		t.Fatal(err)
	}
	if len(locks) > 0 {
		t.Errorf("lock files remain: %v", locks)
	}
}

// A caller that cannot wait gets an error that names the lock, and can try again later.
func TestLockDeadline(t *testing.T) {
	t.Parallel()
	h := newHang(t, cni.Add)
	n := list(t, "1.1.0", "red", "slow")
	added := h.add(n)
	a := request("c1").Attachment("red")
	for want, call := range map[string]func(context.Context) error{
		"11 red/c1/eth0: container c1 is busy: context deadline exceeded": func(ctx context.Context) error {
			return h.Del(ctx, a, network.Fallback{})
		},
		"11 network red: network red is busy: context deadline exceeded": func(ctx context.Context) error {
			return h.GC(ctx, n, keep())
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := call(ctx)
		cancel()
		if got := describe(err); got != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	// The GC that gave up blocks no other operation.
	if err := h.Del(t.Context(), request("c2").Attachment("red"),
		network.Fallback{Network: n}); err != nil {
		t.Error(err)
	}
	close(h.leave)
	if err := <-added; err != nil {
		t.Error(err)
	}
	// The operations that gave up have stopped waiting.
	if left, err := os.ReadDir(filepath.Join(h.StateDir, "locks")); err != nil || len(left) > 0 {
		t.Errorf("lock files %v, %v", left, err)
	}
	if err := h.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Error(err)
	}
}

// Operations that begin after a GC do not overtake it.
func TestLockExclusiveIsNotOvertaken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	release, err := network.LockShared(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 2)
	var wg sync.WaitGroup
	take := func(name string, lock func(context.Context, string) (func(), error)) {
		wg.Go(func() {
			release, err := lock(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			order <- name
			release()
		})
	}
	take("exclusive", network.LockExclusive)
	waitForExclusive(t, path)
	take("shared", network.LockShared)
	time.Sleep(20 * time.Millisecond) // more than the second needs to overtake
	if len(order) > 0 {
		t.Errorf("%s before the first was released", <-order)
	}
	release()
	wg.Wait()
	if first, second := <-order, <-order; first != "exclusive" {
		t.Errorf("%s before %s", first, second)
	}
}

// waitForExclusive returns when an operation waits for the exclusive lock on a file that is locked
// in shared mode.
func waitForExclusive(t *testing.T, path string) {
	t.Helper()
	testnet.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release, err := network.LockShared(ctx, path)
		if err != nil {
			return nil
		}
		release()
		return errors.New("no operation waits")
	})
}

// A lock works between processes, and ends with the process.
func TestLockOtherProcess(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"released", "killed"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lock")
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "hold-lock", path)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "locked\n" {
				t.Fatalf("%q, %v", line, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := network.LockShared(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("locked twice: %v", err)
			}
			if way == "killed" {
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
			stdin.Close()
			release, err := network.LockShared(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			release()
			waitForRemoval(t, path)
			_ = cmd.Wait()
		})
	}
}

// waitForRemoval waits until a lock file is removed.
func waitForRemoval(t *testing.T, path string) {
	t.Helper()
	testnet.Eventually(t, func() error {
		if _, err := os.Stat(path); err == nil {
			return errors.New("the lock file is left")
		}
		return nil
	})
}

func TestLockDirectoryMissing(t *testing.T) {
	t.Parallel()
	c := &network.Client{Isolated: true,
		StateDir: filepath.Join(tree(t, map[string]string{"file": ""}), "file")}
	err := c.Del(t.Context(), request("c1").Attachment("red"), network.Fallback{})
	if cni.CodeOf(err) != cni.CodeIOFailure ||
		!strings.Contains(describe(err), "lock network red") {
		t.Errorf("got %s", describe(err))
	}
}
