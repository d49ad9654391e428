package netns_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func newNS(t *testing.T) *netns.NS {
	t.Helper()
	testnet.Require(t, testnet.Namespaces)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, path string
		want       error
	}{
		{"empty path", "", netns.ErrNotExist},
		{"missing path", filepath.Join(dir, "missing"), netns.ErrNotExist},
		{"below a file", filepath.Join(file, "ns"), netns.ErrNotExist},
		{"process that does not exist", "/proc/4194305/ns/net", netns.ErrNotExist},
		{"plain file that remains of a bind mount", file, netns.ErrNotNamespace},
		{"FIFO without a writer", fifo, netns.ErrNotNamespace},
		{"folder", dir, netns.ErrNotNamespace},
		{"device", "/dev/null", netns.ErrNotNamespace},
		{"file in procfs", "/proc/self/status", netns.ErrNotNamespace},
		{"namespace of another kind", "/proc/self/ns/uts", netns.ErrNotNamespace},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n, err := netns.Open(row.path)
			if !errors.Is(err, row.want) {
				t.Fatalf("got %v, %v; want error %v", n, err, row.want)
			}
			if row.path != "" && !strings.Contains(err.Error(), row.path) {
				t.Errorf("error does not name the path: %v", err)
			}
		})
	}
}

// TestSocket checks that the socket belongs to the namespace, and that no thread of the process
// stays there.
func TestSocket(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	for range 100 {
		fd, err := n.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			t.Fatal(err)
		}
		of, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(of, &st); err != nil ||
			(netns.ID{Dev: st.Dev, Inode: st.Ino}) != n.ID() {
			t.Errorf("the socket belongs to namespace %d, not to %s: %v", st.Ino, n, err)
		}
		unix.Close(of)
		unix.Close(fd)
		if n.Here() {
			t.Fatal("a thread stayed in the namespace")
		}
	}
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	fd, err := here.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if _, err := n.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 1000); !errors.Is(err,
		unix.EPROTONOSUPPORT) {
		t.Errorf("unknown protocol: %v", err)
	}
	if n.Here() {
		t.Error("after an error a thread stayed in the namespace")
	}
}

// TestSocketNoWayBack runs in a user namespace of its own, where it may enter namespaces that it
// created, but not its original one. The thread must then end, and the caller must stay in its
// namespace.
func TestSocketNoWayBack(t *testing.T) {
	const inside = "TENON_TEST_NO_WAY_BACK"
	if os.Getenv(inside) == "" {
		t.Parallel()
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	runtime.LockOSThread() // the test compares the caller's thread
	defer runtime.UnlockOSThread()
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for range 3 {
		if _, err := n.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			unix.NETLINK_ROUTE); !errors.Is(err, unix.EPERM) {
			t.Errorf("got %v, want %v", err, unix.EPERM)
		}
		if !here.Here() {
			t.Fatal("the caller has left its namespace")
		}
	}
	if !t.Failed() {
		// The ended threads may include the main one, which TestMain compares with the others.
		os.Exit(0)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	a, b := newNS(t), newNS(t)
	again, err := netns.Open(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !a.Same(again) || a.ID() != again.ID() {
		t.Errorf("%v and %v are one namespace", a, again)
	}
	if a.Same(b) {
		t.Errorf("%v and %v are two namespaces", a, b)
	}
	if again.Path() != a.Path() || again.String() != a.Path() {
		t.Errorf("path %q, name %q; want both %q", again.Path(), again, a.Path())
	}
	if want := fmt.Sprintf("net:[%d]", a.ID().Inode); a.String() != want {
		t.Errorf("name %q, want %q", a, want)
	}
}

func TestRef(t *testing.T) {
	t.Parallel()
	a, b := newNS(t), newNS(t)
	link := filepath.Join(t.TempDir(), "ns")
	lead := func(to *netns.NS) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(link), os.Symlink(to.Path(), link)); err != nil {
			t.Fatal(err)
		}
	}
	lead(a)
	opened, err := netns.Open(link)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	again, err := opened.Ref().Open()
	if err != nil || !again.Same(a) {
		t.Fatalf("%v, %v", again, err)
	}
	again.Close()
	lead(b)
	if _, err := opened.Ref().Open(); !errors.Is(err, netns.ErrNotExist) {
		t.Errorf("another namespace has the path: %v", err)
	}
}

func TestCurrentIsOfTheThread(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	outside, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	var inside *netns.NS
	err = n.Run(func() (err error) {
		inside, err = netns.Current()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if !inside.Same(n) || outside.Same(n) {
		t.Errorf("inside %v, outside %v, namespace %v", inside, outside, n)
	}
}

func TestPathIsForChildProcesses(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	out, err := exec.Command("stat", "-L", "-c", "%i", n.Path()).CombinedOutput()
	if got, want := strings.TrimSpace(string(out)), fmt.Sprint(n.ID().Inode); err != nil ||
		got != want {
		t.Errorf("stat %s: %s, %v; want %s", n.Path(), got, err, want)
	}
}

func TestRunInheritedByChildProcesses(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	err := n.Run(func() error {
		out, err := exec.Command("readlink", "/proc/self/ns/net").Output()
		if got := strings.TrimSpace(string(out)); err == nil && got != n.String() {
			t.Errorf("child is in %s, want %s", got, n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inside runs a test with both ways to call a function in a namespace.
func inside(t *testing.T, test func(*testing.T, func(func() error) error)) {
	t.Helper()
	t.Parallel()
	n := newNS(t)
	for name, way := range map[string]func(func() error) error{"Run": n.Run, "Visit": n.Visit} {
		t.Run(name, func(t *testing.T) { test(t, way) })
	}
}

func TestErrorIsReturned(t *testing.T) {
	inside(t, func(t *testing.T, run func(func() error) error) {
		want := errors.New("cause")
		if err := run(func() error { return want }); err != want {
			t.Errorf("got %v, want %v", err, want)
		}
	})
}

func TestPanicContinues(t *testing.T) {
	inside(t, func(t *testing.T, run func(func() error) error) {
		defer func() {
			if got := recover(); got != "cause" {
				t.Errorf("recovered %v, want the panic of the function", got)
			}
		}()
		run(func() error { panic("cause") })
		t.Error("returned")
	})
}

func TestGoexitContinues(t *testing.T) {
	inside(t, func(t *testing.T, run func(func() error) error) {
		returned := make(chan bool)
		go func() {
			ok := false
			defer func() { returned <- ok }()
			run(func() error {
				runtime.Goexit()
				return nil
			})
			ok = true
		}()
		if <-returned {
			t.Error("returned after Goexit")
		}
	})
}

// TestRunNeverUsesTheMainThread checks that fn never runs on the main thread, which never ends:
// a visit there would keep the namespace and change /proc/PID/ns/net.
func TestRunNeverUsesTheMainThread(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			n.Run(func() error {
				if unix.Gettid() == unix.Getpid() {
					t.Error("runs on the main thread")
				}
				return nil
			})
		})
	}
	wg.Wait()
}

func TestRunOnClosedHandle(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	n.Close()
	err := n.Run(func() error {
		t.Error("function was called")
		return nil
	})
	if !errors.Is(err, unix.EBADF) {
		t.Errorf("got %v, want %v", err, unix.EBADF)
	}
}

func TestLockExcludes(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			// A handle of its own, like another process.
			other, err := netns.Open(n.Path())
			if err != nil {
				t.Error(err)
				return
			}
			defer other.Close()
			unlock, err := other.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			if inside.Add(1) != 1 {
				t.Error("two goroutines hold the lock")
			}
			runtime.Gosched()
			inside.Add(-1)
		})
	}
	wg.Wait()
}

func TestLockHoldsAgainstOtherProcesses(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("flock"))
	n := newNS(t)
	unlock, err := n.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("flock", "--nonblock", n.Path(), "true").Run(); err == nil {
		t.Error("another process took the lock")
	}
	unlock()
	if out, err := exec.Command("flock", "--nonblock", n.Path(),
		"true").CombinedOutput(); err != nil {
		t.Errorf("after unlock: %v %s", err, out)
	}
}

func TestLockOfOthersIsFree(t *testing.T) {
	t.Parallel()
	for _, n := range []*netns.NS{newNS(t), newNS(t)} {
		unlock, err := n.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
	}
}

func TestLockGivesUp(t *testing.T) {
	t.Parallel()
	n := newNS(t)
	unlock, err := n.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	unlock()
	// The abandoned attempt must not take the lock after all.
	again, err := n.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func BenchmarkRun(b *testing.B) {
	n, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for b.Loop() {
		n.Run(func() error { return nil })
	}
}

func BenchmarkVisit(b *testing.B) {
	n, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for b.Loop() {
		n.Visit(func() error { return nil })
	}
}

func BenchmarkSocket(b *testing.B) {
	n, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for b.Loop() {
		fd, err := n.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			b.Fatal(err)
		}
		unix.Close(fd)
	}
}

func BenchmarkLock(b *testing.B) {
	n, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for b.Loop() {
		unlock, err := n.Lock(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		unlock()
	}
}

// TestSamePath checks that a namespace is the same through any path.
func TestSamePath(t *testing.T) {
	t.Parallel()
	n, other := newNS(t), newNS(t)
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(n.Path(), link); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{n.Path(), n.Path(), true}, {n.Path(), link, true}, {link, other.Path(), false},
		{n.Path(), other.Path(), false},
		{missing, missing, true}, {missing, n.Path(), false}, {n.Path(), "", false},
		{missing, filepath.Join(dir, "none"), false},
	} {
		if got := netns.SamePath(row.a, row.b); got != row.same {
			t.Errorf("%q and %q: %t", row.a, row.b, got)
		}
	}
	for path, leads := range map[string]bool{link: true, missing: false, dir: false, "": false} {
		if got := netns.Leads(path); got != leads {
			t.Errorf("%q leads to a namespace: %t", path, got)
		}
	}
}
