package statefile

import (
	"io/fs"
	"os"
	"syscall"
)

// Open opens a file as [os.OpenFile] does. The error is an [*fs.PathError] that wraps [ErrNotRegular], or EISDIR for a
// directory, if there is something else in its place.
func Open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flags, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = syscall.EISDIR
	case !info.Mode().IsRegular():
		err = ErrNotRegular
	default:
		return f, nil
	}
	_ = f.Close()
	return nil, &fs.PathError{Op: "open", Path: path, Err: err}
}
