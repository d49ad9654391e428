// Package cache reads and writes the cache of libcni: one file for each attachment, with the
// configuration, the arguments and the result of its ADD. Runtimes that use libcni detach
// containers with it, and programs such as Multus and ocicni read the files themselves.
//
// The package does not interpret configurations and results, calls no plugins and takes no locks.
// Package network has records of its own and only reads the cache, except in
// network.Client.HandOver.
//
// # Systems
//
// The package works on Linux, macOS, FreeBSD and Windows.
package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Dir is the path of a cache directory. The files are in its subdirectory "results" and are named
// NETWORK-CONTAINER-IFNAME. These names are ambiguous: network "a" with container "b-c" and network
// "a-b" with container "c" share a file. The key in a file is therefore authoritative.
type Dir string

func (d Dir) results() string { return filepath.Join(string(d), "results") }

// Path returns the path of the file of an attachment. The code is [cni.CodeInvalidEnvironment] if a
// part of the key is empty, or contains a path separator or a NUL byte.
func (d Dir) Path(a cni.Attachment) (string, error) {
	for _, part := range []struct{ name, value string }{
		{"network name", a.Network}, {"container ID", a.Container}, {"interface name", a.IfName},
	} {
		if part.value == "" {
			return "", cni.Errorf(cni.CodeInvalidEnvironment, "%s is empty", part.name)
		}
		if strings.ContainsAny(part.value, "/\x00"+string(filepath.Separator)) {
			return "", cni.Errorf(cni.CodeInvalidEnvironment,
				"%s %q contains a path separator or a NUL byte", part.name, part.value)
		}
	}
	return filepath.Join(d.results(), a.Network+"-"+a.Container+"-"+a.IfName), nil
}

// Get reads the file of an attachment. The error wraps [fs.ErrNotExist] if the file does not exist
// or belongs to another attachment; a part of the key that is missing in the file matches any
// value. Otherwise Get returns the errors of [Dir.Path] and [ReadFile].
func (d Dir) Get(a cni.Attachment) (*Entry, error) {
	path, err := d.Path(a)
	if err != nil {
		return nil, err
	}
	e, err := ReadFile(path)
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	if !e.isOf(a) {
		return nil, fmt.Errorf("%s belongs to %v: %w", path, e.Attachment, fs.ErrNotExist)
	}
	return e, nil
}

// Files returns the sorted paths of the files, or none if the directory does not exist. It skips
// names that start with a dot. The error is an [*fs.PathError] if the directory cannot be read.
func (d Dir) Files() ([]string, error) {
	names, err := statefile.NamesIn(d.results())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(names)
	var paths []string
	for _, name := range names {
		if !strings.HasPrefix(name, ".") {
			paths = append(paths, filepath.Join(d.results(), name))
		}
	}
	return paths, err
}

// ReadFile reads a file of a cache directory. The error is an [*fs.PathError] if the file cannot be
// read or is not a regular file, and a [*FormatError] if it has another format.
func ReadFile(path string) (*Entry, error) {
	b, err := statefile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Decode(b)
}

// Put writes the file of an attachment. It replaces the file atomically and durably, even if it
// belongs to another attachment: after a crash or a power failure the file has either the old or
// the new content. The draft is in the cache directory itself, because programs read all files in
// "results"; the next Put removes a draft that a crash left. Only if "results" is on another file
// system, the draft is there, with a name that starts with a dot.
//
// Put returns the errors of [Dir.Path] and [Entry.Encode], or an error about the file.
func (d Dir) Put(e *Entry) error {
	path, err := d.Path(e.Attachment)
	if err != nil {
		return err
	}
	b, err := e.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.results(), 0o700); err != nil {
		return err
	}
	err = statefile.ReplaceVia(string(d), path, b, 0o600)
	if errors.Is(err, syscall.EXDEV) {
		err = statefile.ReplaceVia(d.results(), path, b, 0o600)
	}
	return err
}

// Remove removes the file of an attachment, readable or not, unless it belongs to another
// attachment. It returns nil if there is no such file. Otherwise it returns the errors of
// [Dir.Path], or an error about the file.
func (d Dir) Remove(a cni.Attachment) error {
	path, err := d.Path(a)
	if err != nil {
		return err
	}
	if _, err := d.Get(a); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
