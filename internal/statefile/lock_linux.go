package statefile

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// set locks or unlocks bytes. It returns [errBusy] if another open file has locked them.
func (l Lock) set(start, length int64, m LockMode) error {
	typ := [...]int16{Shared: unix.F_RDLCK, Exclusive: unix.F_WRLCK, unlocked: unix.F_UNLCK}[m]
	lock := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: start, Len: length}
	err := unix.FcntlFlock(l.Fd(), unix.F_OFD_SETLK, &lock)
	if err == unix.EAGAIN {
		return errBusy
	}
	return err
}

// Inherited reports whether this program was started with the file open, and thus by the program
// that holds the lock. Files that a program opens itself are closed on exec.
func (l Lock) Inherited() bool {
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
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil &&
			flags&unix.FD_CLOEXEC == 0 {
			return true
		}
	}
	return false
}
