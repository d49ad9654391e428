package statefile

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	// firstListing is the size of the first buffer for the names of a directory, in bytes: 1,000 names.
	firstListing = 64 << 10
	// maxEntry is the size of the longest entry in the buffer (struct linux_dirent64, NAME_MAX).
	maxEntry = 280
)

// Names returns the names of all files in a directory, in no order. On the file systems of the kernel it
// returns every file that exists during the call, even if other files are created, renamed or removed
// meanwhile.
//
// [os.File.Readdirnames] can miss some of them, for example on tmpfs: it takes several system calls, and
// the kernel loses its place if the file at which one call ended is removed before the next. Names
// gets all entries from one call, during which the kernel locks the directory. A server of FUSE may return
// them in parts.
func Names(dir *os.File) (names []string, err error) {
	b, err := entries(
		func() error { _, err := dir.Seek(0, 0); return err },
		func(b []byte) (int, error) { return getdents(int(dir.Fd()), b) },
	)
	if err != nil {
		return nil, &os.PathError{Op: "getdents64", Path: dir.Name(), Err: err}
	}
	_, _, names = unix.ParseDirent(b, -1, nil)
	return names, nil
}

// entries reads a directory to its end. If a buffer is too small, it begins again with a larger one.
func entries(rewind func() error, read func(b []byte) (int, error)) ([]byte, error) {
	for size := firstListing; ; size *= 4 {
		if err := rewind(); err != nil {
			return nil, err
		}
		b := make([]byte, size)
		for filled := 0; size-filled >= maxEntry; {
			n, err := read(b[filled:])
			if n == 0 || err != nil {
				return b[:filled], err
			}
			filled += n
		}
	}
}

// getdents calls getdents64 while the thread blocks signals, each of which would end the call early.
func getdents(dir int, b []byte) (n int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, err
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	return unix.Getdents(dir, b)
}
