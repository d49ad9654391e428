package records

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Registry is the directory in which the runtimes of a host register their state directories. GC
// holds a shared lock on the file next to it, and registration an exclusive lock. A runtime
// therefore registers a state directory either before a GC, which then waits for its operations and
// keeps its attachments, or after it.
type Registry struct{ Dir string }

func (g Registry) lock(ctx context.Context, mode statefile.LockMode) (statefile.Lock, error) {
	return statefile.TakeLock(ctx, g.Dir+".lock", mode)
}

// Add creates a state directory and registers it. It removes links to directories that no longer
// exist.
func (g Registry) Add(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path, err := Canonical(dir)
	if err != nil {
		return err
	}
	entry := filepath.Join(g.Dir, Hash(path))
	if _, err := os.Lstat(entry); err == nil {
		return nil
	}
	if err := os.MkdirAll(g.Dir, 0o755); err != nil {
		return err
	}
	l, err := g.lock(ctx, statefile.Exclusive)
	if err != nil {
		return err
	}
	defer l.Release()
	if err := g.sweep(); err != nil {
		return err
	}
	if err := os.Symlink(path, entry); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Canonical returns the path of a directory without symbolic links.
func Canonical(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// sweep removes links to directories that no longer exist. A runtime may recreate its directory
// concurrently and find the link still in place; sweep then restores the link.
func (g Registry) sweep() error {
	names, err := statefile.NamesIn(g.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		entry := filepath.Join(g.Dir, name)
		path, err := os.Readlink(entry)
		if err != nil || exists(path) {
			continue
		}
		if err := removeFile(entry); err != nil {
			return err
		}
		if exists(path) {
			if err := os.Symlink(path, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// stateDir is a state directory of the host.
type stateDir struct {
	path string
	info fs.FileInfo
}

// list returns the registered state directories that exist, and an error for entries that are not
// links to a directory.
func (g Registry) list() ([]stateDir, error) {
	names, err := statefile.NamesIn(g.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	slices.Sort(names)
	var dirs []stateDir
	var errs []error
	for _, name := range names {
		path, err := os.Readlink(filepath.Join(g.Dir, name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case !info.IsDir():
			errs = append(errs, fmt.Errorf("state directory %s is not a directory", path))
		default:
			dirs = append(dirs, stateDir{path, info})
		}
	}
	return dirs, errors.Join(errs...)
}

// Hold blocks registrations until the lock is released. It returns nil if the registry does not
// exist and cannot be created: then no state directory is registered.
func (g Registry) Hold(ctx context.Context) (*statefile.Lock, error) {
	if err := os.MkdirAll(g.Dir, 0o755); err != nil && !exists(g.Dir) {
		return nil, nil
	}
	l, err := g.lock(ctx, statefile.Shared)
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// Others returns the paths of the registered state directories except own, sorted and without
// duplicates. If it cannot read all entries, it returns the rest and an error.
func (g Registry) Others(own string) ([]string, error) {
	dirs, err := g.list()
	if err != nil {
		err = cni.Errorf(cni.CodeIOFailure, "registered state directories: %w", err)
	}
	self, _ := os.Stat(own)
	var distinct []stateDir
	var paths []string
	for _, d := range dirs {
		same := func(other stateDir) bool { return os.SameFile(other.info, d.info) }
		if (self == nil || !os.SameFile(self, d.info)) && !slices.ContainsFunc(distinct, same) {
			distinct = append(distinct, d)
			paths = append(paths, d.path)
		}
	}
	slices.Sort(paths)
	return paths, err
}

// Hash returns a file name for a name of any length.
func Hash(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(name))) }
