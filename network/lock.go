package network

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/regular"
)

// lock waits until the container of a is free and no GC runs on its network, and keeps it so until unlock. Plugins have
// to be called by the client that lock returns: see holding.
func (c *Client) lock(ctx context.Context, a cni.Attachment) (locked *Client, unlock func(), err error) {
	return c.lockSandbox(ctx, a.Container, func() []string { return []string{a.Network} })
}

// holding returns a client whose plugins keep the locks in files: if this process is killed, a plugin that outlives it
// holds the locks until it ends, so that nobody removes what the plugin is still making.
func (c *Client) holding(files ...*os.File) *Client {
	locked := *c
	locked.held = slices.Concat(c.held, files)
	return &locked
}

// lockSandbox waits until a container and some networks are free and keeps them so, as lock does. Other operations can
// change the networks until the container is locked, so lockSandbox asks for them again then.
func (c *Client) lockSandbox(
	ctx context.Context, container string, networks func() []string,
) (locked *Client, unlock func(), err error) {
	for {
		names := networks()
		slices.Sort(names) // every operation that locks several networks does so in this order
		names = slices.Compact(names)
		var held []func()
		unlock := func() {
			for _, release := range slices.Backward(held) {
				release()
			}
		}
		locked := c
		for _, n := range names {
			next, release, err := locked.lockFile(ctx, "network", n, unix.F_RDLCK)
			if err != nil {
				unlock()
				return nil, nil, err
			}
			locked, held = next, append(held, release)
		}
		next, release, err := locked.lockContainer(ctx, container)
		if err != nil {
			unlock()
			return nil, nil, err
		}
		held = append(held, release)
		if !slices.ContainsFunc(networks(), func(n string) bool { return !slices.Contains(names, n) }) {
			return next, unlock, nil
		}
		unlock()
	}
}

// lockNetwork waits until no operation runs on a network, and keeps it so until unlock.
func (c *Client) lockNetwork(ctx context.Context, network string) (locked *Client, unlock func(), err error) {
	return c.lockFile(ctx, "network", network, unix.F_WRLCK)
}

// lockContainer waits until no operation runs on a container, and keeps it so until unlock. An operation locks networks
// before the container, several networks in the order of their names, and never two containers: there is no deadlock.
func (c *Client) lockContainer(ctx context.Context, container string) (locked *Client, unlock func(), err error) {
	return c.lockFile(ctx, "container", container, unix.F_WRLCK)
}

func (c *Client) lockFile(ctx context.Context, kind, name string, mode int16) (locked *Client, unlock func(), err error) {
	what := cni.Attachment{Container: name}
	if kind == "network" {
		what = cni.Attachment{Network: name}
	}
	_, end := c.observe(ctx, Lock, "", what)
	defer func() { end(nil, err) }()
	l, err := lockPath(ctx, c.lockPath(kind, name), mode)
	switch {
	case err == nil:
		return c.holding(l.File), l.release, nil
	case ctx.Err() != nil:
		return nil, nil, cni.Errorf(cni.CodeTryAgainLater, "%s %s is busy: %w", kind, name, err)
	default:
		return nil, nil, cni.Errorf(cni.CodeIOFailure, "lock %s %s: %w", kind, name, err)
	}
}

// lockPath returns the file of a lock: names may be longer than those of files. That of a network is called after the
// first half of its owners, which tells it where the name is not known.
func (c *Client) lockPath(kind, name string) string {
	if kind == "network" {
		return c.networkLockPath(cni.NetworkOwner(name))
	}
	return c.containerLockPath(hashOf(name))
}

func (c *Client) containerLockPath(hash string) string {
	return filepath.Join(c.stateDir(), "locks", "container-"+hash)
}

// hashOf stands for a name of any length in the name of a file.
func hashOf(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(name))) }

func (c *Client) networkLockPath(owner string) string {
	return filepath.Join(c.stateDir(), "locks", "network-"+owner)
}

// sweepLocks removes lock files that killed processes have left.
func (c *Client) sweepLocks() error {
	dir := filepath.Join(c.stateDir(), "locks")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cni.Errorf(cni.CodeIOFailure, "locks: %w", err)
	}
	for _, e := range entries {
		if f, err := regular.Open(filepath.Join(dir, e.Name()), os.O_RDWR, 0); err == nil {
			lockedFile{f}.release()
		}
	}
	return nil
}

// lockedFile is a lock between goroutines and processes: open file description locks (fcntl(2),
// F_OFD_SETLK) on two bytes of a file that exists only while the lock is in use.
type lockedFile struct{ *os.File }

// The bytes. Whoever wants the lock takes the gate first, in the same mode, and gives it up with the lock in
// hand: an exclusive lock that waits for shared ones to go is not overtaken by further shared ones.
const (
	gate int64 = iota
	held
	both // bytes
)

// lockPath waits for the lock in mode F_RDLCK (shared) or F_WRLCK (exclusive).
func lockPath(ctx context.Context, path string, mode int16) (lockedFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return lockedFile{}, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return lockedFile{}, err
		}
		f, err := regular.Open(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return lockedFile{}, err
		}
		l := lockedFile{f}
		for _, b := range []int64{gate, held} {
			if err := l.take(ctx, b, mode); err != nil {
				return lockedFile{}, err
			}
		}
		if l.inPlace() {
			_ = l.set(gate, 1, unix.F_UNLCK)
			return l, nil
		}
		l.release() // its last holder removed it while this one waited
	}
}

// How long to wait before the next try for a lock: at first, and at most.
const (
	firstWait = time.Millisecond
	lastWait  = 32 * time.Millisecond
)

// errInherited tells a plugin that runs networks itself why it would wait for ever.
var errInherited = errors.New("it is held by the runtime that has started this program, which needs a state folder of its own")

// take waits for one byte. On an error the file is no longer the caller's. It tries again and again because nothing can
// end the wait of a thread that the kernel lets wait for a lock, however long its holder takes.
func (l lockedFile) take(ctx context.Context, b int64, mode int16) error {
	err := l.set(b, 1, mode)
	if err == unix.EAGAIN && l.inherited() {
		err = errInherited
	}
	for wait := firstWait; err == unix.EAGAIN; wait = min(2*wait, lastWait) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			err = l.set(b, 1, mode)
		case <-ctx.Done():
			timer.Stop()
			err = ctx.Err()
		}
	}
	if err != nil {
		l.release()
	}
	return err
}

// inherited reports whether this program was started with the file open, so by whoever has locked it. What a program
// opens itself is closed on exec.
func (l lockedFile) inherited() bool {
	own, err := l.Stat()
	if err != nil {
		return false
	}
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil || !os.SameFile(own, info) {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			return true
		}
	}
	return false
}

// set locks or unlocks bytes; EAGAIN if others hold them.
func (l lockedFile) set(start, length int64, mode int16) error {
	lock := unix.Flock_t{Type: mode, Whence: io.SeekStart, Start: start, Len: length}
	return unix.FcntlFlock(l.Fd(), unix.F_OFD_SETLK, &lock)
}

// inPlace reports whether the file is still the one that others find.
func (l lockedFile) inPlace() bool {
	own, err := l.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(l.Name())
	return err == nil && os.SameFile(own, now)
}

// release gives up what is held and removes the file if nobody else wants it. It unlocks first: of several
// that release at once the last finds itself alone. Closing would not do, as a process that is just being
// forked holds the file open until its exec.
func (l lockedFile) release() {
	_ = l.set(gate, both, unix.F_UNLCK)
	if l.set(gate, both, unix.F_WRLCK) == nil {
		if l.inPlace() {
			_ = os.Remove(l.Name())
		}
		_ = l.set(gate, both, unix.F_UNLCK)
	}
	_ = l.Close()
}
