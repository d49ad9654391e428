package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Del detaches: it runs DEL for the plugins in reverse order, past those that fail, and joins their errors. The
// record is kept until all have succeeded, so that Del can be repeated.
//
// The record decides about configuration, parameters and previous result. f is used only where there is
// none or it cannot be read, and for the plugins of drop-in files where the reference library has attached;
// with neither, the error is [ErrNoRecord] or what is wrong with the record,
// and no plugin is called. A recorded namespace that is the host's or from an earlier boot is gone, and
// something else has its path: plugins then get an empty CNI_NETNS.
func (c *Client) Del(ctx context.Context, a cni.Attachment, f Fallback) error {
	if err := a.Validate(); err != nil {
		return err
	}
	ctx, end := c.observe(ctx, Operation, cni.Del, a)
	err := of(a, c.del(ctx, a, f))
	end(nil, err)
	return err
}

func (c *Client) del(ctx context.Context, a cni.Attachment, f Fallback) error {
	if f.Network != nil {
		if err := f.check(a); err != nil {
			return err
		}
	}
	c, unlock, err := c.lock(ctx, a)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.lookUp(a, f.Network)
	if err != nil {
		if f.Network == nil {
			return err
		}
		if err := f.refuseOwnNetns(); err != nil {
			return err
		}
		r = c.unrecorded(ctx, f.Network, a, f.Parameters)
		if bare := (records.BareResult{}); errors.As(err, &bare) {
			r.Result = bare.Result
		} else if !errors.Is(err, ErrNoRecord) {
			c.warn(ctx, a, "record cannot be read, deleting as asked", err)
		}
	}
	return c.remove(ctx, r, len(r.List.Plugins))
}

func (f Fallback) check(a cni.Attachment) error {
	if err := f.Network.Validate(); err != nil {
		return err
	}
	if f.Network.Name != a.Network {
		return cni.Errorf(cni.CodeInvalidConfig, "network %s given", f.Network.Name)
	}
	return f.Parameters.validate()
}

// unrecorded returns what DEL is run with where there is no record.
func (c *Client) unrecorded(ctx context.Context, n *config.Network, a cni.Attachment, p Parameters) *records.Record {
	n, err := c.negotiate(ctx, n)
	if err != nil {
		c.warn(ctx, a, "deleting in the newest version that is configured", err)
	}
	return c.newRecord(n, a, p)
}

// removeAs removes as a part of another operation. An interrupted ADD cannot have created its interface if another network of
// the container uses the interface name: then removeAs calls no plugin, because DEL would remove the other network's interface.
func (c *Client) removeAs(ctx context.Context, k EventKind, r *records.Record) error {
	called := len(r.List.Plugins)
	if r.State == records.Adding {
		if holder := c.sharesInterface(ctx, r); holder != nil {
			c.warn(ctx, r.Attachment, "interrupted ADD is forgotten without DEL",
				fmt.Errorf("%w by network %s", ErrInterfaceInUse, holder.Attachment.Network))
			called = 0
		}
	}
	return c.removeFirst(ctx, k, r, called)
}

// removeFirst removes as a part of something else, and calls only so many plugins from the first one on.
func (c *Client) removeFirst(ctx context.Context, k EventKind, r *records.Record, called int) error {
	ctx, end := c.observe(ctx, k, cni.Del, r.Attachment)
	err := c.remove(ctx, r, called)
	end(nil, err)
	return err
}

// remove runs DEL for what r says, for so many plugins from the first one on, and forgets it. Its container has to be locked.
func (c *Client) remove(ctx context.Context, r *records.Record, called int) error {
	if (r.State == records.Attached || r.Due) && r.Source == "" {
		if err := c.store().NoteDel(r.Attachment); err != nil { // DEL is worth more than the note of it
			c.warn(ctx, r.Attachment, "begin of DEL cannot be noted", err)
		}
	}
	if r.ResultErr != nil {
		c.warn(ctx, r.Attachment, "recorded result cannot be read, deleting without", r.ResultErr)
	}
	p := r.Parameters
	if own, _ := isOwnNetns(p.Netns); own && !p.HostNetns || r.EarlierBoot() {
		p.Netns = ""
	}
	data := cni.RequestData{Capabilities: p.Capabilities, PrevResult: r.Result}
	if err := c.runAll(ctx, r.List, backward(r.List)[len(r.List.Plugins)-called:], c.env(cni.Del, r.Attachment, p), data); err != nil {
		return err
	}
	return c.removeRecord(r.Attachment)
}
