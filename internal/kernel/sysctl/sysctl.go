// Package sysctl reads and writes kernel settings under /proc/sys. Settings below net belong to the network namespace
// of the calling thread; choosing it is the caller's task.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	b, err := os.ReadFile(p)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// Write sets the value with a single write; an empty one is written as an empty line, as to write nothing would change
// nothing. The error wraps [io/fs.ErrNotExist] when there is no such setting.
func Write(key, value string) error {
	p, err := Path(key)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if value == "" {
		value = "\n"
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
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
