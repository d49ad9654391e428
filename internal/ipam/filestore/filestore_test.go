package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const bootID = "0a1b2c3d-0000-4000-8000-000000000001"

var ctx = context.Background()

// network opens the directory during the given boot.
func network(path, boot string) storetest.Network {
	return func(ctx context.Context, change ipam.Change) (ipam.Store, error) {
		return filestore.Open(ctx, filestore.Options{Dir: filepath.Dir(path),
			Network: filepath.Base(path), Create: true, BootID: boot, Change: change})
	}
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "net") }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Network { return network(newPath(t), bootID) })
}

// TestStoreWithoutIndex: without a boot ID no index is ever valid, and every operation reads all
// files.
func TestStoreWithoutIndex(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Network { return network(newPath(t), "") })
}

func owner(container string) ipam.Owner { return ipam.Owner{Container: container, IfName: "eth0"} }

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// listing returns the visible contents of a directory.
func listing(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		line := e.Name() + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(filepath.Join(path, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			line += fmt.Sprintf(" %q", content)
		}
		lines = append(lines, line)
	}
	return lines
}

func wantListing(t testing.TB, path string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, listing(t, path)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustAllocate(
	t testing.TB, n storetest.Network, o ipam.Owner, sets []ipam.RangeSet,
) []ipam.Allocation {
	t.Helper()
	all, err := n.Allocate(ctx, ipam.Request{Owner: o, Sets: sets})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mustRelease(t testing.TB, n storetest.Network, o ipam.Owner) {
	t.Helper()
	if err := n.Release(ctx, o); err != nil {
		t.Fatal(err)
	}
}

// TestLayout: the files equal upstream's, byte for byte, and only their owner can read them. White
// space around the ID is not stored. File names are addresses (IPAM-09, DIS-28, R-52).
func TestLayout(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "net")
	n := network(path, bootID)
	sets := storetest.Sets(t, "10.1.2.0/24", "2001:DB8:1::/64")
	mustAllocate(t, n, ipam.Owner{Container: " cid1\t", IfName: "eth0"}, sets)
	cursors := []string{
		`last_reserved_ip.0 -rw------- "10.1.2.2"`,
		`last_reserved_ip.1 -rw------- "2001:db8:1::2"`,
		`lock -rwxr-x--- ""`,
	}
	wantListing(t, path, append([]string{
		`10.1.2.2 -rw------- "cid1\r\neth0"`,
		`2001:db8:1::2 -rw------- "cid1\r\neth0"`,
	}, cursors...)...)
	mustRelease(t, n, owner("cid1"))
	wantListing(t, path, cursors...)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeDir|0o755 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
}

// TestLastReservedAddress: after an invalid last address the search begins with the first address.
func TestLastReservedAddress(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, content, want string }{
		{"longer than the next one", "10.0.0.10", "10.0.0.2"},
		{"inside", "10.0.0.4", "10.0.0.5"},
		{"empty", "", "10.0.0.2"},
		{"garbage", "what?", "10.0.0.2"},
		{"with a newline, which upstream never writes", "10.0.0.4\n", "10.0.0.2"},
		{"the other family", "2001:db8::1", "10.0.0.2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			write(t, filepath.Join(path, "last_reserved_ip.0"), test.content)
			mustAllocate(t, network(path, bootID), owner("c1"), storetest.Sets(t, "10.0.0.0/29"))
			wantListing(t, path,
				test.want+` -rw------- "c1\r\neth0"`,
				`last_reserved_ip.0 -rw------- "`+test.want+`"`,
				`lock -rwxr-x--- ""`)
		})
	}
}

// TestRollbackRestoresLastReservedAddress: a failed allocation restores the last reserved address,
// even if its length differs.
func TestRollbackRestoresLastReservedAddress(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	for i, content := range []string{"10.0.0.100", "10.0.0.9", "what?"} {
		write(t, filepath.Join(path, "last_reserved_ip.0"), content)
		before := listing(t, path)
		_, err := network(path, bootID).Allocate(ctx, ipam.Request{
			Owner: owner("c1"),
			Sets:  storetest.Sets(t, "10.0.0.0/24", "10.1.0.0/24"),
			Addrs: []netip.Addr{addr("10.1.0.1")},
		})
		var gateway *ipam.GatewayError
		if !errors.As(err, &gateway) {
			t.Fatal(err)
		}
		if i == 0 {
			before = append(before, `lock -rwxr-x--- ""`)
		}
		wantListing(t, path, before...)
	}
}

// TestOldFormat: reservations without an interface are released if none names the interface.
func TestOldFormat(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/24")
	write(t, filepath.Join(path, "10.0.0.7"), "c1")
	write(t, filepath.Join(path, "10.0.0.8"), "c1\n")
	write(t, filepath.Join(path, "10.0.0.9"), "c2")
	_, err := n.Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: sets})
	var duplicate *ipam.DuplicateError
	if !errors.As(err, &duplicate) || duplicate.Held.Addr != addr("10.0.0.7") {
		t.Errorf("second address: %v", err)
	}
	n.Do(t, nil, func(s ipam.Store) {
		freed, err := s.Collect(ctx, []ipam.Owner{{Container: "c1", IfName: "eth1"}})
		if err != nil || len(freed) != 1 || freed[0].Owner != (ipam.Owner{Container: "c2"}) {
			t.Errorf("collect: %v, %v", freed, err)
		}
	})
	mustRelease(t, n, owner("c1"))
	n.Want(t)

	// Records with the interface take precedence.
	write(t, filepath.Join(path, "10.0.0.7"), "c1")
	write(t, filepath.Join(path, "10.0.0.8"), "c1\r\neth0")
	mustRelease(t, n, owner("c1"))
	n.Want(t, "10.0.0.7 container c1")
}

// TestRewrittenInOldFormat: a reservation that is rewritten in place in the old format, with only
// the container ID, belongs to the container. The rewrite does not change the directory, so the
// index stays valid.
func TestRewrittenInOldFormat(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"c1", "c1\n", "c1\r\n"} {
		for _, cached := range []bool{true, false} {
			path := newPath(t)
			boot := bootID
			if !cached {
				boot = ""
			}
			n, sets := network(path, boot), storetest.Sets(t, "10.0.0.0/24")
			mustAllocate(t, n, owner("c1"), sets)
			mustAllocate(t, n, owner("c2"), sets)
			write(t, filepath.Join(path, "10.0.0.2"), content)
			_, err := n.Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: sets})
			var duplicate *ipam.DuplicateError
			if !errors.As(err, &duplicate) || duplicate.Held.Addr != addr("10.0.0.2") {
				t.Errorf("%q: second address: %v", content, err)
			}
			n.Do(t, nil, func(s ipam.Store) {
				held, err := s.Held(ctx, owner("c1"))
				if err != nil || len(held) != 1 || held[0].Owner != (ipam.Owner{Container: "c1"}) {
					t.Errorf("%q: held %v, %v", content, held, err)
				}
				freed, err := s.Collect(ctx, []ipam.Owner{owner("c1"), owner("c2")})
				if err != nil || len(freed) > 0 {
					t.Errorf("%q: collected %v, %v", content, freed, err)
				}
			})
			mustRelease(t, n, owner("c1"))
			n.Want(t, "10.0.0.3 container c2 interface eth0", "last 0 10.0.0.3")
			wantConsistent(t, path, sets)
		}
	}
}

// TestUnreadableReservation: Release reports a reservation that it cannot read, and the index is
// not sealed without it. Once the file is readable, the next Release frees it.
func TestUnreadableReservation(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	for _, sealed := range []bool{true, false} {
		path := newPath(t)
		n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29", "2001:db8::/64")
		mustAllocate(t, n, owner("c1"), sets)
		name := filepath.Join(path, "10.0.0.2")
		err := os.Chown(name, 65534, 65534)
		if !sealed {
			err = errors.Join(err, os.Chtimes(path, time.Time{}, time.Now()))
		}
		if err != nil {
			t.Fatal(err)
		}
		withoutOverride(t, func() {
			all, err := n.Allocate(ctx, ipam.Request{Owner: owner("c2"), Sets: sets})
			if err != nil || all[0].Addr != addr("10.0.0.3") {
				t.Errorf("allocated %v, %v", all, err)
			}
			if err := n.Release(ctx, owner("c2")); err != nil {
				t.Errorf("release of readable reservations: %v", err)
			}
			for range 2 {
				err := n.Release(ctx, owner("c1"))
				var unread *fs.PathError
				if !errors.As(err, &unread) || unread.Path != name || !errors.Is(err, unix.EACCES) {
					t.Errorf("release of an unreadable reservation: %v", err)
				}
			}
			n.Do(t, nil, func(s ipam.Store) {
				freed, err := s.Collect(ctx, nil)
				if !errors.Is(err, unix.EACCES) || len(freed) > 0 {
					t.Errorf("collected %v, %v", freed, err)
				}
			})
		})
		n.Want(t, "10.0.0.2 container c1 interface eth0", "last 0 10.0.0.3", "last 1 2001:db8::3")
		mustRelease(t, n, owner("c1"))
		n.Want(t, "last 0 10.0.0.3", "last 1 2001:db8::3")
		wantConsistent(t, path, sets)
	}
}

// withoutOverride calls fn on a thread that may not read files of other users.
func withoutOverride(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			t.Error(err)
			return
		}
		fn()
	}()
	<-done
}

// TestDebrisIsReclaimed: an empty file reserves nothing. The next allocation reclaims it, even if
// the caches were valid before.
func TestDebrisIsReclaimed(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", " \r\n"} {
		path := newPath(t)
		n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
		mustAllocate(t, n, owner("c1"), sets)
		for _, a := range []string{"10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"} {
			write(t, filepath.Join(path, a), content)
		}
		for i, want := range []string{"10.0.0.3", "10.0.0.4", "10.0.0.5"} {
			if got := mustAllocate(t, n, owner(fmt.Sprint("n", i)),
				sets); got[0].Addr != addr(want) {
				t.Errorf("got %s, want %s", got[0].Addr, want)
			}
		}
		write(t, filepath.Join(path, "10.0.0.6"), content)
		n.Do(t, nil, func(s ipam.Store) {
			freed, err := s.Collect(ctx, []ipam.Owner{owner("c1")})
			if err != nil || len(freed) != 4 {
				t.Errorf("collect: %v, %v", freed, err)
			}
		})
		n.Want(t, "10.0.0.2 container c1 interface eth0", "last 0 10.0.0.5")
	}
}

// TestStrangeFiles: a file that cannot be a reservation is not changed, its address is not
// allocated, and operations continue.
func TestStrangeFiles(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "")
	write(t, filepath.Join(path, "10.0.0.010"), "c1\r\neth0")
	write(t, filepath.Join(path, "2001:DB8::2"), "c1\r\neth0")
	write(t, filepath.Join(path, "::ffff:10.0.0.4"), "c1\r\neth0")
	for _, name := range []string{"10.0.0.2.bak", "10.0.0.2\n", " 10.0.0.2", "10.0.0.2\xff", "\x01",
		"10.0.0.2%eth0", strings.Repeat("9", 255)} {
		write(t, filepath.Join(path, name), "c1\r\neth0")
	}
	write(t, filepath.Join(path, "sub", "10.0.0.6"), "c1\r\neth0")
	write(t, filepath.Join(path, "10.0.0.6"), strings.Repeat("x", 200<<10))
	for _, err := range []error{
		os.Symlink(outside, filepath.Join(path, "10.0.0.2")),
		os.Symlink("nowhere", filepath.Join(path, "10.0.0.3")),
		os.Mkdir(filepath.Join(path, "10.0.0.4"), 0o755),
		unix.Mkfifo(filepath.Join(path, "10.0.0.5"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, path)
	n := network(path, bootID)
	if got := mustAllocate(t, n, owner("c1"),
		storetest.Sets(t, "10.0.0.0/28")); got[0].Addr != addr("10.0.0.7") {
		t.Errorf("got %s", got[0].Addr)
	}
	_, err := n.Allocate(ctx, ipam.Request{Owner: owner("c2"),
		Sets: storetest.Sets(t, "10.0.0.0/28"), Addrs: []netip.Addr{addr("10.0.0.2")}})
	var inUse *ipam.InUseError
	if !errors.As(err, &inUse) || inUse.Holder.Addr != addr("10.0.0.2") ||
		inUse.Holder.String() != "10.0.0.2 held by an unknown owner" {
		t.Errorf("symbolic link: %v", err)
	}
	mustRelease(t, n, owner("c1"))
	var log bytes.Buffer
	logged(path, bootID, &log).Do(t, nil, func(s ipam.Store) {
		if freed, err := s.Collect(ctx, nil); err != nil || len(freed) > 0 {
			t.Errorf("collect: %v, %v", freed, err)
		}
	})
	for _, a := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"} {
		if name := filepath.Join(path, a); !strings.Contains(log.String(), name) {
			t.Errorf("collect did not log %s: %s", name, log.String())
		}
	}
	after := slices.DeleteFunc(listing(t, path), func(line string) bool {
		return strings.HasPrefix(line, "l")
	})
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(path, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link was written through: %v", err)
	}
}

// TestLinksAreNotFollowed: symbolic links in place of Tenon's files are not followed.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lock", "last_reserved_ip.0", ".owners"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			outside := t.TempDir()
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			target := filepath.Join(outside, "target")
			if name == ".owners" {
				target = outside
			}
			if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
				t.Fatal(err)
			}
			_, err := network(path, bootID).
				Allocate(ctx,
					ipam.Request{Owner: owner("c1"), Sets: storetest.Sets(t, "10.0.0.0/29")})
			var pathError *fs.PathError
			if !errors.As(err, &pathError) || pathError.Path != filepath.Join(path, name) {
				t.Errorf("got %v", err)
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("written outside: %v, %v", entries, err)
			}
			if _, err := os.Lstat(filepath.Join(path, "10.0.0.2")); !errors.Is(err,
				fs.ErrNotExist) {
				t.Errorf("reserved despite the error: %v", err)
			}
		})
	}
}

// TestFIFOsAreRefused: FIFOs in place of Tenon's files are refused, because opening one would
// block.
func TestFIFOsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lock", "last_reserved_ip.0"} {
		path := newPath(t)
		fifo := filepath.Join(path, name)
		if err := errors.Join(os.Mkdir(path, 0o755), unix.Mkfifo(fifo, 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err := network(path, bootID).
			Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: storetest.Sets(t, "10.0.0.0/29")})
		var pathError *fs.PathError
		if !errors.Is(err, statefile.ErrNotRegular) || !errors.As(err, &pathError) ||
			pathError.Path != fifo {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The caches are built again, and the drafts are removed.
	for _, name := range []string{"index", "new", "index.new", "map.10.0.0.1-10.0.0.6"} {
		path := newPath(t)
		n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
		mustAllocate(t, n, owner("c1"), sets)
		fifo := filepath.Join(path, ".owners", name)
		_ = os.Remove(fifo)
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		mustAllocate(t, n, owner("c2"), sets)
		mustRelease(t, n, owner("c1"))
		n.Want(t, "10.0.0.3 container c2 interface eth0", "last 0 10.0.0.3")
	}
}

// TestMissingDirectory: operations that only read or release do not create the directory.
func TestMissingDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := storetest.Network(func(ctx context.Context, change ipam.Change) (ipam.Store, error) {
		return filestore.Open(ctx, filestore.Options{Dir: filepath.Join(dir, "none"),
			Network: "net", BootID: bootID, Change: change})
	})
	open.Do(t, nil, func(s ipam.Store) {
		sets := storetest.Sets(t, "10.0.0.0/24", "2001:db8::/64")
		held, errHeld := s.Held(ctx, owner("c1"))
		freed, errCollect := s.Collect(ctx, nil)
		used, errUsed := s.Used(ctx, sets[0][0])
		err := errors.Join(errHeld, errCollect, errUsed, s.Release(ctx, owner("c1")),
			ipam.Available(ctx, s, sets))
		if err != nil || len(held) > 0 || len(freed) > 0 || used > 0 {
			t.Errorf("held %v, freed %v, used %d, %v", held, freed, used, err)
		}
		if err := s.Reserve(ctx, 0, addr("10.0.0.2"), owner("c1")); !errors.Is(err,
			fs.ErrNotExist) {
			t.Errorf("reserve: %v", err)
		}
	})
	open.Want(t)
	wantListing(t, dir)
}

// logged opens the network and collects the log.
func logged(path, boot string, log *bytes.Buffer) storetest.Network {
	handler := slog.NewTextHandler(log,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
	return func(ctx context.Context, change ipam.Change) (ipam.Store, error) {
		return filestore.Open(ctx,
			filestore.Options{Dir: filepath.Dir(path), Network: filepath.Base(path), Create: true,
				BootID: boot, Change: change, Log: slog.New(handler)})
	}
}

// TestFirstAllocationIsQuiet: the first allocation logs nothing, although there is no last address
// yet.
func TestFirstAllocationIsQuiet(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	mustAllocate(t, logged(newPath(t), bootID, &log), owner("c1"),
		storetest.Sets(t, "10.0.0.0/24", "2001:db8::/64"))
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}
}

// TestConflictReportsAge: the age of a reservation is the age of its file, even if another program
// wrote it.
func TestConflictReportsAge(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	name := filepath.Join(path, "10.0.0.7")
	write(t, name, "other\r\neth0")
	since := time.Now().Add(-200 * time.Minute)
	if err := os.Chtimes(name, since, since); err != nil {
		t.Fatal(err)
	}
	_, err := network(path, bootID).Allocate(ctx, ipam.Request{
		Owner: owner("c1"), Sets: storetest.Sets(t, "10.0.0.0/24"),
		Addrs: []netip.Addr{addr("10.0.0.7")},
	})
	const want = "failed to allocate for range 0: requested IP address 10.0.0.7 is not available " +
		"in range set 10.0.0.1-10.0.0.254"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// TestOldest: the oldest reservations come first. Reservations of equal age, written within one
// tick of the clock, are sorted by address.
func TestOldest(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	sets := storetest.Sets(t, "10.0.0.0/26")
	n := network(path, bootID)
	same := time.Now().Add(-time.Hour)
	for i := range 40 {
		all := mustAllocate(t, n, owner(fmt.Sprint("c", i)), sets)
		name := filepath.Join(path, all[0].Addr.String())
		since := same
		if i == 17 {
			since = since.Add(-time.Nanosecond)
		}
		if err := os.Chtimes(name, since, since); err != nil {
			t.Fatal(err)
		}
	}
	n.Do(t, nil, func(s ipam.Store) {
		_, oldest, err := s.Survey(ctx, sets[0], 5)
		var got []string
		for _, l := range oldest {
			got = append(got, l.Addr.String())
		}
		want := []string{"10.0.0.19", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// TestHugeDirectory: all operations work with 60,000 reservations of upstream.
func TestHugeDirectory(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	if !inMemory(t) {
		return
	}
	const leases = 60000
	path := filled(t, leases, func(int) bool { return false })
	n, sets := network(path, bootID), storetest.Sets(t, "10.1.0.0/16")
	if got := mustAllocate(t, n, owner("c1"), sets); got[0].Addr != addr("10.1.234.98") {
		t.Errorf("got %s", got[0].Addr)
	}
	mustRelease(t, n, ipam.Owner{Container: fmt.Sprintf("%064d", 12345), IfName: "eth0"})
	if _, err := os.Stat(filepath.Join(path, "10.1.48.59")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not released: %v", err)
	}
	n.Do(t, nil, func(s ipam.Store) {
		if used, err := s.Used(ctx, sets[0][0]); err != nil || used != leases {
			t.Errorf("used: %d, %v", used, err)
		}
		freed, err := s.Collect(ctx, []ipam.Owner{owner("c1")})
		if err != nil || len(freed) != leases-1 {
			t.Errorf("collected %d, %v", len(freed), err)
		}
	})
	n.Want(t, "10.1.234.98 container c1 interface eth0", "last 0 10.1.234.98")
}

func TestDirectoryIsAFile(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	write(t, path, "")
	for _, p := range []string{path, filepath.Join(path, "net")} {
		_, err := network(p, bootID).
			Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: storetest.Sets(t, "10.0.0.0/24")})
		var pathError *fs.PathError
		if !errors.As(err, &pathError) || !strings.HasPrefix(pathError.Path, path) {
			t.Errorf("got %v", err)
		}
	}
}

// TestRemovedWhileWaiting: an operation starts again if the directory is removed while it waits for
// the lock.
func TestRemovedWhileWaiting(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/24")
	done := make(chan error, 1)
	n.Do(t, nil, func(s ipam.Store) {
		go func() {
			_, err := n.Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: sets})
			done <- err
		}()
		waitForLock(t, path)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
	n.Want(t, "10.0.0.2 container c1 interface eth0", "last 0 10.0.0.2")
}

// TestForeignLock: the lock is upstream's, flock(2) on the file lock.
func TestForeignLock(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	name := filepath.Join(path, "lock")
	write(t, name, "")
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	n, req := network(path, bootID), ipam.Request{Owner: owner("c1"),
		Sets: storetest.Sets(t, "10.0.0.0/24")}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := n.Allocate(short, req); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), name) {
		t.Errorf("while others hold the lock: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Allocate(ctx, req); err != nil {
		t.Error(err)
	}
}

// waitForLock returns when a process waits for the lock in the directory.
func waitForLock(t testing.TB, path string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(path, "lock"), &st); err != nil {
		t.Fatal(err)
	}
	waiting := fmt.Sprintf(":%d 0 EOF", st.Ino)
	for {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "-> FLOCK") && strings.Contains(line, waiting) {
				return
			}
		}
	}
}

// TestFree frees an address only for the expected holder.
func TestFree(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
	mustAllocate(t, n, owner("c1"), sets)
	write(t, filepath.Join(path, "10.0.0.3"), "old")
	if err := os.Mkdir(filepath.Join(path, "10.0.1.4"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.Do(t, nil, func(s ipam.Store) {
		free := func(a string, o ipam.Owner) string {
			err := s.(*filestore.Store).Free(ctx, ipam.Lease{Addr: addr(a), Owner: o})
			if err == nil {
				return ""
			}
			text, _, _ := strings.Cut(err.Error(), " since ")
			text, _, _ = strings.Cut(text, " for ")
			return text
		}
		for _, row := range []struct {
			addr  string
			owner ipam.Owner
			want  string
		}{
			{"10.0.0.2", owner("c2"), "not released: 10.0.0.2 held by container c1 interface eth0"},
			{"10.0.0.2", owner("c1"), ""},
			{"10.0.0.2", owner("c1"), ""},
			{"10.0.0.3", owner("old"), "not released: 10.0.0.3 held by container old"},
			{"10.0.0.3", ipam.Owner{Container: "old"}, ""},
			{"10.0.1.4", owner("c1"), "read " + path + "/10.0.1.4: not a small regular file"},
		} {
			if got := free(row.addr, row.owner); got != row.want {
				t.Errorf("%s for %s: got %q, want %q", row.addr, row.owner, got, row.want)
			}
		}
	})
	n.Want(t, "last 0 10.0.0.2")
	wantConsistent(t, path, sets)
}

// TestContextEnds: every operation ends with its context.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29", "2001:db8::/64")
	mustAllocate(t, n, owner("c1"), sets)
	over, cancel := context.WithCancel(ctx)
	cancel()
	for name, operation := range map[string]func(s ipam.Store) error{
		"leases": func(s ipam.Store) error { _, err := s.Leases(over); return err },
		"next free": func(s ipam.Store) error {
			if _, err := s.Held(ctx, owner("c1")); err != nil {
				return err
			}
			_, err := s.NextFree(over, sets[1][0], sets[1][0].Start, sets[1][0].End)
			return err
		},
		"collect": func(s ipam.Store) error { _, err := s.Collect(over, nil); return err },
		"allocate without caches": func(s ipam.Store) error {
			if err := os.Chtimes(path, time.Time{}, time.Now()); err != nil {
				return err
			}
			_, err := ipam.Allocate(over, s, ipam.Request{Owner: owner("c2"), Sets: sets})
			return err
		},
	} {
		n.Do(t, nil, func(s ipam.Store) {
			if err := operation(s); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	n.Want(t, "10.0.0.2 container c1 interface eth0", "2001:db8::2 container c1 interface eth0",
		"last 0 10.0.0.2", "last 1 2001:db8::2")
}

// TestUndoAfterClose: after Close a change cannot be undone, and undo returns an error.
func TestUndoAfterClose(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n := network(path, bootID)
	var tx storetest.Tx
	n.Do(t, tx.Do, func(s ipam.Store) {
		if err := s.Reserve(ctx, 0, addr("10.0.0.2"), owner("c1")); err != nil {
			t.Fatal(err)
		}
	})
	if err := tx.Rollback(); err == nil {
		t.Error("no error")
	}
	n.Want(t, "10.0.0.2 container c1 interface eth0", "last 0 10.0.0.2")
}
