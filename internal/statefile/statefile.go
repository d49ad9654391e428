// Package statefile opens, replaces, identifies and locks the files in which Tenon and other
// programs keep state. It accepts only regular files: opening a FIFO could block forever, and
// opening a device could have any effect. The package also marks files with the boot in which they
// were written, because no network namespace survives a reboot: a file from an earlier boot
// describes namespaces that no longer exist. The package does not interpret the content of the
// files.
package statefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// MaxBootID is the maximum length of a boot ID in bytes. Only Linux has boot IDs: on other systems
// no file is marked with a boot, and no file is from an earlier one.
const MaxBootID = 64

// ErrNotRegular means that a path leads to something other than a regular file.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a file as [os.OpenFile] does, without blocking. The error is an [*fs.PathError] that
// wraps [ErrNotRegular], or EISDIR for a directory, if the path does not lead to a regular file.
func Open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flags|nonBlock, mode)
	if errors.Is(err, syscall.ENXIO) { // a FIFO without a reader, opened for writing, or a socket
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, err
	}
	if err := check(f); err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f, nil
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
