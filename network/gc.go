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

// Keep says which attachments of a network are in use. Whatever is not is deleted, so none of it is guessed.
type Keep struct {
	// Attachments is the complete list of those that this runtime uses. nil is refused with
	// [cni.CodeInvalidConfig], as it would mean that there are none; an empty list says so.
	Attachments []cni.ValidAttachment

	// Recorded, instead of Attachments, keeps all that is recorded as attached, read at a moment when no ADD is
	// under way. What an ADD or a DEL that was cut short has left is not in use, nor what an earlier boot attached.
	Recorded bool

	// Since is when the making of Attachments began: what was attached after that is in use too, as the list
	// cannot tell. Zero is the begin of GC.
	Since time.Time

	// AllRuntimes judges also what other runtimes have attached, by the records in [Client.StateDir] and the files in
	// [Client.CacheDir]. Otherwise that is in use, whatever its state. Attachments recorded in other state directories
	// of the host are always in use.
	AllRuntimes bool
}

// GC takes away what belongs to no attachment of a network that is in use.
//
// First the recorded attachments that are not in use are deleted as [Client.Del] does. Then, from 1.1.0 on, the plugins
// get GC in their order, with the list of all that are. GC goes on past errors and joins them. A network with disableGC is
// left alone, which is success.
//
// The attachments of other runtimes of the host are in use: those recorded in the state directories that are registered in
// [RegistryDir], and the attachments of libcni. GC waits for operations on the network in all of these directories.
//
// A damaged record is kept, with a warning in [Client.Log]; if its key can still be read, its attachment is in use. One of an
// earlier boot is removed, as it stands for nothing in use. Where the list of attachments in use is incomplete, because not
// even the key can be read, or because records or registered directories cannot be looked at, the plugins get no GC; the
// latter is an error too.
func (c *Client) GC(ctx context.Context, n *config.Network, k Keep) (err error) {
	k, err = k.check(n)
	if err != nil || n.DisableGC {
		return err
	}
	ctx, end := c.observe(ctx, Operation, cni.GC, cni.Attachment{Network: n.Name})
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
			c.warn(ctx, cmp.Or(f.Key, cni.Attachment{Network: n.Name}), "record cannot be read, kept", f.Err)
		}
	}
	for _, r := range j.stale {
		errs = append(errs, of(r.Attachment, c.deleteStale(ctx, n, r)))
	}
	if unknown == nil && j.complete {
		errs = append(errs, c.collect(ctx, n, j.valid))
	} else if n.Version.Has(cni.GC) {
		c.log().WarnContext(ctx, "plugins got no GC: not all attachments in use are known", about.Args(cni.Attachment{Network: n.Name})...)
	}
	return ofNetwork(n, errors.Join(errs...))
}

// Stale returns the recorded attachments that [Client.GC] would delete now. The error is about what GC could not look at; the
// others are returned in any case. Damaged records are no error: see [Client.List].
func (c *Client) Stale(n *config.Network, k Keep) ([]Record, error) {
	k, err := k.check(n)
	if err != nil || n.DisableGC {
		return nil, err
	}
	j := c.judge(n, k)
	return publicRecords(j.stale), ofNetwork(n, j.err)
}

// check refuses what says nothing, and returns k with the moment that counts.
func (k Keep) check(n *config.Network) (Keep, error) {
	if err := n.Validate(); err != nil {
		return k, err
	}
	if k.Attachments == nil && !k.Recorded {
		return k, cni.Errorf(cni.CodeInvalidConfig, "network %s: GC without the list of valid attachments", n.Name).
			WithDetails("an empty list says that none is in use")
	}
	if k.Attachments != nil && k.Recorded {
		return k, cni.Errorf(cni.CodeInvalidConfig, "network %s: GC with a list of valid attachments and all that are recorded", n.Name)
	}
	if k.Since.IsZero() {
		k.Since = time.Now()
	}
	return k, nil
}

// judgement is what is in use of a network and what is not.
type judgement struct {
	valid    []cni.ValidAttachment
	known    map[cni.Owner]bool // the owners of valid
	stale    []*records.Record
	damaged  []records.Found // records that cannot be read
	listed   bool            // the own records could be listed
	complete bool            // everything in use is in valid
	err      error           // about what cannot be looked at
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

// judgeOthers keeps what other state directories of the host have recorded, and what libcni has attached without [Client.CacheDir].
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

// keepUnreadable keeps whatever unreadable files in a cache directory of libcni may stand for.
func (j *judgement) keepUnreadable(n *config.Network, dir string) error {
	keys, err := (records.Cache{Dir: dir}).Unreadable(n.Name)
	for _, key := range keys {
		j.keep(key)
	}
	return err
}

// keepDamaged keeps the attachment of a damaged record. If its key cannot be read, the list of attachments in use is incomplete,
// unless the record does not matter.
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

// inUse reports whether an attachment is in use though no list names it.
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

// collect runs GC.
func (c *Client) collect(ctx context.Context, n *config.Network, valid []cni.ValidAttachment) error {
	n, err := c.negotiate(ctx, n)
	if err != nil || !n.Version.Has(cni.GC) {
		return err
	}
	env := c.env(cni.GC, cni.Attachment{}, records.Parameters{})
	return c.runAll(ctx, n.List, forward(n.List), env, cni.RequestData{Valid: valid})
}
