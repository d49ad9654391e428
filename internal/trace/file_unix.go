//go:build unix

package trace

import (
	"errors"
	"os"
	"syscall"
)

// open does not follow a symbolic link, and does not wait for a reader of a FIFO.
func open(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	return os.OpenFile(path, flags, 0o600)
}

// private returns nil if no other user could have prepared the file, as another name of a file that
// this process must not change, for example.
func private(info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular() || !ok:
		return errors.New("it is not a regular file")
	case int(stat.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case stat.Nlink > 1:
		return errors.New("it has more than one name")
	}
	return nil
}
