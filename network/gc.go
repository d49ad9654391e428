package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cni"
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

	// AllRuntimes judges also what other runtimes have attached. Otherwise that is in use, whatever its state.
	AllRuntimes bool
}

// GC takes away what belongs to no attachment of a network that is in use.
//
// First the recorded attachments that are not in use are deleted as [Client.Del] does. Then, from 1.1.0 on, the plugins
// get GC in their order, with the list of all that are. GC goes on past errors and joins them. A record that cannot be
// read is never deleted, and such an error; if its key still can be, its attachment is in use. With Recorded, plugins
// get no GC where not even the key can be read, as the list would not be complete. A network with disableGC is left
// alone, which is success.
func (c *Client) GC(ctx context.Context, n *Network, k Keep) (err error) {
	k, err = k.check(n)
	if err != nil || n.DisableGC {
		return err
	}
	ctx, end := c.observe(ctx, Operation, cni.GC, cni.Attachment{Network: n.Name})
	defer func() { end(nil, err) }()
	ctx, unlock, err := c.lockNetwork(ctx, n.Name)
	if err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	defer unlock()
	found, err := c.scan(n.Name)
	errs := []error{err}
	if err == nil {
		errs = append(errs, c.store().sweep(cni.NetworkOwner(n.Name)))
	}
	j := c.judge(n, k, found)
	errs = append(errs, j.err)
	for _, r := range j.stale {
		if err := c.deleteStale(ctx, n, r); err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", r.Attachment, err))
		}
	}
	if !k.Recorded || err == nil && j.complete {
		errs = append(errs, c.collect(ctx, n, j.valid))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	return nil
}

// Stale returns the recorded attachments that [Client.GC] would delete now. The error is about what cannot be read; the
// others are returned in any case.
func (c *Client) Stale(n *Network, k Keep) ([]Record, error) {
	k, err := k.check(n)
	if err != nil || n.DisableGC {
		return nil, err
	}
	found, err := c.scan(n.Name)
	j := c.judge(n, k, found)
	var records []Record
	for _, r := range j.stale {
		records = append(records, *r)
	}
	if err := errors.Join(err, j.err); err != nil {
		return records, fmt.Errorf("network %s: %w", n.Name, err)
	}
	return records, nil
}

// check refuses what says nothing, and returns k with the moment that counts.
func (k Keep) check(n *Network) (Keep, error) {
	if err := checkNetwork(n); err != nil {
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
	stale    []*Record
	complete bool  // everything recorded is in one of the two
	err      error // about what cannot be read
}

func (c *Client) judge(n *Network, k Keep, found []stored) judgement {
	j := judgement{known: map[cni.Owner]bool{}, complete: true}
	for _, v := range k.Attachments {
		j.keep(cni.Attachment{Network: n.Name, Container: v.ContainerID, IfName: v.IfName})
	}
	var errs []error
	for _, f := range found {
		switch {
		case j.known[f.owner]:
		case f.err != nil:
			errs = append(errs, f.damage())
			if f.key == (cni.Attachment{}) {
				j.complete = false
			} else {
				j.keep(f.key)
			}
		case c.inUse(f.record, k):
			j.keep(f.record.Attachment)
		default:
			j.stale = append(j.stale, f.record)
		}
	}
	j.err = errors.Join(errs...)
	return j
}

func (j *judgement) keep(a cni.Attachment) {
	if o := a.Owner(); !j.known[o] {
		j.known[o] = true
		j.valid = append(j.valid, cni.ValidAttachment{ContainerID: a.Container, IfName: a.IfName})
	}
}

// inUse reports whether an attachment is in use though no list names it.
func (c *Client) inUse(r *Record, k Keep) bool {
	switch {
	case r.Runtime != c.Runtime && !k.AllRuntimes:
		return true
	case r.leftOver():
		return false
	default:
		return k.Recorded || r.Done.After(k.Since)
	}
}

func (c *Client) deleteStale(ctx context.Context, n *Network, r *Record) error {
	if err := r.complete(n); err != nil {
		return err
	}
	ctx, unlock, err := c.lockContainer(ctx, r.Attachment.Container)
	if err != nil {
		return err
	}
	defer unlock()
	return c.removeAs(ctx, Cleanup, r)
}

// collect runs GC.
func (c *Client) collect(ctx context.Context, n *Network, valid []cni.ValidAttachment) error {
	n, err := c.negotiate(ctx, n)
	if err != nil || !n.Version.Has(cni.GC) {
		return err
	}
	env := c.env(cni.GC, cni.Attachment{}, Parameters{})
	return c.runAll(ctx, n.List, forward(n.List), env, cni.RequestData{Valid: valid})
}
