//go:build unix

package statefile

import (
	"os"

	"golang.org/x/sys/unix"
)

const nonBlock = unix.O_NONBLOCK

func check(f *os.File) error { return Check(int(f.Fd())) }

// Check returns [ErrNotRegular], or EISDIR for a directory, if the descriptor does not refer to a
// regular file. The file must have been opened with O_NONBLOCK, which Check clears.
func Check(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return unix.EISDIR
	default:
		return ErrNotRegular
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil { // keep O_APPEND
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_NONBLOCK)
	}
	return err
}
