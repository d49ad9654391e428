//go:build unix

package statefile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a file as [os.OpenFile] does, without waiting. The error is an [*fs.PathError] that
// wraps [ErrNotRegular], or EISDIR for a directory, if there is something else in its place.
func Open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, mode)
	if errors.Is(err, unix.ENXIO) { // a FIFO without a reader, opened for writing, or a socket
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, err
	}
	if err := Check(int(f.Fd())); err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f, nil
}

// Check returns [ErrNotRegular], or EISDIR for a directory, if the descriptor does not refer to
// a regular file. The file has to be opened with O_NONBLOCK, which Check removes.
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
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
	return err
}
