package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/invoke"
)

// Unrepaired is a recorded attachment that [Client.Repair] has passed over.
type Unrepaired struct {
	Attachment cni.Attachment
	Err        error // why; with [cni.CodeUnknownContainer] if DEL is due
}

// Repair is for when somebody has flushed the ruleset of the host, such as a firewall that was started again: it has do put
// back what plugins keep there, for all recorded attachments, or those of the networks that are named. Package plugins/all
// has such a function, for the plugins of Tenon. do gets the calls that CHECK would make, with everything as recorded, but
// for a network that has no CHECK too; it must not make them.
//
// Attachments of all runtimes are repaired, as they have all lost their rules: those in StateDir and, where it is given,
// those in CacheDir. While do runs there is no ADD, DEL or GC on the networks. Repair waits for what is under way, for all
// of it no longer than [Client.Timeout] allows a plugin: a network that is still busy then is left out, with an error. The
// reference library knows no locks: what it detaches just then can come back, until GC.
//
// What is not attached, or has no namespace any more, is returned. Errors, among them those of records that cannot be read
// and of plugins that are not found, are joined; the others are repaired in any case.
func (c *Client) Repair(
	ctx context.Context, networks []string, do func(context.Context, []invoke.Call) error,
) (passed []Unrepaired, err error) {
	ctx, end := c.observe(ctx, Repair, "", cni.Attachment{})
	defer func() { end(nil, err) }()
	wanted := func(o cni.Owner) bool {
		return networks == nil || slices.ContainsFunc(networks, func(n string) bool { return o.Network() == cni.NetworkOwner(n) })
	}
	locked, unlock, err := c.lockRecorded(ctx, wanted)
	defer unlock()
	found, scanErr := c.scan("")
	errs := []error{err, scanErr}
	var calls []invoke.Call
	for _, f := range found {
		switch {
		case !wanted(f.Owner):
			continue
		case f.Err != nil:
			errs = append(errs, f.Damage())
			continue
		case !locked[f.Record.Attachment.Network]:
			continue
		}
		its, err := c.repairs(f.Record)
		calls = append(calls, its...)
		if cni.CodeOf(err) == cni.CodeUnknownContainer {
			passed = append(passed, Unrepaired{f.Record.Attachment, err})
		} else {
			errs = append(errs, of(f.Record.Attachment, err))
		}
	}
	if len(calls) > 0 {
		errs = append(errs, do(ctx, calls))
	}
	return passed, errors.Join(errs...)
}

// lockRecorded locks the networks of recorded attachments that are wanted, in the same order always: others that lock
// several do not wait for each other. Those that are busy for too long are not locked, and such an error.
func (c *Client) lockRecorded(ctx context.Context, wanted func(cni.Owner) bool) (locked map[string]bool, unlock func(), err error) {
	found, _ := c.scan("") // what is wrong with it the caller finds, who has to look again
	locked = map[string]bool{}
	for _, f := range found {
		if f.Record != nil && wanted(f.Owner) {
			locked[f.Record.Attachment.Network] = false
		}
	}
	wait, cancel := c.limit(ctx, 1)
	defer cancel()
	var held releases
	var errs []error
	for _, network := range slices.Sorted(maps.Keys(locked)) {
		try, cancel := wait, context.CancelFunc(func() {})
		if wait.Err() != nil { // others have used the time up
			try, cancel = context.WithTimeout(ctx, statefile.LastWait)
		}
		_, release, err := c.lockNetwork(try, network)
		cancel()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		locked[network] = true
		held = append(held, release)
	}
	return locked, held.all, errors.Join(errs...)
}

// repairs returns the calls that repair an attachment. The error is about what is not among them, with
// [cni.CodeUnknownContainer] if there is nothing to repair.
func (c *Client) repairs(r *records.Record) (calls []invoke.Call, err error) {
	if err := checkable(r); err != nil {
		return nil, err
	}
	if own, _ := isOwnNetns(r.Netns); own && !r.HostNetns {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "namespace %q is that of the host now", r.Netns).WithDetails("DEL is due")
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
		stdin, err := r.List.Request(cni.Check, i, cni.RequestData{Capabilities: r.Capabilities, PrevResult: r.Result})
		if err != nil {
			return nil, fmt.Errorf("request to %s: %w", p.Type, err)
		}
		calls = append(calls, invoke.Call{Path: path, Env: env, Stdin: stdin})
	}
	return calls, errors.Join(errs...)
}
