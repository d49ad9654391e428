package kernel

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Exhausted reports whether something failed for lack of memory, open files or the like, so that it can succeed the next time.
// A call that failed for another reason would fail again.
func Exhausted(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EINTR, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
