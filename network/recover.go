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

// Recovered is an attachment that [Client.Recover] has deleted, or tried to.
type Recovered struct {
	Record Record // before DEL
	Err    error  // of DEL; nil if nothing is left behind
}

// Recover runs DEL for the attachments of an ADD or a DEL that was interrupted, or that failed and
// could not be rolled back, and for the attachments of an earlier boot, whichever runtime made
// them. It also removes unfinished files. A runtime calls Recover when it starts.
//
// Recover waits for operations in progress, including plugins that have outlived their runtime, but
// for each of them no longer than [Client.Timeout] allows plugins. It calls report, unless that is
// nil, after each DEL, continues past errors, and returns them joined. It removes a damaged record
// of an earlier boot, because its attachment no longer exists, and keeps a damaged record of this
// boot; either is a warning in [Client.Log], not an error. It also keeps attachments of libcni,
// because libcni does not record whether their ADD has ended.
func (c *Client) Recover(ctx context.Context, report func(Recovered)) error {
	if _, err := os.Lstat(c.stateDir()); !errors.Is(err, fs.ErrNotExist) {
		c.register(ctx) // the attachments may be older than the registry
	}
	found, err := c.store().Scan("")
	errs := []error{err, c.sweepDamaged(ctx, found)}
	recorded, _ := readable(found)
	for _, r := range slices.Backward(recorded) {
		if !r.LeftOver() {
			continue
		}
		done, err := c.recover(ctx, r)
		err = of(r.Attachment, err)
		errs = append(errs, err)
		if done != nil && report != nil {
			report(Recovered{Record: publicRecord(done), Err: err})
		}
	}
	return errors.Join(append(errs, c.sweepDrafts(ctx), c.sweepDues(ctx), c.sweepLocks())...)
}

// recover deletes one attachment and returns its record, nil if another process has handled it
// meanwhile. Its time limit covers its plugins and one plugin that has outlived its runtime, so
// that a plugin that hangs does not keep other attachments waiting for longer.
func (c *Client) recover(ctx context.Context, seen *records.Record) (*records.Record, error) {
	a := seen.Attachment
	ctx, cancel := c.limit(ctx, len(seen.List.Plugins)+1)
	defer cancel()
	c, unlock, err := c.lock(ctx, a)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := c.store().Get(a)
	if errors.Is(err, ErrNoRecord) {
		return nil, nil
	}
	if err != nil || !r.LeftOver() {
		return nil, err
	}
	return r, c.removeAs(ctx, Cleanup, r)
}

// sweepDamaged removes damaged records of earlier boots. The error is about records that it could
// not read.
func (c *Client) sweepDamaged(ctx context.Context, found []records.Found) error {
	var errs []error
	for _, f := range found {
		switch {
		case f.Err == nil:
		case !errors.Is(f.Err, ErrUnreadable):
			errs = append(errs, f.Damage())
		case f.Debris:
			errs = append(errs, c.sweepLocked(ctx, c.networkLockPath(f.Owner.Network()),
				func() error {
					return c.removeDebris(ctx, f.Owner)
				}))
		default:
			c.warn(ctx, f.Key, "keeping unreadable record", f.Err)
		}
	}
	return errors.Join(errs...)
}

// removeDebris removes the record of an owner if it is damaged and of an earlier boot. The caller
// must hold the lock of its network.
func (c *Client) removeDebris(ctx context.Context, o cni.Owner) error {
	f := c.store().Read(o)
	if !f.Debris {
		return nil
	}
	c.warn(ctx, f.Key, "removing a damaged record of an earlier boot", f.Err)
	return c.store().RemoveOwner(o)
}

// sweepDrafts removes unfinished records.
func (c *Client) sweepDrafts(ctx context.Context) error {
	networks, err := c.store().Drafts()
	errs := []error{err}
	for _, n := range networks {
		errs = append(errs, c.sweepNetwork(ctx, n))
	}
	return errors.Join(errs...)
}

// sweepNetwork removes unfinished records of a network. owner is the first half of the network's
// owners.
func (c *Client) sweepNetwork(ctx context.Context, owner string) error {
	return c.sweepLocked(ctx, c.networkLockPath(owner),
		func() error { return c.store().Sweep(owner) })
}

// sweepDues removes files about operations that have ended.
func (c *Client) sweepDues(ctx context.Context) error {
	hashes, err := c.store().Dues()
	errs := []error{err}
	for _, h := range hashes {
		errs = append(errs, c.sweepLocked(ctx, c.containerLockPath(h), func() error {
			return c.store().SweepDue(h,
				func(what string, err error) { c.warn(ctx, cni.Attachment{}, what, err) })
		}))
	}
	return errors.Join(errs...)
}

// sweepLocked calls f while it holds a lock.
func (c *Client) sweepLocked(ctx context.Context, path string, f func() error) error {
	ctx, cancel := c.limit(ctx, 1)
	defer cancel()
	l, err := statefile.TakeLock(ctx, path, statefile.Exclusive)
	if err != nil {
		return cni.Errorf(cni.CodeTryAgainLater, "cannot remove unfinished records: lock %s: %w",
			filepath.Base(path), err)
	}
	defer l.Release()
	return f()
}
