package network

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// lock waits until the container of a is free and no GC runs on its network, and keeps both locked
// until unlock. The caller must call plugins with the returned client: see holding.
func (c *Client) lock(
	ctx context.Context, a cni.Attachment,
) (locked *Client, unlock func(), err error) {
	return c.lockSandbox(ctx, a.Container, func() []string { return []string{a.Network} })
}

// holding returns a client that passes the locks in files to its plugins: if this process is
// killed, a plugin that outlives it holds the locks until it ends, so that no other process
// detaches an attachment while the plugin still creates it.
func (c *Client) holding(files ...*os.File) *Client {
	locked := *c
	locked.held = slices.Concat(c.held, files)
	return &locked
}

// releases are the functions that release locks.
type releases []func()

// all releases the locks, the last first.
func (r releases) all() {
	for _, release := range slices.Backward(r) {
		release()
	}
}

// lockSandbox locks a container and some networks, as lock does. Other operations can change the
// list of networks until the container is locked, so lockSandbox then asks for the list again.
func (c *Client) lockSandbox(
	ctx context.Context, container string, networks func() []string,
) (locked *Client, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, cni.Errorf(cni.CodeTryAgainLater, "container %s: %w", container, err)
	}
	for {
		names := networks()
		slices.Sort(names) // all operations lock networks in this order
		names = slices.Compact(names)
		var held releases
		locked := c
		for _, n := range names {
			next, release, err := locked.lockFile(ctx, cni.Attachment{Network: n}, statefile.Shared)
			if err != nil {
				held.all()
				return nil, nil, err
			}
			locked, held = next, append(held, release)
		}
		next, release, err := locked.lockContainer(ctx, container)
		if err != nil {
			held.all()
			return nil, nil, err
		}
		held = append(held, release)
		if !slices.ContainsFunc(networks(),
			func(n string) bool { return !slices.Contains(names, n) }) {
			return next, held.all, nil
		}
		held.all()
	}
}

// lockNetwork waits until no operation runs on a network, and keeps it locked until unlock.
func (c *Client) lockNetwork(
	ctx context.Context, network string,
) (locked *Client, unlock func(), err error) {
	return c.lockFile(ctx, cni.Attachment{Network: network}, statefile.Exclusive)
}

// lockContainer waits until no operation runs on a container, and keeps it locked until unlock. An
// operation locks networks before the container, several networks in the order of their names, and
// never two containers, so there is no deadlock.
func (c *Client) lockContainer(
	ctx context.Context, container string,
) (locked *Client, unlock func(), err error) {
	return c.lockFile(ctx, cni.Attachment{Container: container}, statefile.Exclusive)
}

// lockFile locks the network that what names, or else its container.
func (c *Client) lockFile(
	ctx context.Context, what cni.Attachment, mode statefile.LockMode,
) (locked *Client, unlock func(), err error) {
	kind, name, path := "container", what.Container,
		c.containerLockPath(records.Hash(what.Container))
	if what.Network != "" {
		kind, name, path = "network", what.Network,
			c.networkLockPath(cni.NetworkOwner(what.Network))
	}
	_, end := c.observe(ctx, Lock, "", what)
	defer func() { end(nil, err) }()
	l, err := statefile.TakeLock(ctx, path, mode)
	switch {
	case err == nil:
		return c.holding(l.File), l.Release, nil
	case ctx.Err() != nil:
		return nil, nil, cni.Errorf(cni.CodeTryAgainLater, "%s %s is busy: %w", kind, name, err)
	default:
		return nil, nil, cni.Errorf(cni.CodeIOFailure, "cannot lock %s %s: %w", kind, name, err)
	}
}

// containerLockPath returns the lock file of a container, given by the hash of its ID, because an
// ID can be longer than a file name.
func (c *Client) containerLockPath(hash string) string {
	return filepath.Join(c.stateDir(), "locks", "container-"+hash)
}

// networkLockPath returns the lock file of a network. owner is the first half of the network's
// owners, which is known even if the name is not.
func (c *Client) networkLockPath(owner string) string {
	return filepath.Join(c.stateDir(), "locks", "network-"+owner)
}

// sweepLocks removes the lock files of killed processes.
func (c *Client) sweepLocks() error {
	dir := filepath.Join(c.stateDir(), "locks")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cni.Errorf(cni.CodeIOFailure, "locks: %w", err)
	}
	for _, e := range entries {
		statefile.SweepLock(filepath.Join(dir, e.Name()))
	}
	return nil
}
