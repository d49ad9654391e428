package filestore_test

import (
	"bytes"
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

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// claim records in the file system that only the caller holds an address.
func claim(claims, address, container string) error {
	f, err := os.OpenFile(filepath.Join(claims, address), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("second holder: %w", err)
	}
	_, err = f.WriteString(container)
	return errors.Join(err, f.Close())
}

// churn allocates, claims and releases addresses for the container in its first argument, for the
// number of rounds in the last one.
func churn(args []string) int {
	name, path, claims, rounds := args[0], args[1], args[2], 0
	fmt.Sscan(args[3], &rounds)
	n := network(path, bootID)
	sets := []ipam.RangeSet{{{Subnet: netip.MustParsePrefix("10.0.0.0/26")}},
		{{Subnet: netip.MustParsePrefix("2001:db8::/64")}}}
	err := ipam.CanonicalizeSets(sets)
	for i := 0; i < rounds && err == nil; i++ {
		err = churnOnce(n, sets, claims, fmt.Sprintf("%s-%d", name, i))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func churnOnce(n storetest.Network, sets []ipam.RangeSet, claims, container string) error {
	all, err := n.Allocate(ctx, ipam.Request{Owner: owner(container), Sets: sets})
	if err != nil {
		return err
	}
	for _, a := range all {
		if err := claim(claims, a.Addr.String(), container); err != nil {
			return err
		}
	}
	for _, a := range all {
		if err := os.Remove(filepath.Join(claims, a.Addr.String())); err != nil {
			return err
		}
	}
	return n.Release(ctx, owner(container))
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	path, claims := newPath(t), t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if out, err := child("churn", fmt.Sprint("p", i), path, claims, "25").
				CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	wantNoLeases(t, path)
	wantConsistent(t, path, storetest.Sets(t, "10.0.0.0/26"))
}

func wantNoLeases(t testing.TB, path string) {
	t.Helper()
	for _, line := range listing(t, path) {
		if !strings.HasPrefix(line, "l") {
			t.Errorf("left: %s", line)
		}
	}
}

// TestKilledProcesses: processes that are killed at any moment leave nothing that DEL does not
// remove, and no address with two holders, with and without hard links.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	for _, linkError := range []string{"", "EPERM"} {
		path, claims := newPath(t), t.TempDir()
		n := network(path, bootID)
		for i := range 20 {
			var killed [2]*exec.Cmd
			var stderr [2]bytes.Buffer
			for j := range killed {
				killed[j] = without(linkError,
					child("churn", fmt.Sprintf("k%d-%d", i, j), path, claims, "1000000"))
				killed[j].Stderr = &stderr[j]
				if err := killed[j].Start(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10*time.Millisecond + rand.N(30*time.Millisecond))
			for j, cmd := range killed {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				if cmd.Wait(); stderr[j].Len() > 0 {
					t.Fatal(stderr[j].String())
				}
			}
			cleanUp(t, n, claims)
			wantNoLeases(t, path)
		}
		wantConsistent(t, path, storetest.Sets(t, "10.0.0.0/26"))
	}
}

// cleanUp runs DEL for all containers that hold an address.
func cleanUp(t *testing.T, n storetest.Network, claims string) {
	t.Helper()
	var leases []ipam.Lease
	n.Do(t, nil, func(s ipam.Store) {
		var err error
		if leases, err = s.Leases(ctx); err != nil {
			t.Fatal(err)
		}
	})
	for _, l := range leases {
		if err := os.Remove(filepath.Join(claims, l.Addr.String())); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		mustRelease(t, n, l.Owner)
	}
	if left, err := os.ReadDir(claims); err != nil || len(left) > 0 {
		t.Fatalf("claims without reservation: %v, %v", left, err)
	}
}

// TestKilledAtEachChange: DEL removes all files of a process that dies right before or after any
// change.
func TestKilledAtEachChange(t *testing.T) {
	t.Parallel()
	sets := storetest.Sets(t, "10.0.0.0/26", "2001:db8::/64")
	died := errors.New("died")
	for n := 1; n <= 5; n++ {
		for _, after := range []bool{false, true} {
			path := newPath(t)
			changes := 0
			s, err := network(path, bootID)(ctx, func(op string, apply, _ func() error) error {
				if changes++; changes > n || changes == n && !after {
					return died
				}
				return apply()
			})
			if err != nil && !errors.Is(err, died) {
				t.Fatal(err)
			}
			if err == nil {
				_, err = ipam.Allocate(ctx, s, ipam.Request{Owner: owner("c1"), Sets: sets})
				if errAbandon := filestore.Abandon(s); errAbandon != nil {
					t.Fatal(errAbandon)
				}
			}
			if errors.Is(err, died) != (n < 5 || !after) {
				t.Errorf("change %d: %v", n, err)
			}
			mustRelease(t, network(path, bootID), owner("c1"))
			wantNoLeases(t, path)
			wantConsistent(t, path, sets)
		}
	}
}

// TestFullDisk runs an allocation with an increasing number of free pages, and of free inodes: it
// succeeds or leaves nothing behind.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	for _, linkError := range []string{"", "EPERM"} {
		cmd := without(linkError, child("full-disk", t.TempDir()))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("link error %q: %v: %s", linkError, err, out)
		}
	}
}

// fullDisk runs in a separate mount namespace. Its argument is the mount point.
func fullDisk(args []string) int {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, limit := range []string{"nr_blocks", "nr_inodes"} {
		failed, succeeded := 0, 0
		for n := 2; n < 16 && err == nil; n++ {
			var full bool
			full, err = allocateOn(args[0], fmt.Sprintf("%s=%d", limit, n))
			if full {
				failed++
			} else {
				succeeded++
			}
		}
		if err == nil && (failed < 4 || succeeded < 4) {
			err = fmt.Errorf("%s: the disk was full %d times, and not %d times", limit, failed,
				succeeded)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// allocateOn allocates on a small file system and reports whether the file system was full.
func allocateOn(dir, options string) (full bool, err error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		return false, fmt.Errorf("mount: %w", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	path := filepath.Join(dir, "net")
	sets := []ipam.RangeSet{{{Subnet: netip.MustParsePrefix("10.0.0.0/26")}},
		{{Subnet: netip.MustParsePrefix("2001:db8::/64")}}}
	if err := ipam.CanonicalizeSets(sets); err != nil {
		return false, err
	}
	_, err = network(path, bootID).Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: sets})
	if err == nil {
		return false, network(path, bootID).Release(ctx, owner("c1"))
	}
	var pathError *os.PathError
	if !errors.Is(err, unix.ENOSPC) || !errors.As(err, &pathError) ||
		!strings.HasPrefix(pathError.Path, path) {
		return true, fmt.Errorf("%s: %w", options, err)
	}
	return true, wantEmpty(path)
}

// wantEmpty returns an error if there are reservations, complete or incomplete.
func wantEmpty(path string) error {
	for _, pattern := range []string{"1*", "2*", "last*", ".owners/*new"} {
		if left, err := filepath.Glob(filepath.Join(path, pattern)); err != nil || len(left) > 0 {
			return fmt.Errorf("left: %v, %v", left, err)
		}
	}
	return nil
}
