// Package regular opens the files in which Tenon and others keep state. Only a regular file can hold
// state: opening a FIFO would wait for its other end, and a device could do anything. The package
// knows neither what the files hold nor where they are.
package regular

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotRegular says that a path names something other than a regular file.
var ErrNotRegular = errors.New("not a regular file")

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

// ReadFile reads a file as [os.ReadFile] does. It returns the same errors as [Open].
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// WriteFile writes a file as [os.WriteFile] does. It returns the same errors as [Open].
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	f, err := Open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
