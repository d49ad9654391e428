package network

import (
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Check runs CHECK with the recorded configuration, parameters and result. It stops at the first
// plugin that reports an error.
//
// In the following cases no plugin runs: a network below version 0.4.0 has no CHECK and returns
// [cni.CodeIncompatibleVersion]; a network with disableCheck succeeds; an unknown attachment
// returns [ErrNoRecord], and an unreadable record an error. n may be nil; its version matters only
// if there is no record, and its disableCheck always. For attachments of libcni, n also supplies
// the plugins of drop-in files.
func (c *Client) Check(ctx context.Context, a cni.Attachment, n *config.Network) error {
	if err := a.Validate(); err != nil {
		return err
	}
	c, ctx, end := c.journaled(ctx, Operation, cni.Check, a)
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
	c.entry.about(r)
	env := c.env(cni.Check, a, r.Parameters)
	for i := range r.List.Plugins {
		if _, err := c.run(ctx, r.List, i, env,
			cni.RequestData{Capabilities: r.Capabilities, PrevResult: r.Result}); err != nil {
			return err
		}
	}
	return nil
}

// checkable returns an error if r is not the record of an existing attachment.
func checkable(r *records.Record) error {
	switch {
	case r.State == records.Deleting:
		return cni.Errorf(cni.CodeUnknownContainer, "DEL was started but has not succeeded").
			WithDetails("run DEL again")
	case r.State != records.Attached:
		return cni.Errorf(cni.CodeUnknownContainer, "ADD incomplete").WithDetails("run DEL")
	case r.EarlierBoot():
		return cni.Errorf(cni.CodeUnknownContainer, "attached before the last boot").
			WithDetails("run DEL")
	}
	return r.ResultErr
}
