package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/lockfile"
)

// RegistryDir is where each [Client] registers its state directory before it attaches, so that GC of one runtime knows what the
// other runtimes of the host have attached. It holds a symbolic link for each state directory and is empty after a boot,
// as are all networks.
const RegistryDir = "/run/tenon/state-dirs"

// registry is [RegistryDir]. GC holds a shared lock of the file next to it while it runs; registration takes the lock
// exclusively. So a state directory is registered either before a GC, which then waits for its operations and keeps its
// attachments, or after it.
type registry struct{ dir string }

func (c *Client) registry() registry { return registry{filepath.Join(c.root, RegistryDir)} }

func (g registry) lock(ctx context.Context, mode lockfile.Mode) (lockfile.Lock, error) {
	return lockfile.Take(ctx, g.dir+".lock", mode)
}

// register registers the state directory. ADD goes on without, as a host on which it cannot be registered may have no other
// runtime.
func (c *Client) register(ctx context.Context) {
	if c.isolated() {
		return
	}
	if err := c.registry().add(ctx, c.stateDir()); err != nil {
		c.log().WarnContext(ctx, "the state directory cannot be registered: GC of another runtime may remove its attachments",
			"stateDir", c.stateDir(), "error", err)
	}
}

// add registers a state directory, which it makes. It removes links to directories that no longer exist.
func (g registry) add(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path, err := canonical(dir)
	if err != nil {
		return err
	}
	entry := filepath.Join(g.dir, hashOf(path))
	if _, err := os.Lstat(entry); err == nil {
		return nil
	}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return err
	}
	l, err := g.lock(ctx, lockfile.Exclusive)
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

func canonical(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// sweep removes links that lead nowhere. Their owners may make their directory again at this moment, and find the link still
// there: then sweep restores it.
func (g registry) sweep() error {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		entry := filepath.Join(g.dir, e.Name())
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

// list returns the registered state directories that exist. An entry that is not a link to a directory is an error, as it may
// stand for one.
func (g registry) list() ([]stateDir, error) {
	entries, err := os.ReadDir(g.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var dirs []stateDir
	var errs []error
	for _, e := range entries {
		path, err := os.Readlink(filepath.Join(g.dir, e.Name()))
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

// hold keeps the registry as it is until the file is released. It returns nil if there is no registry and none can be made: then
// no state directory is registered.
func (g registry) hold(ctx context.Context) (*lockfile.Lock, error) {
	if err := os.MkdirAll(g.dir, 0o755); err != nil && !exists(g.dir) {
		return nil, nil
	}
	l, err := g.lock(ctx, lockfile.Shared)
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// others returns clients for the state directories of other runtimes, in the order of their paths.
func (c *Client) others() ([]*Client, error) {
	if c.isolated() {
		return nil, nil
	}
	dirs, err := c.registry().list()
	own, _ := os.Stat(c.stateDir()) // it need not exist
	var distinct []stateDir
	for _, d := range dirs {
		same := func(other stateDir) bool { return os.SameFile(other.info, d.info) }
		if (own == nil || !os.SameFile(own, d.info)) && !slices.ContainsFunc(distinct, same) {
			distinct = append(distinct, d)
		}
	}
	slices.SortFunc(distinct, func(a, b stateDir) int { return cmp.Compare(a.path, b.path) })
	var others []*Client
	for _, d := range distinct {
		other := *c
		other.StateDir = d.path
		others = append(others, &other)
	}
	if err != nil {
		err = cni.Errorf(cni.CodeIOFailure, "registered state directories: %w", err)
	}
	return others, err
}

// lockHost waits until nothing is under way on a network in any state directory of the host, and keeps it so until unlock.
// Each GC locks them in the order of their paths. err is only about the own state directory; what cannot be locked of
// the others is in unknown.
func (c *Client) lockHost(ctx context.Context, network string) (locked *Client, unlock func(), unknown, err error) {
	if c.isolated() {
		locked, unlock, err = c.lockNetwork(ctx, network)
		return locked, unlock, nil, err
	}
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	var errs []error
	locked, nested := c, false // nested: within GC of the runtime that has started this program
	registry, err := c.registry().hold(ctx)
	if err != nil {
		errs = append(errs, cni.Errorf(cni.CodeIOFailure, "registered state directories: %w", err))
	}
	if registry != nil {
		locked, held = c.holding(registry.File), append(held, registry.Release)
		nested = registry.Inherited()
	}
	all, _ := c.others() // judge reports what cannot be listed
	path, err := canonical(c.stateDir())
	if err != nil {
		path = c.stateDir()
	}
	at, _ := slices.BinarySearchFunc(all, path, func(other *Client, path string) int { return cmp.Compare(other.StateDir, path) })
	for _, one := range slices.Insert(slices.Clone(all), at, c) {
		next, release, err := one.lockNetwork(ctx, network)
		switch {
		case err == nil:
			locked, held = locked.holding(next.held[len(one.held):]...), append(held, release)
		case nested && errors.Is(err, lockfile.ErrInherited): // that runtime holds it for this program
		case one == c:
			unlock()
			return nil, nil, nil, err
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		default:
			errs = append(errs, fmt.Errorf("state directory %s: %w", one.StateDir, err))
		}
	}
	return locked, unlock, errors.Join(errs...), nil
}
