package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// membership is one requested attachment of a container.
type membership struct {
	network *config.Network
	Request
}

// key returns the key of the attachment.
func (m membership) key() cni.Attachment { return m.Attachment(m.network.Name) }

// setup attaches a container to several networks or to none. It runs the checks of [Client.Add] for
// all networks before the first plugin starts. parallel runs their ADDs at the same time.
func (c *Client) setup(
	ctx context.Context, container string, members []membership, parallel bool,
) (results []AttachmentResult, err error) {
	if err := cni.ValidateContainerID(container); err != nil {
		return nil, err
	}
	ctx, end := c.observe(ctx, Setup, "", cni.Attachment{Container: container})
	defer func() { end(nil, err) }()
	recorded, err := c.plan(ctx, members)
	if err != nil {
		return nil, err
	}
	c.register(ctx)
	c, unlock, err := c.lockSandbox(ctx, container, func() []string {
		names := networksOf(members)
		for _, r := range c.interrupted(ctx, container) {
			names = append(names, r.Attachment.Network)
		}
		return names
	})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.removeOld(ctx, container, members, recorded); err != nil {
		return nil, err
	}
	if len(recorded) > 1 { // a single ADD is atomic without the file
		if err := c.store().PutDue(records.NewDue(container, records.Adding,
			recorded)); err != nil {
			return nil, err
		}
	}
	attached, err := c.attachAll(ctx, recorded, parallel)
	if err == nil {
		err = c.store().RemoveDue(container)
	}
	if err != nil {
		return nil, c.rollBackAll(ctx, container, attached, err)
	}
	for _, r := range recorded {
		results = append(results, AttachmentResult{r.Attachment, attached[r]})
	}
	return results, nil
}

// plan checks the request and returns a record for each member, in the same order.
func (c *Client) plan(ctx context.Context, members []membership) ([]*records.Record, error) {
	created := time.Now().UTC()
	var recorded []*records.Record
	for i, m := range members {
		if err := m.network.Validate(); err != nil {
			return nil, err
		}
		for _, other := range members[:i] {
			if other.IfName == m.IfName {
				return nil, cni.Errorf(cni.CodeInvalidEnvironment,
					"%v: interface %s is already used by network %s",
					m.key(), m.IfName, other.network.Name)
			}
		}
		n, err := c.prepare(ctx, m.network, m.key(), m.Parameters)
		if err != nil {
			return nil, of(m.key(), err)
		}
		r := c.newRecord(n, m.key(), m.Parameters)
		r.Created = created.Add(time.Duration(i)) // keeps the order, and identifies this ADD
		recorded = append(recorded, r)
	}
	return recorded, nil
}

// interrupted returns the records of a container for which DEL is due.
func (c *Client) interrupted(ctx context.Context, container string) []*records.Record {
	d, err := c.store().DueOf(container)
	if err != nil {
		c.warn(ctx, cni.Attachment{Container: container},
			"cannot read the list of unfinished operations", err)
	}
	if d == nil {
		return nil
	}
	var recorded []*records.Record
	for _, a := range d.Attachments {
		r, err := c.store().Get(cni.Attachment{Network: a.Network, Container: container,
			IfName: a.IfName})
		if err == nil && d.Has(r) {
			recorded = append(recorded, r)
		}
	}
	return recorded
}

// networksOf returns the names of the networks of members.
func networksOf(members []membership) []string {
	var names []string
	for _, m := range members {
		names = append(names, m.network.Name)
	}
	return names
}

// removeOld detaches the attachments of an interrupted Setup or Remove of the container, and those
// with the keys of members. If one of them is in use, removeOld returns an error and detaches none.
func (c *Client) removeOld(
	ctx context.Context, container string, members []membership, recorded []*records.Record,
) error {
	var all []*records.Record
	for i, r := range recorded {
		old, err := c.conflicting(ctx, r, members[i].network, members[i].Replace)
		if err != nil {
			return of(r.Attachment, err)
		}
		if old != nil {
			all = append(all, old)
		}
	}
	for _, r := range c.interrupted(ctx, container) {
		if !slices.ContainsFunc(all,
			func(other *records.Record) bool { return other.Attachment == r.Attachment }) {
			all = append(all, r)
		}
	}
	for _, r := range slices.Backward(all) {
		if err := c.clear(ctx, r); err != nil {
			return of(r.Attachment, err)
		}
	}
	return c.store().RemoveDue(container)
}

// attachAll runs ADDs until one fails, and returns the successful ones in any case. If parallel is
// set, it starts all ADDs, and the failure of one ends the context of the others.
func (c *Client) attachAll(
	ctx context.Context, recorded []*records.Record, parallel bool,
) (map[*records.Record]*cni.Result, error) {
	attached := map[*records.Record]*cni.Result{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var failed []error
	var running sync.WaitGroup
	for _, r := range recorded {
		attach := func() {
			result, err := c.attachObserved(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				attached[r] = result
				return
			}
			failed = append(failed, of(r.Attachment, err))
			cancel()
		}
		if parallel {
			running.Go(attach)
		} else if attach(); failed != nil {
			break
		}
	}
	running.Wait()
	return attached, errors.Join(failed...)
}

func (c *Client) attachObserved(ctx context.Context, r *records.Record) (*cni.Result, error) {
	c, ctx, end := c.journaled(ctx, Operation, cni.Add, r.Attachment)
	result, err := c.attach(ctx, r)
	end(result, err)
	return result, err
}

// rollBackAll detaches the attachments of a Setup that failed because of cause, in reverse order,
// even if ctx has ended; they then have a few seconds, as in [Client.rollBack].
func (c *Client) rollBackAll(
	ctx context.Context, container string, attached map[*records.Record]*cni.Result, cause error,
) error {
	if ctx.Err() != nil {
		calls := 0
		for r := range attached {
			calls += len(r.List.Plugins)
		}
		c = c.hurried(calls)
	}
	ctx = context.WithoutCancel(ctx)
	var recorded []*records.Record
	for r, result := range attached {
		done := *r
		done.State, done.Result = records.Attached, result
		recorded = append(recorded, &done)
	}
	if err := errors.Join(c.removeAll(ctx, Rollback, recorded),
		c.store().RemoveDue(container)); err != nil {
		return fmt.Errorf("%w; rollback failed: %w", cause, err)
	}
	return cause
}

// removeAll runs DEL in reverse order, continues past errors and joins them.
func (c *Client) removeAll(ctx context.Context, k EventKind, recorded []*records.Record) error {
	slices.SortStableFunc(recorded,
		func(a, b *records.Record) int { return b.Created.Compare(a.Created) })
	var errs []error
	for _, r := range recorded {
		errs = append(errs, of(r.Attachment, c.removeAs(ctx, k, r)))
	}
	return errors.Join(errs...)
}
