// Package sysctl reads and writes kernel settings under /proc/sys. Settings below net belong to the network namespace
// of the calling thread; choosing it is the caller's task.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrKey says that a key cannot name a setting.
var ErrKey = errors.New("invalid sysctl key")

const root = "/proc/sys"

// Path returns the file of a setting. Keys may be written with dots or slashes: when a dot comes before the first
// slash the two are exchanged in the whole key, so that net.ipv4.conf.eth0/100.arp_notify and
// net/ipv4/conf/eth0.100/arp_notify are the same (sysctl.d(5)). One leading slash is ignored. The error wraps [ErrKey].
func Path(key string) (string, error) {
	k := strings.TrimPrefix(key, "/")
	if i := strings.IndexAny(k, "./"); i >= 0 && k[i] == '.' {
		k = strings.NewReplacer(".", "/", "/", ".").Replace(k)
	}
	for part := range strings.SplitSeq(k, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return "", fmt.Errorf("%w %q", ErrKey, key)
		}
	}
	return path.Join(root, k), nil
}

// Read returns the value without the final newline. The error wraps [io/fs.ErrNotExist] when there is no such setting.
func Read(key string) (string, error) {
	p, err := Path(key)
	if err != nil {
		return "", err
	}
	value, err := ReadFile(p)
	return strings.TrimSuffix(value, "\n"), err
}

// ReadFile returns the contents of a small file in /proc. It makes a third of the system calls that [os.ReadFile] makes,
// and does not start the poller of the runtime.
func ReadFile(path string) (string, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var value []byte
	for buf := make([]byte, 512); ; {
		n, err := retried(func() (int, error) { return unix.Read(fd, buf) })
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return string(value), nil
		}
		value = append(value, buf[:n]...)
	}
}

func open(path string, flags int) (int, error) {
	fd, err := retried(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

func retried(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}

// Write sets the value with a single write; an empty one is written as an empty line, as to write nothing would change
// nothing. The error wraps [io/fs.ErrNotExist] when there is no such setting.
func Write(key, value string) error {
	p, err := Path(key)
	if err != nil {
		return err
	}
	fd, err := open(p, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if value == "" {
		value = "\n"
	}
	if _, err := retried(func() (int, error) { return unix.Write(fd, []byte(value)) }); err != nil {
		return &fs.PathError{Op: "write", Path: p, Err: err}
	}
	return nil
}

// Equal reports whether the fields of two values are equal.
func Equal(a, b string) bool {
	return slices.Equal(strings.Fields(a), strings.Fields(b))
}

// Set writes the value unless it is there already, and returns the one before and whether it was another one. Values
// are equal when their fields are: the kernel separates with tabs what users write with spaces. One that is there and
// cannot be read (a command, such as net/ipv4/route/flush, or a secret that has not been set) is written and does not
// count as changed, as nothing is known to put back.
func Set(key, value string) (old string, changed bool, err error) {
	old, err = Read(key)
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EIO):
		return "", false, Write(key, value)
	case err != nil || Equal(old, value):
		return old, false, err
	}
	if err := Write(key, value); err != nil {
		return old, false, err
	}
	return old, true, nil
}
