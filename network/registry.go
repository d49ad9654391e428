package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// RegistryDir is where each [Client] registers its state directory before it attaches, so that GC
// of one runtime knows the attachments of the other runtimes of the host. It holds a symbolic link
// for each state directory and is empty after a boot, as are all networks.
const RegistryDir = "/run/tenon/state-dirs"

func (c *Client) registry() records.Registry {
	return records.Registry{Dir: filepath.Join(c.root, RegistryDir)}
}

// register registers the state directory. If it fails, ADD continues, because the host may have no
// other runtime.
func (c *Client) register(ctx context.Context) {
	if c.isolated() {
		return
	}
	if err := c.registry().Add(ctx, c.stateDir()); err != nil {
		c.log().WarnContext(ctx,
			"cannot register the state directory; GC of another runtime may remove its attachments",
			"stateDir", c.stateDir(), "error", err)
	}
}

// others returns a client for each state directory of another runtime, in the order of their paths.
func (c *Client) others() ([]*Client, error) {
	if c.isolated() {
		return nil, nil
	}
	paths, err := c.registry().Others(c.stateDir())
	var others []*Client
	for _, path := range paths {
		other := *c
		other.StateDir, other.CacheDir = path, NoCacheDir // the files of libcni belong to c
		others = append(others, &other)
	}
	return others, err
}

// runtimes returns c and the clients of [Client.others], in the order of their paths.
func (c *Client) runtimes() ([]*Client, error) {
	all, err := c.others()
	path, pathErr := records.Canonical(c.stateDir())
	if pathErr != nil {
		path = c.stateDir()
	}
	at, _ := slices.BinarySearchFunc(all, path,
		func(other *Client, path string) int { return cmp.Compare(other.StateDir, path) })
	return slices.Insert(all, at, c), err
}

// RecordDirs returns the directories with the records that [Client.ListHost] returns, and
// [RegistryDir], for programs that watch them for new and removed attachments. Some of them may not
// exist yet. If it cannot read the registry, it returns the rest and an error.
func (c *Client) RecordDirs() ([]string, error) {
	all, err := c.runtimes()
	var dirs []string
	if !c.isolated() {
		dirs = append(dirs, c.registry().Dir)
	}
	for _, one := range all {
		dirs = append(dirs, one.store().Dir())
	}
	if dir := c.cacheDir(); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "results")) // of libcni
	}
	return dirs, err
}

// lockHost locks a network in all state directories of the host, in the order of their paths, until
// unlock. err is about the own state directory; unknown is about directories of other runtimes that
// cannot be locked.
func (c *Client) lockHost(
	ctx context.Context, network string,
) (locked *Client, unlock func(), unknown, err error) {
	if c.isolated() {
		locked, unlock, err = c.lockNetwork(ctx, network)
		return locked, unlock, nil, err
	}
	var held releases
	var errs []error
	locked, nested := c, false // nested: another runtime's GC has started this program
	registry, err := c.registry().Hold(ctx)
	if err != nil {
		errs = append(errs, cni.Errorf(cni.CodeIOFailure, "registered state directories: %w", err))
	}
	if registry != nil {
		locked, held = c.holding(registry.File), append(held, registry.Release)
		nested = registry.Inherited()
	}
	all, _ := c.runtimes() // judge reports the error
	for _, one := range all {
		next, release, err := one.lockNetwork(ctx, network)
		switch {
		case err == nil:
			locked, held = locked.holding(next.held[len(one.held):]...), append(held, release)
		case nested && errors.Is(err, statefile.ErrInherited): // the other runtime holds the lock
		case one == c:
			held.all()
			return nil, nil, nil, err
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		default:
			errs = append(errs, fmt.Errorf("state directory %s: %w", one.StateDir, err))
		}
	}
	return locked, held.all, errors.Join(errs...), nil
}
