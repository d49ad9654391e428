package network

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/invoke"
)

// Unrepaired is a recorded attachment that [Client.Repair] has skipped.
type Unrepaired struct {
	Attachment cni.Attachment
	Err        error // the reason; with [cni.CodeUnknownContainer] if DEL is due
}

// Repair restores the rules of all recorded attachments after the host's ruleset was flushed, for
// example by the restart of a firewall, and other objects that do restores. If networks is not nil,
// it restores only their attachments. do restores the rules; package plugins/all contains an
// implementation for the plugins of Tenon. do gets the calls that CHECK would make with the
// recorded configuration and results, also for networks without CHECK. It must not make these
// calls.
//
// Repair handles the attachments of all runtimes, because all have lost their rules: those in
// StateDir, those in the state directories that other runtimes of the host have registered in
// [RegistryDir], and those in CacheDir, if it is set. No ADD, DEL or GC runs on the networks during
// do. Repair waits for operations in progress, in total no longer than [Client.Timeout] allows a
// plugin; it skips networks that are still busy and returns an error about them. libcni has no
// locks: do can restore the rules of an attachment that libcni is detaching at this moment; GC
// removes them.
//
// Repair returns the attachments that it skipped because they are not attached or their namespace
// no longer exists. It joins the other errors, among them those about unreadable records and
// missing plugins, and repairs the other attachments in any case.
func (c *Client) Repair(
	ctx context.Context, networks []string, do func(context.Context, []invoke.Call) error,
) (passed []Unrepaired, err error) {
	return c.repair(ctx, func(o cni.Owner) bool {
		return networks == nil || slices.ContainsFunc(networks,
			func(n string) bool { return o.Network() == cni.NetworkOwner(n) })
	}, do)
}

// RepairAttachments is [Client.Repair] for some attachments. It locks their networks too.
func (c *Client) RepairAttachments(
	ctx context.Context, attachments []cni.Attachment,
	do func(context.Context, []invoke.Call) error,
) (passed []Unrepaired, err error) {
	chosen := map[cni.Owner]bool{}
	for _, a := range attachments {
		chosen[a.Owner()] = true
	}
	return c.repair(ctx, func(o cni.Owner) bool { return chosen[o] }, do)
}

// repair repairs the wanted attachments.
func (c *Client) repair(
	ctx context.Context, wanted func(cni.Owner) bool,
	do func(context.Context, []invoke.Call) error,
) (passed []Unrepaired, err error) {
	ctx, end := c.observe(ctx, Repair, "", cni.Attachment{})
	defer func() { end(nil, err) }()
	all, othersErr := c.runtimes()
	locked, unlock, lockErr := c.lockRecorded(ctx, all, wanted)
	defer unlock()
	errs := []error{othersErr, lockErr}
	var calls []invoke.Call
	for _, one := range all {
		found, scanErr := one.choose(wanted)
		errs = append(errs, scanErr)
		for _, f := range found {
			switch {
			case f.Err != nil:
				errs = append(errs, f.Damage())
				continue
			case !locked[place{one, f.Record.Attachment.Network}]:
				continue
			}
			its, err := one.repairs(f.Record)
			calls = append(calls, its...)
			if cni.CodeOf(err) == cni.CodeUnknownContainer {
				passed = append(passed, Unrepaired{f.Record.Attachment, err})
			} else {
				errs = append(errs, of(f.Record.Attachment, err))
			}
		}
	}
	if len(calls) > 0 {
		errs = append(errs, do(ctx, calls))
	}
	return passed, errors.Join(errs...)
}

// place is a network in the state directory of a client.
type place struct {
	client  *Client
	network string
}

// lockRecorded locks the networks of the wanted recorded attachments of all runtimes, always in the
// same order, so that two processes that lock several networks cannot block each other. It returns
// an error about networks that stay busy for too long, and does not lock them.
func (c *Client) lockRecorded(
	ctx context.Context, all []*Client, wanted func(cni.Owner) bool,
) (locked map[place]bool, unlock func(), err error) {
	locked = map[place]bool{}
	var networks []string
	for _, one := range all {
		found, _ := one.choose(wanted) // the caller scans again and reports the error
		for _, f := range found {
			if f.Record != nil {
				locked[place{one, f.Record.Attachment.Network}] = false
				networks = append(networks, f.Record.Attachment.Network)
			}
		}
	}
	slices.Sort(networks)
	wait, cancel := c.limit(ctx, 1)
	defer cancel()
	var held releases
	var errs []error
	for _, network := range slices.Compact(networks) {
		for _, one := range all { // in the order of lockHost
			at := place{one, network}
			if _, recorded := locked[at]; !recorded {
				continue
			}
			// If earlier networks have used the time up, this still locks a free network.
			_, release, err := one.lockNetwork(wait, network)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			locked[at] = true
			held = append(held, release)
		}
	}
	return locked, held.all, errors.Join(errs...)
}

// repairs returns the calls that repair an attachment. The error is about plugins that it had to
// leave out; it has [cni.CodeUnknownContainer] if there is nothing to repair.
func (c *Client) repairs(r *records.Record) (calls []invoke.Call, err error) {
	if err := checkable(r); err != nil {
		return nil, err
	}
	if own, _ := isOwnNetns(r.Netns); own && !r.HostNetns {
		return nil, cni.Errorf(cni.CodeUnknownContainer,
			"network namespace %q is now the host's own", r.Netns).WithDetails("run DEL")
	}
	if err := r.Complete(nil); err != nil {
		return nil, err
	}
	env := c.env(cni.Check, r.Attachment, r.Parameters)
	var errs []error
	for i, p := range r.List.Plugins {
		path, err := c.find(p.Type)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		stdin, err := r.List.Request(cni.Check, i,
			cni.RequestData{Capabilities: r.Capabilities, PrevResult: r.Result})
		if err != nil {
			return nil, fmt.Errorf("create request for %s: %w", p.Type, err)
		}
		calls = append(calls, invoke.Call{Path: path, Env: env, Stdin: stdin, Journaled: true})
	}
	return calls, errors.Join(errs...)
}
