package network

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
)

// lock waits until a's container is free and no GC runs on its network, and keeps it so until unlock.
func (c *Client) lock(ctx context.Context, a cni.Attachment) (unlock func(), err error) {
	unlockNetwork, err := c.lockFile(ctx, "network", a.Network, unix.F_RDLCK)
	if err != nil {
		return nil, err
	}
	unlockContainer, err := c.lockContainer(ctx, a.Container)
	if err != nil {
		unlockNetwork()
		return nil, err
	}
	return func() {
		unlockContainer()
		unlockNetwork()
	}, nil
}

// lockNetwork waits until nothing is under way on a network, and keeps it so until unlock.
func (c *Client) lockNetwork(ctx context.Context, network string) (unlock func(), err error) {
	return c.lockFile(ctx, "network", network, unix.F_WRLCK)
}

// lockContainer waits until nothing is under way for a container, and keeps it so until unlock. Where a
// network is locked too, that comes first, and nobody holds two of a kind: there is no deadlock.
func (c *Client) lockContainer(ctx context.Context, container string) (unlock func(), err error) {
	return c.lockFile(ctx, "container", container, unix.F_WRLCK)
}

func (c *Client) lockFile(ctx context.Context, kind, name string, mode int16) (unlock func(), err error) {
	path := c.lockPath(kind, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "lock %s %s: %w", kind, name, err)
	}
	l, err := lockPath(ctx, path, mode)
	if err == nil {
		return l.release, nil
	}
	if ctx.Err() != nil {
		return nil, cni.Errorf(cni.CodeTryAgainLater, "%s %s is busy: %w", kind, name, err)
	}
	return nil, cni.Errorf(cni.CodeIOFailure, "lock %s %s: %w", kind, name, err)
}

// lockPath returns the file of a lock: names may be longer than those of files.
func (c *Client) lockPath(kind, name string) string {
	return filepath.Join(c.stateDir(), "locks", fmt.Sprintf("%s-%x", kind, sha256.Sum256([]byte(name))))
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
	for {
		if err := ctx.Err(); err != nil {
			return lockedFile{}, err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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
			_ = l.set(unix.F_OFD_SETLK, gate, 1, unix.F_UNLCK)
			return l, nil
		}
		l.release() // its last holder removed it while this one waited
	}
}

// take waits for one byte. On an error the file is no longer the caller's.
func (l lockedFile) take(ctx context.Context, b int64, mode int16) error {
	err := l.set(unix.F_OFD_SETLK, b, 1, mode)
	if err == unix.EAGAIN {
		taken := make(chan error, 1)
		go func() { taken <- l.set(unix.F_OFD_SETLKW, b, 1, mode) }()
		select {
		case err = <-taken:
		case <-ctx.Done():
			// Nothing ends the wait of a thread for a lock. It goes on, but must not keep others from the gate.
			_ = l.set(unix.F_OFD_SETLK, gate, 1, unix.F_UNLCK)
			go func() {
				<-taken
				l.release()
			}()
			return ctx.Err()
		}
	}
	if err != nil {
		l.release()
	}
	return err
}

func (l lockedFile) set(cmd int, start, length int64, mode int16) error {
	for {
		lock := unix.Flock_t{Type: mode, Whence: io.SeekStart, Start: start, Len: length}
		if err := unix.FcntlFlock(l.Fd(), cmd, &lock); err != unix.EINTR {
			return err
		}
	}
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
	_ = l.set(unix.F_OFD_SETLK, gate, both, unix.F_UNLCK)
	if l.set(unix.F_OFD_SETLK, gate, both, unix.F_WRLCK) == nil {
		if l.inPlace() {
			_ = os.Remove(l.Name())
		}
		_ = l.set(unix.F_OFD_SETLK, gate, both, unix.F_UNLCK)
	}
	_ = l.Close()
}
