// Package netns provides handles on network namespaces: it opens, creates, enters and locks them,
// and reads and writes files in /proc that depend on the namespace of the thread. No other package
// calls setns or unshare. It knows nothing of the objects inside a namespace.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotExist reports that nothing exists at the path of a namespace.
	ErrNotExist = errors.New("network namespace does not exist")
	// ErrNotNamespace reports that the file at the path is not a network namespace, for example the
	// plain file that remains of a bind mount.
	ErrNotNamespace = errors.New("not a network namespace")
)

// ofThread is the namespace of the calling thread.
const ofThread = "/proc/thread-self/ns/net"

// NS is a handle on a network namespace. The namespace lives at least as long as the handle is
// open. All methods but Close may be called concurrently.
type NS struct {
	f    *os.File
	path string // empty unless opened by path
	id   ID
}

// ID identifies a namespace among all that exist at present on this node: device and inode of its
// nsfs file.
type ID struct{ Dev, Inode uint64 }

// Open opens the network namespace at path, for example a bind mount of it or /proc/PID/ns/net. The
// error wraps [ErrNotExist] or [ErrNotNamespace] if one of them is the reason. Open never blocks,
// and opens only nsfs files, so it refuses a path of any other type (FIFO, device) without a side
// effect.
func Open(path string) (*NS, error) {
	probe, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%q: %w", path, ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	defer unix.Close(probe)
	var st unix.Statfs_t
	if err := unix.Fstatfs(probe, &st); err != nil {
		return nil, fmt.Errorf("file system of %q: %w", path, err)
	}
	if st.Type != unix.NSFS_MAGIC {
		return nil, fmt.Errorf("%q: %w", path, ErrNotNamespace)
	}
	n, err := open(fdPath(os.Getpid(), probe))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	n.path = path
	return n, nil
}

// Current opens the namespace of the calling thread. Unless the goroutine is locked to its thread,
// this is the namespace of the process.
func Current() (*NS, error) {
	n, err := open(ofThread)
	if err != nil {
		return nil, fmt.Errorf("current network namespace: %w", err)
	}
	return n, nil
}

// New creates an empty namespace that lives as long as the handle and any other reference to it.
func New() (*NS, error) {
	var n *NS
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		n, err = Current()
		return err
	})
	return n, err
}

// open opens an nsfs file.
func open(path string) (*NS, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kind of namespace: %w", err), f.Close())
	}
	if kind != unix.CLONE_NEWNET {
		return nil, errors.Join(ErrNotNamespace, f.Close())
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("identity: %w", err), f.Close())
	}
	return &NS{f: f, id: ID{Dev: st.Dev, Inode: st.Ino}}, nil
}

// Fd returns the file descriptor of the handle; it stays owned by n. It is -1 after Close.
func (n *NS) Fd() int { return int(n.f.Fd()) }

// File returns the open file of the handle, for child processes; it stays owned by n.
func (n *NS) File() *os.File { return n.f }

// Path returns a path of the namespace that child processes can open: the path given to [Open] or,
// while the handle is open, /proc/PID/fd/N.
func (n *NS) Path() string {
	if n.path != "" {
		return n.path
	}
	return fdPath(os.Getpid(), n.Fd())
}

// String returns the name of the namespace in messages: the path given to [Open], else net:[INODE]
// as in namespaces(7).
func (n *NS) String() string {
	if n.path != "" {
		return n.path
	}
	return fmt.Sprintf("net:[%d]", n.id.Inode)
}

// ID identifies the namespace; two handles on one namespace have the same ID.
func (n *NS) ID() ID { return n.id }

// Same reports whether both handles refer to the same namespace.
func (n *NS) Same(other *NS) bool { return n.id == other.id }

// SamePath reports whether two paths lead to one namespace, as paths below /run and /var/run can.
// Equal paths are the same even if they do not exist.
func SamePath(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// Leads reports whether a path leads to a network namespace.
func Leads(path string) bool {
	n, err := Open(path)
	return err == nil && n.Close() == nil
}

// Close closes the handle. The namespace itself ends with the last reference to it.
func (n *NS) Close() error { return n.f.Close() }

// Here reports whether the calling thread is in the namespace. If it is, so are all other threads,
// except threads of [NS.Run].
func (n *NS) Here() bool {
	var st unix.Stat_t
	err := unix.Stat(ofThread, &st)
	return err == nil && n.id == ID{Dev: st.Dev, Inode: st.Ino}
}

// Run calls fn inside the namespace and returns its error. fn runs on a thread of its own, which
// ends with it, so fn may change anything about the thread. Child processes that it starts are in
// the namespace too; goroutines are not. A panic of fn continues in the caller, as does
// [runtime.Goexit].
func (n *NS) Run(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n, err)
		}
		return fn()
	})
}

// Visit calls fn inside the namespace and returns its error, like Run, but in a tenth of the time,
// because no thread ends. fn may therefore neither change anything about the thread nor start
// processes or goroutines. If the kernel does not let the thread return, Visit returns an error and
// the thread ends; it is never the caller's thread.
func (n *NS) Visit(fn func() error) error {
	if n.Here() {
		return fn()
	}
	return apart(func() (err error) {
		runtime.LockOSThread()
		here, err := unix.Open(ofThread, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			return err
		}
		defer unix.Close(here)
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			return fmt.Errorf("enter network namespace %s: %w", n, err)
		}
		defer func() {
			if failed := unix.Setns(here, unix.CLONE_NEWNET); failed != nil {
				err = errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n, failed))
				return
			}
			runtime.UnlockOSThread()
		}()
		return fn()
	})
}

// Socket opens a socket (socket(2)) that belongs to the namespace, wherever it is used.
func (n *NS) Socket(domain, kind, protocol int) (fd int, err error) {
	fd = -1
	err = n.Visit(func() (err error) {
		fd, err = unix.Socket(domain, kind, protocol)
		return err
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, fmt.Errorf("socket in network namespace %s: %w", n, err)
	}
	return fd, nil
}

// onThread calls fn on a thread that ends with it. The main thread of the process never ends: a
// goroutine on it hands over to another one.
func onThread(fn func() error) error {
	return apart(func() error {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with its goroutine
		if unix.Gettid() != unix.Getpid() {
			return fn()
		}
		defer runtime.UnlockOSThread()
		return apart(func() error {
			runtime.LockOSThread()
			return fn()
		})
	})
}

// apart calls fn on a goroutine of its own. A panic of fn continues in the caller, as does
// [runtime.Goexit].
func apart(fn func() error) error {
	var (
		err    error
		caught any
		exited = true
		done   = make(chan struct{})
	)
	go func() {
		defer close(done)
		defer func() { caught = recover() }()
		err = fn()
		exited = false
	}()
	<-done
	switch {
	case caught != nil:
		panic(caught)
	case exited:
		runtime.Goexit()
	}
	return err
}

func fdPath(pid, fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, fd) }
