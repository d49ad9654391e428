package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Add attaches a container to a network and returns the result of the last plugin.
//
// Everything that can be known before is checked before the first plugin starts: the key, the
// parameters, that Netns is not the host's, that [Client.Policy] allows the network and the executables, that
// those of all plugins are there and agree on a version, that the attachment is not recorded. What is left of an ADD
// or a DEL that was cut short, of an attachment that an earlier boot saw, and behind a record that cannot be
// read, is deleted first.
//
// Where a plugin fails, or the record cannot be stored, DEL runs for all plugins in reverse order, even
// if ctx has ended, and both errors are returned, the first deciding the code. Where that fails too the
// record stays in state [Adding], and DEL is due. No DEL runs if the first plugin says
// [cni.CodeUnknownContainer].
//
// An attachment that is recorded already is [ErrExists] with [cni.CodeInvalidEnvironment].
func (c *Client) Add(ctx context.Context, n *config.Network, r Request) (*cni.Result, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	a := r.Attachment(n.Name)
	ctx, end := c.observe(ctx, Operation, cni.Add, a)
	result, err := c.add(ctx, n, a, r)
	err = of(a, err)
	end(result, err)
	return result, err
}

func (c *Client) add(ctx context.Context, n *config.Network, a cni.Attachment, r Request) (*cni.Result, error) {
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

// prepare checks what can be known before anything is done, and returns the network as it is to be run.
func (c *Client) prepare(ctx context.Context, n *config.Network, a cni.Attachment, p Parameters) (*config.Network, error) {
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

// attach makes what a record speaks of, or nothing.
func (c *Client) attach(ctx context.Context, record *records.Record) (*cni.Result, error) {
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
	return result, nil
}

func (c *Client) newRecord(n *config.Network, a cni.Attachment, p Parameters) *records.Record {
	return &records.Record{
		Attachment: a, State: records.Adding, List: n.List, Parameters: records.Parameters(p),
		Created: time.Now().UTC(), BootID: records.BootID(), Runtime: c.Runtime,
	}
}

// conflicting returns what is left under the key of r and has to be deleted first, nil if nothing is. An attachment in use
// is refused, unless it may be replaced.
func (c *Client) conflicting(ctx context.Context, r *records.Record, n *config.Network, replace bool) (*records.Record, error) {
	old, err := c.lookUp(r.Attachment, n)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil, nil
	case err != nil:
		c.warn(ctx, r.Attachment, "record cannot be read, deleting what it may stand for", err)
		return r, nil
	case old.State == records.Attached && !old.EarlierBoot() && !replace:
		return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_CONTAINERID and CNI_IFNAME: %w since %s", ErrExists, old.Created.Format(time.RFC3339)).
			WithDetails("DEL has to come before another ADD")
	}
	return old, nil
}

// clear deletes what is in the way; nil is nothing.
func (c *Client) clear(ctx context.Context, old *records.Record) error {
	if old == nil {
		return nil
	}
	if err := c.removeAs(ctx, Cleanup, old); err != nil {
		return fmt.Errorf("deleting what was left: %w", err)
	}
	return nil
}

// chain runs ADD. On an error it also returns the index of the plugin that failed.
func (c *Client) chain(ctx context.Context, r *records.Record) (*cni.Result, int, error) {
	env := c.env(cni.Add, r.Attachment, r.Parameters)
	var result *cni.Result
	for i := range r.List.Plugins {
		var err error
		if result, err = c.run(ctx, r.List, i, env, cni.RequestData{Capabilities: r.Capabilities, PrevResult: result}); err != nil {
			return nil, i, err
		}
	}
	return result, 0, nil
}

// rollBack deletes an attachment after its ADD failed at a plugin because of cause.
//
// If another network of the container uses the interface name, the plugin may have failed because of it, and its DEL would
// remove that interface. Then DEL runs only for the plugins before it.
func (c *Client) rollBack(ctx context.Context, r *records.Record, failed int, cause error) error {
	ctx = context.WithoutCancel(ctx)
	called := len(r.List.Plugins)
	if holder := c.sharesInterface(ctx, r); holder != nil && failed < called {
		called = failed
		cause = cni.Errorf(cni.CodeOf(cause), "%w: network %s has attached %s: %w",
			ErrInterfaceInUse, holder.Attachment.Network, r.Attachment.IfName, cause).
			WithDetails("each network of a container needs an interface name of its own")
	}
	if err := c.removeFirst(ctx, Rollback, r, called); err != nil {
		return fmt.Errorf("%w; DEL after it: %w", cause, err)
	}
	return cause
}

// sharesInterface returns the record of another network that has attached the container in the same namespace under the same
// interface name, nil if there is none.
func (c *Client) sharesInterface(ctx context.Context, r *records.Record) *records.Record {
	found, err := c.store().ScanContainer(r.Attachment.Container)
	if err != nil {
		c.warn(ctx, r.Attachment, "other networks of the container cannot be looked up", err)
	}
	for _, f := range found {
		if other := f.Record; f.Err == nil && other.State == records.Attached && !other.EarlierBoot() &&
			other.Attachment.Network != r.Attachment.Network && other.Attachment.IfName == r.Attachment.IfName && other.Netns == r.Netns {
			return other
		}
	}
	return nil
}
