package network

import (
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Check runs CHECK with everything as recorded, up to the first plugin that finds something wrong.
//
// A network below 0.4.0 has no CHECK: [cni.CodeIncompatibleVersion]. One with disableCheck is never
// asked, which is success. What is not attached is [ErrNoRecord]; a record that cannot be read is an
// error. No plugin is called in these cases. n may be nil: it is only asked for its version where there
// is no record, for disableCheck, and for the plugins of drop-in files where the reference library has
// attached.
func (c *Client) Check(ctx context.Context, a cni.Attachment, n *config.Network) error {
	if err := a.Validate(); err != nil {
		return err
	}
	ctx, end := c.observe(ctx, Operation, cni.Check, a)
	err := of(a, c.check(ctx, a, n))
	end(nil, err)
	return err
}

func (c *Client) check(ctx context.Context, a cni.Attachment, n *config.Network) error {
	c, unlock, err := c.lock(ctx, a)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.lookUp(a, n)
	var l *cni.List
	switch {
	case r != nil:
		l = r.List
	case n != nil:
		l = n.List
	}
	if l != nil && !l.Version.Has(cni.Check) {
		return cni.Errorf(cni.CodeIncompatibleVersion, "CNI version %v has no CHECK", l.Version)
	}
	if l != nil && l.DisableCheck || n != nil && n.DisableCheck {
		return nil
	}
	if err == nil {
		err = checkable(r)
	}
	if err != nil {
		return err
	}
	env := c.env(cni.Check, a, r.Parameters)
	for i := range r.List.Plugins {
		if _, err := c.run(ctx, r.List, i, env, cni.RequestData{Capabilities: r.Capabilities, PrevResult: r.Result}); err != nil {
			return err
		}
	}
	return nil
}

// checkable refuses a record that does not speak of something attached.
func checkable(r *records.Record) error {
	switch {
	case r.State == records.Deleting:
		return cni.Errorf(cni.CodeUnknownContainer, "DEL was begun and has not succeeded").WithDetails("DEL is due")
	case r.State != records.Attached:
		return cni.Errorf(cni.CodeUnknownContainer, "ADD was not completed").WithDetails("DEL is due")
	case r.EarlierBoot():
		return cni.Errorf(cni.CodeUnknownContainer, "attached before the machine was started").WithDetails("DEL is due")
	}
	return r.ResultErr
}
