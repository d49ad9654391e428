package statefile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// LockMode is the mode of a lock.
type LockMode uint8

// The modes.
const (
	Shared    LockMode = iota // excludes exclusive locks
	Exclusive                 // excludes all other locks
	unlocked
)

// ErrInherited is the error for a lock held by the program that started this one. Waiting for
// the lock would never end.
var ErrInherited = errors.New(
	"held by the runtime that started this program; use a separate state directory")

// errBusy is returned by set if another open file has locked the bytes.
var errBusy = errors.New("locked")

// Lock is a lock, held by the caller, that excludes goroutines and processes. Its file exists only
// while the lock is in use. The lock belongs to the open file: a process that inherits the file
// keeps the lock even after the process that took it has ended.
//
// On Linux, Lock locks two bytes of the file with open file description locks (fcntl(2),
// F_OFD_SETLK), so that new shared locks do not overtake a waiting exclusive lock. On Windows it
// does the same with LockFileEx. On macOS and FreeBSD it locks the whole file with flock(2), and
// shared locks can overtake an exclusive one. [Lock.Inherited] works only on Linux; Windows has no
// locks that processes inherit.
type Lock struct{ *os.File }

// The bytes. A caller takes the gate first, in the mode of the lock, and releases the gate once it
// holds the lock. New shared locks therefore do not overtake an exclusive lock that waits for
// earlier shared locks.
const (
	gate int64 = iota
	held
	both // bytes
)

// TakeLock creates the file of a lock and its directory, and waits for the lock until ctx ends. It
// returns the error of ctx, [ErrInherited], or an error about the file. It takes a free lock even if
// ctx has ended.
func TakeLock(ctx context.Context, path string, m LockMode) (Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Lock{}, err
	}
	for tries := 0; ; tries++ {
		if err := ctx.Err(); err != nil && tries > 0 {
			return Lock{}, err
		}
		f, err := Open(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return Lock{}, err
		}
		l := Lock{f}
		for _, b := range []int64{gate, held} {
			if err := l.take(ctx, b, m); err != nil {
				return Lock{}, err
			}
		}
		if l.inPlace() {
			_ = l.set(gate, 1, unlocked)
			return l, nil
		}
		l.Release() // its last holder removed the file in the meantime
	}
}

// FirstWait is the time between the first two attempts of [TakeLock]; it doubles up to lastWait.
const (
	FirstWait = time.Millisecond
	lastWait  = 32 * time.Millisecond
)

// take waits for one byte, and closes the file on failure. It polls, because a thread that waits
// for a lock in the kernel cannot be interrupted.
func (l Lock) take(ctx context.Context, b int64, m LockMode) error {
	err := l.set(b, 1, m)
	if err == errBusy && l.Inherited() {
		err = ErrInherited
	}
	for wait := FirstWait; err == errBusy; wait = min(2*wait, lastWait) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			err = l.set(b, 1, m)
		case <-ctx.Done():
			timer.Stop()
			err = ctx.Err()
		}
	}
	if err != nil {
		l.Release()
	}
	return err
}

// inPlace reports whether the path still leads to the locked file.
func (l Lock) inPlace() bool {
	own, err := l.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(l.Name())
	return err == nil && os.SameFile(own, now)
}

// SweepLock removes a lock file if no process uses it.
func SweepLock(path string) {
	if f, err := Open(path, os.O_RDWR, 0); err == nil {
		Lock{f}.Release()
	}
}
