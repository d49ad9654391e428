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

// lock waits until the container of a is free and no GC runs on its network, and keeps it so until unlock. Plugins have
// to be called by the client that lock returns: see holding.
func (c *Client) lock(ctx context.Context, a cni.Attachment) (locked *Client, unlock func(), err error) {
	return c.lockSandbox(ctx, a.Container, func() []string { return []string{a.Network} })
}

// holding returns a client whose plugins keep the locks in files: if this process is killed, a plugin that outlives it
// holds the locks until it ends, so that nobody removes what the plugin is still making.
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

// lockSandbox waits until a container and some networks are free and keeps them so, as lock does. Other operations can
// change the networks until the container is locked, so lockSandbox asks for them again then.
func (c *Client) lockSandbox(
	ctx context.Context, container string, networks func() []string,
) (locked *Client, unlock func(), err error) {
	for {
		names := networks()
		slices.Sort(names) // every operation that locks several networks does so in this order
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
		if !slices.ContainsFunc(networks(), func(n string) bool { return !slices.Contains(names, n) }) {
			return next, held.all, nil
		}
		held.all()
	}
}

// lockNetwork waits until no operation runs on a network, and keeps it so until unlock.
func (c *Client) lockNetwork(ctx context.Context, network string) (locked *Client, unlock func(), err error) {
	return c.lockFile(ctx, cni.Attachment{Network: network}, statefile.Exclusive)
}

// lockContainer waits until no operation runs on a container, and keeps it so until unlock. An operation locks networks
// before the container, several networks in the order of their names, and never two containers: there is no deadlock.
func (c *Client) lockContainer(ctx context.Context, container string) (locked *Client, unlock func(), err error) {
	return c.lockFile(ctx, cni.Attachment{Container: container}, statefile.Exclusive)
}

// lockFile locks the network that what names, or else the container.
func (c *Client) lockFile(
	ctx context.Context, what cni.Attachment, mode statefile.LockMode,
) (locked *Client, unlock func(), err error) {
	kind, name, path := "container", what.Container, c.containerLockPath(records.Hash(what.Container))
	if what.Network != "" {
		kind, name, path = "network", what.Network, c.networkLockPath(cni.NetworkOwner(what.Network))
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
		return nil, nil, cni.Errorf(cni.CodeIOFailure, "lock %s %s: %w", kind, name, err)
	}
}

// containerLockPath returns the lock file of a container, given by the hash of its ID, because IDs can be longer than
// file names.
func (c *Client) containerLockPath(hash string) string {
	return filepath.Join(c.stateDir(), "locks", "container-"+hash)
}

// networkLockPath returns the lock file of a network, given as the first half of its owners, which is known where its
// name is not.
func (c *Client) networkLockPath(owner string) string {
	return filepath.Join(c.stateDir(), "locks", "network-"+owner)
}

// sweepLocks removes lock files that killed processes have left.
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
