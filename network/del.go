package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Del detaches a container from a network: it runs DEL for the plugins in reverse order, continues
// past failing plugins and joins their errors. The record stays until every plugin has succeeded,
// so Del can be repeated.
//
// Del uses the recorded configuration, parameters and result. It uses f if the record is missing or
// unreadable, and for the plugins of drop-in files if libcni attached the container. If f has no
// network either, Del calls no plugin and returns [ErrNoRecord] or the error about the record. If
// the recorded namespace is the host's own or from an earlier boot, the container's namespace no
// longer exists and its path belongs to another one; plugins then get an empty CNI_NETNS.
func (c *Client) Del(ctx context.Context, a cni.Attachment, f Fallback) error {
	if err := a.Validate(); err != nil {
		return err
	}
	c, ctx, end := c.journaled(ctx, Operation, cni.Del, a)
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
			c.warn(ctx, a, "record is unreadable; running DEL with the given parameters", err)
		}
	}
	return c.remove(ctx, r, backward(r.List))
}

func (f Fallback) check(a cni.Attachment) error {
	if err := f.Network.Validate(); err != nil {
		return err
	}
	if f.Network.Name != a.Network {
		return cni.Errorf(cni.CodeInvalidConfig, "the configuration is for network %s",
			f.Network.Name)
	}
	return f.Parameters.validate()
}

// unrecorded returns the input of DEL for an attachment without a record.
func (c *Client) unrecorded(
	ctx context.Context, n *config.Network, a cni.Attachment, p Parameters,
) *records.Record {
	n, err := c.negotiate(ctx, n)
	if err != nil {
		c.warn(ctx, a, "cannot select a CNI version; running DEL in the newest configured one", err)
	}
	return c.newRecord(n, a, p)
}

// removeAs detaches as a part of another operation. If another network of the container uses the
// interface name, an interrupted ADD cannot have created its interface. removeAs then calls no
// plugin, because DEL would remove the other network's interface.
func (c *Client) removeAs(ctx context.Context, k EventKind, r *records.Record) error {
	order := backward(r.List)
	if r.State == records.Adding {
		if holder := c.sharesInterface(ctx, r); holder != nil {
			c.warn(ctx, r.Attachment, "dropping the record of an interrupted ADD without DEL",
				fmt.Errorf("%w by network %s", ErrInterfaceInUse, holder.Attachment.Network))
			order = nil
		}
	}
	return c.removePart(ctx, k, r, order)
}

// removePart detaches as a part of another operation, and calls only the plugins with these
// indexes, in this order.
func (c *Client) removePart(
	ctx context.Context, k EventKind, r *records.Record, order []int,
) error {
	c, ctx, end := c.journaled(ctx, k, cni.Del, r.Attachment)
	err := c.remove(ctx, r, order)
	end(nil, err)
	return err
}

// remove runs DEL for a record, for the plugins with these indexes, in this order, and removes the
// record. The caller must hold the lock of the container.
func (c *Client) remove(ctx context.Context, r *records.Record, order []int) error {
	c.entry.about(r)
	if (r.State == records.Attached || r.Due) && r.Source == "" {
		if err := c.store().NoteDel(r.Attachment); err != nil { // DEL must run anyway
			c.warn(ctx, r.Attachment, "cannot record the start of DEL", err)
		}
	}
	if r.ResultErr != nil {
		c.warn(ctx, r.Attachment, "recorded result is unreadable; running DEL without it",
			r.ResultErr)
	}
	p := r.Parameters
	if own, _ := isOwnNetns(p.Netns); own && !p.HostNetns || r.EarlierBoot() {
		p.Netns = ""
	}
	data := cni.RequestData{Capabilities: p.Capabilities, PrevResult: r.Result}
	if err := c.runAll(ctx, r.List, order, c.env(cni.Del, r.Attachment, p), data); err != nil {
		return err
	}
	err := c.removeRecord(r.Attachment)
	c.entry.ended()
	return err
}
