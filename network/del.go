package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
)

// Del detaches: it runs DEL for the plugins in reverse order, past those that fail, and joins their errors. The
// record is kept until all have succeeded, so that Del can be repeated.
//
// The record decides about configuration, parameters and previous result. f is used only where there is
// none or it cannot be read; with neither, the error is [ErrNoRecord] or what is wrong with the record,
// and no plugin is called. A recorded namespace that is the host's or from an earlier boot is gone, and
// something else has its path: plugins then get an empty CNI_NETNS.
func (c *Client) Del(ctx context.Context, a cni.Attachment, f Fallback) error {
	if err := a.Validate(); err != nil {
		return err
	}
	if err := c.del(ctx, a, f); err != nil {
		return fmt.Errorf("%v: %w", a, err)
	}
	return nil
}

func (c *Client) del(ctx context.Context, a cni.Attachment, f Fallback) error {
	if f.Network != nil {
		if err := f.check(a); err != nil {
			return err
		}
	}
	unlock, err := c.lock(ctx, a)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.store().get(a)
	if err != nil {
		if f.Network == nil {
			return err
		}
		if !errors.Is(err, ErrNoRecord) {
			c.log().Warn("record cannot be read, deleting as asked", "attachment", a.String(), "error", err)
		}
		if err := f.refuseOwnNetns(); err != nil {
			return err
		}
		if f.Network, err = c.negotiate(ctx, f.Network); err != nil {
			c.log().Warn("deleting in the newest version that is configured", "attachment", a.String(), "error", err)
		}
		r = newRecord(f.Network, a, f.Parameters)
	}
	return c.remove(ctx, r)
}

func (f Fallback) check(a cni.Attachment) error {
	if err := checkNetwork(f.Network); err != nil {
		return err
	}
	if f.Network.Name != a.Network {
		return cni.Errorf(cni.CodeInvalidConfig, "network %s given", f.Network.Name)
	}
	return f.Parameters.validate()
}

// remove runs DEL for what r says and forgets it. Its container has to be locked.
func (c *Client) remove(ctx context.Context, r *Record) error {
	p := r.Parameters
	if own, _ := isOwnNetns(p.Netns); own && !p.HostNetns || r.earlierBoot() {
		p.Netns = ""
	}
	data := cni.RequestData{Capabilities: p.Capabilities, PrevResult: r.Result}
	if err := c.runAll(ctx, r.List, backward(r.List), c.env(cni.Del, r.Attachment, p), data); err != nil {
		return err
	}
	return c.store().remove(r.Attachment)
}

// Recover deletes what was left by an ADD that was cut short by the end of its process or could not be
// taken back, and what an earlier boot attached. A runtime calls it when it starts. It waits for
// operations that are under way, goes on past errors, and returns them joined with those of records that
// cannot be read.
func (c *Client) Recover(ctx context.Context) error {
	records, err := c.List()
	errs := []error{err}
	for _, r := range records {
		if !r.leftOver() {
			continue
		}
		if err := c.recover(ctx, r.Attachment); err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", r.Attachment, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Client) recover(ctx context.Context, a cni.Attachment) error {
	unlock, err := c.lock(ctx, a)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.store().get(a)
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err != nil || !r.leftOver() {
		return err
	}
	return c.remove(ctx, r)
}
