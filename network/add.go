package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Add attaches a container to a network and returns the result of the last plugin.
//
// Before the first plugin starts, Add checks the key and the parameters, that Netns is not the
// host's namespace, that [Client.Policy] allows the network and the binaries, that all plugins
// exist and agree on a version, and that the attachment does not exist. It first cleans up an
// interrupted ADD or DEL with the same key, an attachment of an earlier boot, and an unreadable
// record.
//
// If a plugin fails, or the record cannot be stored, DEL runs for all plugins in reverse order,
// even if ctx has ended. If DEL fails too, Add returns both errors with the code of the first; the
// record stays in state [Adding], and DEL is due. No DEL runs if the first plugin returns
// [cni.CodeUnknownContainer].
//
// If the attachment already exists, Add returns [ErrExists] with [cni.CodeInvalidEnvironment].
func (c *Client) Add(ctx context.Context, n *config.Network, r Request) (*cni.Result, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	a := r.Attachment(n.Name)
	c, ctx, end := c.journaled(ctx, Operation, cni.Add, a)
	result, err := c.add(ctx, n, a, r)
	err = of(a, err)
	end(result, err)
	return result, err
}

func (c *Client) add(
	ctx context.Context, n *config.Network, a cni.Attachment, r Request,
) (*cni.Result, error) {
	n, err := c.prepare(ctx, n, a, r.Parameters)
	if err != nil {
		return nil, err
	}
	c.register(ctx)
	c, unlock, err := c.lock(ctx, a)
	if err != nil {
		return nil, err
	}
	defer unlock()
	record := c.newRecord(n, a, r.Parameters)
	old, err := c.conflicting(ctx, record, n, r.Replace)
	if err != nil {
		return nil, err
	}
	if err := c.clear(ctx, old); err != nil {
		return nil, err
	}
	return c.attach(ctx, record)
}

// prepare runs the checks that need no lock and returns the network in the version to use.
func (c *Client) prepare(
	ctx context.Context, n *config.Network, a cni.Attachment, p Parameters,
) (*config.Network, error) {
	if err := c.env(cni.Add, a, records.Parameters(p)).Validate(); err != nil {
		return nil, err
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	if err := p.refuseOwnNetns(); err != nil {
		return nil, err
	}
	if err := c.Policy.Check(n); err != nil {
		return nil, err
	}
	for _, p := range n.Plugins {
		if _, err := c.find(p.Type); err != nil {
			return nil, err
		}
		if err := c.findIPAM(p); err != nil {
			return nil, err
		}
	}
	return c.negotiate(ctx, n)
}

// attach runs ADD for a new record. If it fails, it leaves nothing behind.
func (c *Client) attach(ctx context.Context, record *records.Record) (*cni.Result, error) {
	c.entry.about(record)
	if err := c.store().Begin(record); err != nil {
		return nil, err
	}
	result, failed, err := c.chain(ctx, record)
	if err != nil {
		if failed == 0 && cni.CodeOf(err) == cni.CodeUnknownContainer {
			return nil, errors.Join(err, c.store().Remove(record.Attachment))
		}
		return nil, c.rollBack(ctx, record, failed, err)
	}
	done := *record
	done.State, done.Result, done.Done = records.Attached, result, time.Now().UTC()
	if err := c.store().Put(&done); err != nil {
		return nil, c.rollBack(ctx, record, len(record.List.Plugins), err)
	}
	c.entry.ended()
	return result, nil
}

func (c *Client) newRecord(n *config.Network, a cni.Attachment, p Parameters) *records.Record {
	return &records.Record{
		Attachment: a, State: records.Adding, List: n.List, Parameters: records.Parameters(p),
		Created: time.Now().UTC(), BootID: records.BootID(), Runtime: c.Runtime,
	}
}

// conflicting returns the record under the key of r that must be deleted first, or nil. It returns
// an error if the attachment is in use, unless replace is set.
func (c *Client) conflicting(
	ctx context.Context, r *records.Record, n *config.Network, replace bool,
) (*records.Record, error) {
	old, err := c.lookUp(r.Attachment, n)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil, nil
	case err != nil:
		c.warn(ctx, r.Attachment, "record is unreadable; running DEL for its attachment", err)
		return r, nil
	case old.State == records.Attached && !old.EarlierBoot() && !replace:
		return nil, cni.Errorf(cni.CodeInvalidEnvironment,
			"container %s is %w to network %s as %s (since %s)",
			old.Attachment.Container, ErrExists, old.Attachment.Network, old.Attachment.IfName,
			old.Created.Format(time.RFC3339)).
			WithDetails("run DEL before another ADD")
	}
	return old, nil
}

// clear runs DEL for a record that is in the way of an ADD. old may be nil.
func (c *Client) clear(ctx context.Context, old *records.Record) error {
	if old == nil {
		return nil
	}
	if err := c.removeAs(ctx, Cleanup, old); err != nil {
		return fmt.Errorf("clean up before ADD: %w", err)
	}
	return nil
}

// chain runs ADD. If a plugin fails, chain also returns its index.
func (c *Client) chain(ctx context.Context, r *records.Record) (*cni.Result, int, error) {
	env := c.env(cni.Add, r.Attachment, r.Parameters)
	var result *cni.Result
	for i := range r.List.Plugins {
		var err error
		if result, err = c.run(ctx, r.List, i, env,
			cni.RequestData{Capabilities: r.Capabilities, PrevResult: result}); err != nil {
			return nil, i, err
		}
	}
	return result, 0, nil
}

// rollBack detaches an attachment after its ADD failed at a plugin because of cause.
//
// If another network of the container uses the interface name, this conflict may be the reason of
// the failure, and the plugin's DEL would remove the other network's interface. rollBack then runs
// DEL only for the plugins before it.
//
// If ctx has ended, the caller's time is over, and the plugin that was stopped may hang again. It
// then comes last, and each plugin has its share of a few seconds.
func (c *Client) rollBack(ctx context.Context, r *records.Record, failed int, cause error) error {
	late := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	called := len(r.List.Plugins)
	if holder := c.sharesInterface(ctx, r); holder != nil && failed < called {
		called = failed
		cause = cni.Errorf(cni.CodeOf(cause), "%w: %s belongs to network %s: %w",
			ErrInterfaceInUse, r.Attachment.IfName, holder.Attachment.Network, cause).
			WithDetails("each network of a container needs its own interface name")
	}
	order := backward(r.List)[len(r.List.Plugins)-called:]
	if late {
		c = c.hurried(called)
		if i := slices.Index(order, failed); i >= 0 {
			order = append(slices.Delete(order, i, i+1), failed)
		}
	}
	if err := c.removePart(ctx, Rollback, r, order); err != nil {
		return fmt.Errorf("%w; rollback failed: %w", cause, err)
	}
	return cause
}

// lateRollback limits a rollback after the context of the caller has ended.
const lateRollback = 5 * time.Second

// hurried returns a client that gives each of a number of plugin calls its share of [lateRollback].
func (c *Client) hurried(calls int) *Client {
	fast, share := *c, lateRollback/time.Duration(max(calls, 1))
	if c.Timeout <= 0 || share < c.Timeout {
		fast.Timeout = share
	}
	return &fast
}

// sharesInterface returns the record of another network that has attached the container in the same
// namespace with the same interface name, or nil.
func (c *Client) sharesInterface(ctx context.Context, r *records.Record) *records.Record {
	found, err := c.store().ScanContainer(r.Attachment.Container)
	if err != nil {
		c.warn(ctx, r.Attachment, "cannot look up the container's other networks", err)
	}
	for _, f := range found {
		if other := f.Record; f.Err == nil && other.State == records.Attached &&
			!other.EarlierBoot() &&
			other.Attachment.Network != r.Attachment.Network &&
			other.Attachment.IfName == r.Attachment.IfName && other.Netns == r.Netns {
			return other
		}
	}
	return nil
}
