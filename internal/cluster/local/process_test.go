package local_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// childEnv is the environment variable with the name of the function that a process runs.
const childEnv = "LOCAL_TEST_CHILD"

// TestMain runs the tests or, in a process that a test started, the child.
func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		err := map[string]func([]string) error{"churn": churn, "full-disk": fullDisk}[name](
			os.Args[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testnet.Main(m)
}

func child(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	return cmd
}

// two is a pool of two blocks with 13 addresses each.
var two = cluster.Pool{Name: "two", Range: netip.MustParsePrefix("10.64.0.0/27"), BlockBits: 28}

// churn allocates, claims and releases addresses of pool two until it fails. Its arguments are a
// name, the directory, a directory for claims, and the number of rounds.
func churn(args []string) error {
	name, dir, claims, rounds := args[0], args[1], args[2], 0
	fmt.Sscan(args[3], &rounds)
	store := local.New(local.Options{Dir: dir, BootID: bootID})
	for i := range rounds {
		if err := churnOnce(store, claims, fmt.Sprintf("%s-%d", name, i)); err != nil {
			return err
		}
		if i == 0 {
			fmt.Println("running")
		}
	}
	return nil
}

func churnOnce(store *local.Store, claims, container string) error {
	var got local.Allocation
	err := locked(store, "two", func(p *local.Pool) (err error) {
		got, err = p.Allocate(ctx, local.Request{Owner: owner(container), Namespace: "ns"})
		return err
	})
	if err != nil {
		return err
	}
	claim := filepath.Join(claims, got.Addr.Addr().String())
	f, err := os.OpenFile(claim, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("second holder: %w", err)
	}
	if err := errors.Join(f.Close(), os.Remove(claim)); err != nil {
		return err
	}
	return locked(store, "two", func(p *local.Pool) error {
		_, err := p.Release(ctx, owner(container))
		return err
	})
}

// locked calls fn with a locked pool.
func locked(store *local.Store, pool string, fn func(*local.Pool) error) error {
	p, err := store.Open(ctx, pool, false)
	if err != nil {
		return err
	}
	return errors.Join(fn(p), p.Close())
}

// TestProcesses: concurrent processes never hold an address twice and leave nothing behind.
func TestProcesses(t *testing.T) {
	t.Parallel()
	n, claims := newNode(t), t.TempDir()
	n.state(two, owned("10.64.0.0/28"), owned("10.64.0.16/28"))
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			cmd := child("churn", fmt.Sprint("p", i), n.dir, claims, "40")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	n.wantLeases("two")
	n.wantNotes()
}

// TestKilledProcesses: processes that SIGKILL ends at any moment leave no address with two holders,
// and nothing that DEL does not release. Meanwhile the agent writes the state.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	n, claims := newNode(t), t.TempDir()
	n.state(two, owned("10.64.0.0/28"), owned("10.64.0.16/28"))
	for i := range 20 {
		var killed [2]*exec.Cmd
		var stderr [2]strings.Builder
		for j := range killed {
			killed[j] = child("churn", fmt.Sprintf("k%d-%d", i, j), n.dir, claims, "1000000")
			killed[j].Stderr = &stderr[j]
			running, err := killed[j].StdoutPipe()
			n.must(err)
			n.must(killed[j].Start())
			_, _ = running.Read(make([]byte, 1))
		}
		time.Sleep(rand.N(30 * time.Millisecond)) // to a random instant
		n.change("two", func(s *local.State) { s.Blocks[1].Generation = int64(i) })
		for j, cmd := range killed {
			n.must(cmd.Process.Kill())
			if cmd.Wait(); stderr[j].Len() > 0 {
				t.Fatal(stderr[j].String())
			}
		}
		for _, lease := range n.leases("two") {
			a, container, _ := strings.Cut(lease, " ")
			if err := os.Remove(filepath.Join(claims, a)); err != nil &&
				!errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			n.release("two", owner(container))
		}
		if left, err := os.ReadDir(claims); err != nil || len(left) > 0 {
			t.Fatalf("claims without reservation: %v, %v", left, err)
		}
		n.wantLeases("two")
	}
	n.wantNotes()
}

// TestKilledAtEachChange: a process dies right before or after each change of an allocation, of a
// release and of a collection. DEL and GC then release everything, and a shared address has a note
// unless it is still reserved.
func TestKilledAtEachChange(t *testing.T) {
	t.Parallel()
	died := errors.New("died")
	work := map[string]func(*local.Pool) error{
		"allocate": func(p *local.Pool) error {
			_, err := p.Allocate(ctx, local.Request{Owner: owner("c1")})
			return err
		},
		"put": func(p *local.Pool) error {
			_, err := p.Put(ctx, addr("10.64.0.19"), local.Request{Owner: owner("c1")})
			return err
		},
		"release": func(p *local.Pool) error {
			_, err := p.Release(ctx, owner("c0"))
			return err
		},
		"collect": func(p *local.Pool) error {
			_, _, err := p.Collect(ctx, "net", nil)
			return err
		},
	}
	for name, do := range work {
		for i, finished := 1, false; !finished; i++ {
			for _, after := range []bool{false, true} {
				n := newNode(t)
				n.state(two, owned("10.64.0.0/28"))
				n.put("two", "10.64.0.18", "c0") // not in the node's block
				changes := 0
				store := local.New(local.Options{Dir: n.dir, BootID: bootID,
					Change: func(_ string, apply, _ func() error) error {
						if changes++; changes > i || changes == i && !after {
							return died
						}
						return apply()
					}})
				p, err := store.Open(ctx, "two", false)
				n.must(err)
				err = do(p)
				n.must(p.Abandon())
				finished = changes < i
				if !errors.Is(err, died) && !finished && !after {
					t.Errorf("%s, change %d: %v", name, i, err)
				}
				reserved := strings.Contains(strings.Join(n.leases("two"), ","), "10.64.0.18 c0")
				noted := len(n.notes()) > 0
				if !reserved && !noted {
					t.Errorf("%s, change %d, after %t: a shared address without reservation and note",
						name, i, after)
				}
				n.release("two", owner("c0"))
				n.release("two", owner("c1"))
				n.wantLeases("two")
			}
		}
	}
}

// TestFullDisk runs an allocation with an increasing number of free pages, and of free inodes: it
// succeeds or leaves nothing behind, and the state stays readable.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	cmd := child("full-disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// fullDisk runs in a separate mount namespace. Its argument is the mount point.
func fullDisk(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, limit := range []string{"nr_blocks", "nr_inodes"} {
		failed, succeeded := 0, 0
		for i := 2; i < 24; i++ {
			err := allocateOn(args[0], fmt.Sprintf("%s=%d", limit, i))
			switch {
			case err == nil:
				succeeded++
			case errors.Is(err, unix.ENOSPC):
				failed++
			default:
				return fmt.Errorf("%s=%d: %w", limit, i, err)
			}
		}
		if failed < 4 || succeeded < 4 {
			return fmt.Errorf("%s: the disk was full %d times, and not %d times", limit, failed,
				succeeded)
		}
	}
	return nil
}

// allocateOn saves a state, allocates and releases on a small file system. The error wraps ENOSPC
// if that was full and nothing is left of the failed step.
func allocateOn(dir, options string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	store := local.New(local.Options{Dir: dir, BootID: bootID})
	save := func(epoch uint64) error {
		return locked(store, "two", func(p *local.Pool) error {
			p.State = local.State{Pool: two, Boot: bootID, Epoch: epoch,
				Blocks: []local.Block{owned("10.64.0.0/28")}}
			if err := p.State.Pool.Canonicalize(); err != nil {
				return err
			}
			return p.Save()
		})
	}
	if err := save(1); err != nil {
		return err
	}
	full := save(2)
	add := locked(store, "two", func(p *local.Pool) error {
		if want := uint64(2); p.State.Epoch != want && full == nil || p.Err() != nil {
			return fmt.Errorf("epoch %d, %v", p.State.Epoch, p.Err())
		}
		_, err := p.Allocate(ctx, local.Request{Owner: owner("c1")})
		return err
	})
	err := locked(store, "two", func(p *local.Pool) error {
		leases, err := p.Leases(ctx)
		if want := 1; err == nil && add == nil && len(leases) != want ||
			err == nil && add != nil && len(leases) > 0 {
			err = fmt.Errorf("leases %v after %v", leases, add)
		}
		_, releaseErr := p.Release(ctx, owner("c1"))
		return errors.Join(err, releaseErr)
	})
	if err != nil {
		return err
	}
	return errors.Join(full, add)
}
