package network

import (
	"context"
	"errors"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// teardown detaches all recorded attachments of a container, and members that are not recorded.
// configured returns a network's current configuration, or nil. teardown uses it to complete
// records and to detach attachments with unreadable records.
func (c *Client) teardown(
	ctx context.Context, container string, unrecorded []membership,
	configured func(network string) *config.Network,
) (err error) {
	if err := cni.ValidateContainerID(container); err != nil {
		return err
	}
	ctx, end := c.observe(ctx, Removal, "", cni.Attachment{Container: container})
	defer func() { end(nil, err) }()
	for _, m := range unrecorded {
		if err := (Fallback{m.network, m.Parameters}).check(m.key()); err != nil {
			return err
		}
	}
	c, unlock, err := c.lockSandbox(ctx, container, func() []string {
		names := networksOf(unrecorded)
		found, _ := c.foundOf(container) // recordsOf reports the error
		for _, f := range found {
			names = append(names, f.Attachment().Network)
		}
		return names
	})
	if err != nil {
		return err
	}
	defer unlock()
	recorded, err := c.recordsOf(ctx, container, configured)
	errs := []error{err}
	for _, m := range unrecorded {
		if slices.ContainsFunc(recorded,
			func(r *records.Record) bool { return r.Attachment == m.key() }) {
			continue
		}
		if err := m.refuseOwnNetns(); err != nil {
			errs = append(errs, of(m.key(), err))
			continue
		}
		recorded = append(recorded, c.unrecorded(ctx, m.network, m.key(), m.Parameters))
	}
	if len(recorded) > 1 {
		// DEL must run anyway
		if err := c.store().PutDue(records.NewDue(container, records.Deleting,
			recorded)); err != nil {
			c.warn(ctx, cni.Attachment{Container: container}, "cannot record the start of DEL", err)
		}
	}
	errs = append(errs, c.removeAll(ctx, Operation, recorded), c.store().RemoveDue(container))
	return errors.Join(errs...)
}

// recordsOf returns the records of a container. The error is about attachments that cannot be
// detached.
func (c *Client) recordsOf(
	ctx context.Context, container string, configured func(network string) *config.Network,
) ([]*records.Record, error) {
	found, err := c.foundOf(container)
	errs := []error{err}
	var recorded []*records.Record
	for _, f := range found {
		r, n := f.Record, configured(f.Attachment().Network)
		switch {
		case r != nil:
			err = r.Complete(n)
		case n == nil:
			err = f.Damage()
		default:
			c.warn(ctx, f.Key, "record is unreadable; running DEL with the current configuration",
				f.Err)
			r, err = c.unrecorded(ctx, n, f.Key, Parameters{}), nil
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		recorded = append(recorded, r)
	}
	return recorded, errors.Join(errs...)
}

// foundOf returns the records of a container, readable or not. It leaves out damaged records that
// do not name their container, because one of them would make Remove fail for every container;
// [Client.Recover] reports them.
func (c *Client) foundOf(container string) ([]records.Found, error) {
	found, err := c.store().ScanContainer(container)
	found, err = c.withCached(found, err, "")
	return slices.DeleteFunc(found,
		func(f records.Found) bool { return f.Attachment().Container != container }), err
}
