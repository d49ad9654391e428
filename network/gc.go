package network

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/about"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Keep defines the attachments of a network that are in use. GC removes all others. A zero Keep is
// an error.
type Keep struct {
	// Attachments is the complete list of attachments that this runtime uses. GC returns
	// [cni.CodeInvalidConfig] for nil, because nil could be a mistake; an empty list means that
	// none is in use.
	Attachments []cni.ValidAttachment

	// Recorded, instead of Attachments, keeps every attachment that is recorded as attached while
	// no ADD is in progress. Interrupted ADDs and DELs, and attachments of an earlier boot, are not
	// in use.
	Recorded bool

	// Since is the time at which the caller began to collect Attachments. An attachment created
	// after it is in use too, because the list cannot contain it. Zero is the start of GC.
	Since time.Time

	// AllRuntimes makes GC also judge the attachments of other runtimes with records in
	// [Client.StateDir] or files in [Client.CacheDir]. Otherwise these are in use, whatever their
	// state. Attachments recorded in other state directories of the host are always in use.
	AllRuntimes bool
}

// GC removes everything in a network that does not belong to an attachment in use.
//
// GC first detaches the recorded attachments that are not in use, as [Client.Del] does. From
// version 1.1.0 on, it then calls GC of the plugins in their order, with the list of all
// attachments in use. It continues past errors and joins them. GC of a network with disableGC does
// nothing and succeeds.
//
// The attachments of other runtimes of the host are in use: attachments recorded in the state
// directories that are registered in [RegistryDir], and the attachments of libcni. GC waits for
// operations on the network in all of these directories.
//
// GC keeps a damaged record and logs a warning to [Client.Log]; if the key of the record is
// readable, its attachment is in use. GC removes a damaged record of an earlier boot, because its
// attachment no longer exists. GC does not call the plugins if the list of attachments in use is
// incomplete: if the key of a record is unreadable, or if records or registered directories cannot
// be read. The latter is also an error.
func (c *Client) GC(ctx context.Context, n *config.Network, k Keep) (err error) {
	k, err = k.check(n)
	if err != nil || n.DisableGC {
		return err
	}
	c, ctx, end := c.journaled(ctx, Operation, cni.GC, cni.Attachment{Network: n.Name})
	defer func() { end(nil, err) }()
	c, unlock, unknown, err := c.lockHost(ctx, n.Name)
	if err != nil {
		return ofNetwork(n, err)
	}
	defer unlock()
	j := c.judge(n, k)
	errs := []error{unknown, j.err}
	if j.listed {
		errs = append(errs, c.store().Sweep(cni.NetworkOwner(n.Name)))
	}
	for _, f := range j.damaged {
		if f.Debris {
			errs = append(errs, c.removeDebris(ctx, f.Owner))
		} else {
			c.warn(ctx, cmp.Or(f.Key, cni.Attachment{Network: n.Name}), "keeping unreadable record",
				f.Err)
		}
	}
	for _, r := range j.stale {
		errs = append(errs, of(r.Attachment, c.deleteStale(ctx, n, r)))
	}
	if unknown == nil && j.complete {
		errs = append(errs, c.collect(ctx, n, j.valid))
	} else if n.Version.Has(cni.GC) {
		c.log().WarnContext(ctx,
			"skipped GC of plugins: the list of attachments in use is incomplete",
			about.Args(cni.Attachment{Network: n.Name})...)
	}
	return ofNetwork(n, errors.Join(errs...))
}

// Stale returns the recorded attachments that [Client.GC] would delete now. It also returns an
// error if it could not read a record or directory. Damaged records are not an error: see
// [Client.List].
func (c *Client) Stale(n *config.Network, k Keep) ([]Record, error) {
	k, err := k.check(n)
	if err != nil || n.DisableGC {
		return nil, err
	}
	j := c.judge(n, k)
	return publicRecords(j.stale), ofNetwork(n, j.err)
}

// check validates k and returns it with Since set.
func (k Keep) check(n *config.Network) (Keep, error) {
	if err := n.Validate(); err != nil {
		return k, err
	}
	if k.Attachments == nil && !k.Recorded {
		return k, cni.Errorf(cni.CodeInvalidConfig,
			"network %s: GC needs the list of attachments in use", n.Name).
			WithDetails("pass an empty list if none is in use")
	}
	if k.Attachments != nil && k.Recorded {
		return k, cni.Errorf(cni.CodeInvalidConfig,
			"network %s: GC accepts a list of attachments or all recorded ones, not both", n.Name)
	}
	if k.Since.IsZero() {
		k.Since = time.Now()
	}
	return k, nil
}

// judgement lists the attachments of a network that are in use, and the records of the others.
type judgement struct {
	valid    []cni.ValidAttachment
	known    map[cni.Owner]bool // the owners of valid
	stale    []*records.Record
	damaged  []records.Found // records that cannot be read
	listed   bool            // the records in StateDir could be listed
	complete bool            // valid contains every attachment in use
	err      error           // about records and directories that cannot be read
}

func (c *Client) judge(n *config.Network, k Keep) judgement {
	j := judgement{known: map[cni.Owner]bool{}, complete: true}
	for _, v := range k.Attachments {
		j.keep(cni.Attachment{Network: n.Name, Container: v.ContainerID, IfName: v.IfName})
	}
	all := k.AllRuntimes && !k.Recorded // the caller lists the attachments of all runtimes
	err := c.judgeOthers(n, &j)
	if !all && c.cacheDir() != "" {
		err = errors.Join(err, j.keepUnreadable(n, c.cacheDir()))
	}
	found, ownErr := c.scan(n.Name)
	j.listed = ownErr == nil
	errs := []error{err, ownErr}
	if err := errors.Join(errs...); err != nil {
		j.complete = false
	}
	for _, f := range found {
		switch {
		case j.known[f.Owner]:
		case f.Err != nil && !errors.Is(f.Err, ErrUnreadable):
			errs = append(errs, f.Damage())
			j.complete = false
		case f.Err != nil:
			j.damaged = append(j.damaged, f)
			j.keepDamaged(f, all)
		case c.inUse(f.Record, k):
			j.keep(f.Record.Attachment)
		default:
			j.stale = append(j.stale, f.Record)
		}
	}
	j.err = errors.Join(errs...)
	return j
}

// judgeOthers keeps the attachments in other state directories of the host, and the attachments of
// libcni in the default cache directory if [Client.CacheDir] is another one.
func (c *Client) judgeOthers(n *config.Network, j *judgement) error {
	others, err := c.others()
	errs := []error{err}
	for _, other := range others {
		found, err := other.store().Scan(cni.NetworkOwner(n.Name))
		errs = append(errs, err)
		for _, f := range found {
			switch {
			case f.Err == nil:
				j.keep(f.Record.Attachment)
			case errors.Is(f.Err, ErrUnreadable):
				j.keepDamaged(f, false)
			default:
				errs = append(errs, f.Damage())
			}
		}
	}
	if dir := c.defaultCacheDir(); !c.isolated() && dir != c.cacheDir() {
		found, err := (records.Cache{Dir: dir}).Scan(n.Name)
		errs = append(errs, err, j.keepUnreadable(n, dir))
		for _, f := range found {
			j.keep(f.Record.Attachment)
		}
	}
	return errors.Join(errs...)
}

// keepUnreadable keeps all attachments that the unreadable files in a cache directory of libcni
// could describe.
func (j *judgement) keepUnreadable(n *config.Network, dir string) error {
	keys, err := (records.Cache{Dir: dir}).Unreadable(n.Name)
	for _, key := range keys {
		j.keep(key)
	}
	return err
}

// keepDamaged keeps the attachment of a damaged record. If its key is unreadable, the list of
// attachments in use is incomplete, unless the record is unimportant.
func (j *judgement) keepDamaged(f records.Found, unimportant bool) {
	switch {
	case f.Debris:
	case f.Key != (cni.Attachment{}):
		j.keep(f.Key)
	case !unimportant:
		j.complete = false
	}
}

func (j *judgement) keep(a cni.Attachment) {
	if o := a.Owner(); !j.known[o] {
		j.known[o] = true
		j.valid = append(j.valid, cni.ValidAttachment{ContainerID: a.Container, IfName: a.IfName})
	}
}

// inUse reports whether an attachment that is not in the list is in use.
func (c *Client) inUse(r *records.Record, k Keep) bool {
	switch {
	case r.Runtime != c.Runtime && !k.AllRuntimes:
		return true
	case r.LeftOver():
		return false
	default:
		return k.Recorded || r.Done.After(k.Since)
	}
}

func (c *Client) deleteStale(ctx context.Context, n *config.Network, r *records.Record) error {
	if err := r.Complete(n); err != nil {
		return err
	}
	c, unlock, err := c.lockContainer(ctx, r.Attachment.Container)
	if err != nil {
		return err
	}
	defer unlock()
	return c.removeAs(ctx, Cleanup, r)
}

// collect calls GC of the plugins.
func (c *Client) collect(
	ctx context.Context, n *config.Network, valid []cni.ValidAttachment,
) error {
	n, err := c.negotiate(ctx, n)
	if err != nil || !n.Version.Has(cni.GC) {
		return err
	}
	env := c.env(cni.GC, cni.Attachment{}, records.Parameters{})
	return c.runAll(ctx, n.List, forward(n.List), env, cni.RequestData{Valid: valid})
}
