package filestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
)

// scans counts how often all files are read: each time, a warning about the directory in place of
// an address file is logged.
type scans struct {
	log  bytes.Buffer
	open storetest.Network
}

func countScans(t testing.TB, path string) *scans {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path, "192.0.2.1"), 0o755); err != nil {
		t.Fatal(err)
	}
	var c scans
	c.open = logged(path, bootID, &c.log)
	return &c
}

func (c *scans) want(t testing.TB, when string, want int) {
	t.Helper()
	if got := strings.Count(c.log.String(), `msg="skipped an address"`); got != want {
		t.Errorf("%s: all files were read %d times, want %d", when, got, want)
	}
	c.log.Reset()
}

// TestFilesAreReadOnlyAfterForeignChanges: only a change by another program makes an operation read
// all files, and only the next one. The cost of an operation therefore does not depend on the
// number of reservations.
func TestFilesAreReadOnlyAfterForeignChanges(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	c := countScans(t, path)
	sets := storetest.Sets(t, "10.0.0.0/24", "2001:db8::/64")
	allocated := 0
	operations := map[string]func(){
		"allocate": func() {
			allocated++
			mustAllocate(t, c.open, owner(fmt.Sprint("c", allocated)), sets)
		},
		"release": func() { mustRelease(t, c.open, owner("unknown")) },
		"held": func() {
			c.open.Do(t, nil, func(s ipam.Store) { s.Held(ctx, owner("unknown")) })
		},
		"available": func() {
			c.open.Do(t, nil, func(s ipam.Store) { ipam.Available(ctx, s, sets) })
		},
		"used": func() { c.open.Do(t, nil, func(s ipam.Store) { s.Used(ctx, sets[0][0]) }) },
		"refused": func() {
			c.open.Allocate(ctx,
				ipam.Request{Owner: owner("c1"), Sets: sets, Addrs: []netip.Addr{addr("10.0.0.1")}})
		},
	}
	operations["allocate"]()
	c.want(t, "first operation", 1)
	for name, operation := range operations {
		operation()
		operation()
		c.want(t, name, 0)
		write(t, filepath.Join(path, "10.0.0.200"), "foreign\r\neth0")
		operation()
		c.want(t, name+" after a foreign reservation", 1)
		operation()
		if err := os.Remove(filepath.Join(path, "10.0.0.200")); err != nil {
			t.Fatal(err)
		}
		operation()
		c.want(t, name+" after a foreign release", 1)
	}
	if err := os.RemoveAll(filepath.Join(path, ".owners")); err != nil {
		t.Fatal(err)
	}
	operations["release"]()
	c.want(t, "without index", 1)
	operations["allocate"]()
	c.want(t, "with a new index", 0)
}

// TestForeignChangeDuringAnOperation: an operation without changes does not hide concurrent changes
// of a program that ignores the lock.
func TestForeignChangeDuringAnOperation(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n := network(path, bootID)
	mustAllocate(t, n, owner("c1"), storetest.Sets(t, "10.0.0.0/29"))
	n.Do(t, nil, func(s ipam.Store) {
		if _, err := s.Held(ctx, owner("c1")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(path, "10.0.0.5"), "foreign\r\neth0")
	})
	mustRelease(t, n, owner("foreign"))
	n.Want(t, "10.0.0.2 container c1 interface eth0", "last 0 10.0.0.2")
}

// TestForeignChangeInTheSameTick: a change by another program is noticed even if it happens within
// the same tick of the kernel's clock as Tenon's, with the same time of the directory.
func TestForeignChangeInTheSameTick(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
	for i := range 100 {
		mustAllocate(t, n, owner("c1"), sets)
		foreign := filepath.Join(path, fmt.Sprintf("10.0.1.%d", i%8))
		write(t, foreign, "foreign\r\neth0")
		mustRelease(t, n, owner("foreign"))
		if _, err := os.Stat(foreign); !os.IsNotExist(err) {
			t.Fatalf("round %d: not released: %v", i, err)
		}
		mustRelease(t, n, owner("c1"))
	}
}

// TestFullSetIsReadAgain: an address that another program has freed during the operation is found
// before the set counts as full.
func TestFullSetIsReadAgain(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
	for i := range 5 {
		mustAllocate(t, n, owner(fmt.Sprint("c", i)), sets)
	}
	n.Do(t, nil, func(s ipam.Store) {
		if err := s.Release(ctx, owner("c0")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(path, "10.0.0.4")); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"10.0.0.2", "10.0.0.4"} {
			all, err := ipam.Allocate(ctx, s,
				ipam.Request{Owner: owner(fmt.Sprint("n", i)), Sets: sets})
			if err != nil || all[0].Addr != addr(want) {
				t.Errorf("got %v, %v; want %s", all, err, want)
			}
		}
	})
	wantConsistent(t, path, sets)
}

// wantConsistent compares the caches with the files.
func wantConsistent(t testing.TB, path string, sets []ipam.RangeSet) {
	t.Helper()
	wantConsistentIn(t, path, bootID, sets)
}

func wantConsistentIn(t testing.TB, path, boot string, sets []ipam.RangeSet) {
	t.Helper()
	network(path, boot).Do(t, nil, func(s ipam.Store) {
		leases, err := s.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		reserved := map[netip.Addr]bool{}
		want, got := map[string]int{}, map[string]int{}
		for _, l := range leases {
			reserved[l.Addr] = true
			want[l.Owner.String()]++
			held, err := s.Held(ctx, l.Owner)
			if err != nil {
				t.Fatal(err)
			}
			got[l.Owner.String()] = len(held)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("addresses per owner (-files +index):\n%s", diff)
		}
		for _, set := range sets {
			if r := set[0]; r.Size() <= 1<<10 {
				wantFree(t, s, r, reserved)
			}
		}
	})
}

func wantFree(t testing.TB, s ipam.Store, r ipam.Range, reserved map[netip.Addr]bool) {
	t.Helper()
	var want, got []string
	for a := r.Start; r.Contains(a); a = a.Next() {
		if !reserved[a] {
			want = append(want, a.String())
		}
	}
	for from := r.Start; r.Contains(from); from = from.Next() {
		a, err := s.NextFree(ctx, r, from, r.End)
		if err != nil {
			t.Fatal(err)
		}
		if !a.IsValid() {
			break
		}
		from = a
		got = append(got, a.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("free addresses (-files +bitmap):\n%s", diff)
	}
}

// TestContentCounts: the content of a file takes precedence over the index: here a file is edited
// in place, which does not change the directory.
func TestContentCounts(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n := network(path, bootID)
	mustAllocate(t, n, owner("c1"), storetest.Sets(t, "10.0.0.0/29"))
	write(t, filepath.Join(path, "10.0.0.2"), "c2\r\neth0")
	mustRelease(t, n, owner("c1"))
	n.Want(t, "10.0.0.2 container c2 interface eth0", "last 0 10.0.0.2")
}

// TestDamagedCaches: damaged caches are built again.
func TestDamagedCaches(t *testing.T) {
	t.Parallel()
	damages := map[string]func(name string) error{
		"removed":   os.Remove,
		"empty":     func(name string) error { return os.Truncate(name, 0) },
		"cut short": func(name string) error { return resize(name, -1) },
		"too long":  func(name string) error { return resize(name, +1) },
		"garbage": func(name string) error {
			return os.WriteFile(name, bytes.Repeat([]byte("x"), 10000), 0o600)
		},
		"no regular": func(name string) error {
			return errors.Join(os.Remove(name), os.Mkdir(name, 0o755))
		},
	}
	for damage, inflict := range damages {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
			for _, c := range []string{"c1", "c2"} {
				mustAllocate(t, n, owner(c), sets)
			}
			for _, name := range []string{"index", "map.10.0.0.1-10.0.0.6"} {
				if err := inflict(filepath.Join(path, ".owners", name)); err != nil {
					t.Fatal(err)
				}
				wantConsistent(t, path, sets)
				mustRelease(t, n, owner("c1"))
				if got := mustAllocate(t, n, owner("c1"), sets); got[0].Addr == addr("10.0.0.3") {
					t.Errorf("%s: second holder of %s", name, got[0].Addr)
				}
			}
			wantConsistent(t, path, sets)
		})
	}
}

func resize(name string, by int64) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return os.Truncate(name, info.Size()+by)
}

// TestIndexGrows: the index grows, and reuses the slots of released addresses, so that it does not
// grow without limit.
func TestIndexGrows(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	c := countScans(t, path)
	sets := storetest.Sets(t, "10.0.0.0/22")
	for i := range 250 {
		mustAllocate(t, c.open, owner(fmt.Sprint("c", i)), sets)
	}
	grown := indexSize(t, path)
	for i := range 600 {
		mustRelease(t, c.open, owner(fmt.Sprint("c", i)))
		mustAllocate(t, c.open, owner(fmt.Sprint("c", i+250)), sets)
	}
	c.want(t, "all of this", 1)
	if size := indexSize(t, path); size > 2*grown {
		t.Errorf("250 entries took %d bytes, later %d", grown, size)
	}
	wantConsistent(t, path, sets)
}

func indexSize(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(path, ".owners", "index"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestSweep makes each change fail once: the rollback restores the former state, and the caches
// agree with it.
func TestSweep(t *testing.T) {
	t.Parallel()
	sets := storetest.Sets(t, "10.0.0.0/24", "2001:db8::/64")
	for n := 1; ; n++ {
		path := newPath(t)
		write(t, filepath.Join(path, "10.0.0.9"), "")
		write(t, filepath.Join(path, "last_reserved_ip.0"), "10.0.0.3")
		changes := 0
		failing := func(tx *storetest.Tx) ipam.Change {
			return func(op string, apply, undo func() error) error {
				if changes++; changes == n {
					return fmt.Errorf("%s: %w", op, errInjected)
				}
				return tx.Do(op, apply, undo)
			}
		}
		var tx storetest.Tx
		s, err := network(path, bootID)(ctx, failing(&tx))
		if err != nil {
			t.Fatal(err)
		}
		_, err = ipam.Allocate(ctx, s, ipam.Request{Owner: owner("c1"), Sets: sets})
		if err != nil && !errors.Is(err, errInjected) {
			t.Fatalf("change %d: %v", n, err)
		}
		if err := errors.Join(tx.Rollback(), s.Close()); err != nil {
			t.Fatalf("change %d: %v", n, err)
		}
		want := []string{`last_reserved_ip.0 -rw------- "10.0.0.3"`, `lock -rwxr-x--- ""`}
		if n == 1 {
			want = append([]string{`10.0.0.9 -rw------- ""`}, want...)
		}
		wantListing(t, path, want...)
		if n > changes {
			if n != 6 {
				t.Errorf("%d changes, want 5", changes)
			}
			return
		}
		if _, err := network(path, bootID).
			Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: sets}); err != nil {
			t.Errorf("after failing change %d: %v", n, err)
		}
		if _, err := os.Stat(filepath.Join(path, "10.0.0.9")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after failing change %d: debris stays: %v", n, err)
		}
		wantConsistent(t, path, sets)
	}
}

var errInjected = errors.New("injected")

// FuzzStore compares a series of operations, by Tenon and by other programs, with a map as a model.
func FuzzStore(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 64, 65, 128, 129, 0, 192, 1, 2, 66})
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 70, 16})
	f.Add([]byte{193, 0, 194, 67, 195, 132, 133, 71, 3})
	f.Fuzz(func(t *testing.T, operations []byte) {
		path := newPath(t)
		n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/28")
		model := map[netip.Addr]string{}
		for _, op := range operations[:min(len(operations), 64)] {
			c := fmt.Sprint("c", op%32)
			a := netip.AddrFrom4([4]byte{10, 0, 0, op % 16})
			switch op / 64 {
			case 0:
				fuzzAllocate(t, n, sets, model, c)
			case 1:
				mustRelease(t, n, owner(c))
				forget(model, c)
			case 2: // another program reserves
				if _, reserved := model[a]; !reserved {
					write(t, filepath.Join(path, a.String()), c+"\r\neth0")
					model[a] = c
				}
			case 3: // another program releases, or a process dies in the middle of an operation
				if op%2 == 0 {
					_ = os.Remove(filepath.Join(path, a.String()))
					delete(model, a)
				} else {
					fuzzDie(t, n, a, model, c)
				}
			}
		}
		wantModel(t, n, model)
		wantConsistent(t, path, sets)
	})
}

func forget(model map[netip.Addr]string, container string) {
	for a, c := range model {
		if c == container {
			delete(model, a)
		}
	}
}

func fuzzAllocate(
	t *testing.T, n storetest.Network, sets []ipam.RangeSet, model map[netip.Addr]string, c string,
) {
	all, err := n.Allocate(ctx, ipam.Request{Owner: owner(c), Sets: sets})
	held, used := false, uint64(0)
	for a, holder := range model {
		if sets[0].Contains(a) {
			held = held || holder == c
		}
		if sets[0].Usable(a) {
			used++
		}
	}
	var duplicate *ipam.DuplicateError
	var exhausted *ipam.ExhaustedError
	switch {
	case held:
		if !errors.As(err, &duplicate) {
			t.Fatalf("%s holds an address and got %v, %v", c, all, err)
		}
	case used == sets[0].Capacity():
		if !errors.As(err, &exhausted) {
			t.Fatalf("full, but %s got %v, %v", c, all, err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		if other, reserved := model[all[0].Addr]; reserved {
			t.Fatalf("%s got %s of %s", c, all[0].Addr, other)
		}
		model[all[0].Addr] = c
	}
}

// fuzzDie reserves an address and dies before the caches are sealed.
func fuzzDie(
	t *testing.T, n storetest.Network, a netip.Addr, model map[netip.Addr]string, c string,
) {
	s, err := n(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Reserve(ctx, 0, a, owner(c))
	var inUse *ipam.InUseError
	if _, held := model[a]; held != errors.As(err, &inUse) || !held && err != nil {
		t.Fatalf("reserve %s: %v", a, err)
	}
	if err == nil {
		model[a] = c
	}
	if err := filestore.Abandon(s); err != nil {
		t.Fatal(err)
	}
}

func wantModel(t *testing.T, n storetest.Network, model map[netip.Addr]string) {
	t.Helper()
	got := map[netip.Addr]string{}
	n.Do(t, nil, func(s ipam.Store) {
		leases, err := s.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			got[l.Addr] = l.Owner.Container
		}
	})
	if diff := cmp.Diff(model, got, cmp.Comparer(func(a, b netip.Addr) bool {
		return a == b
	})); diff != "" {
		t.Errorf("(-model +files):\n%s", diff)
	}
}
