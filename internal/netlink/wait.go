package netlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/trace"
)

// WaitUp waits until the operational state of l is up.
func (c Links) WaitUp(ctx context.Context, l Link) error {
	var state OperState
	err := c.conn.await(ctx, l, unix.RTNLGRP_LINK, func() (bool, error) {
		now, err := c.ByIndex(l.Index)
		state = now.OperState
		return state == OperUp, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("link %q is %s, not up: %w", l.Name, state, err)
	}
	return err
}

// Await calls done at once and after each change of a link in the namespace, until done returns
// true or an error, or ctx is done. l is the link that done checks.
func (c Links) Await(ctx context.Context, l Link, done func() (bool, error)) error {
	return c.conn.await(ctx, l, unix.RTNLGRP_LINK, done)
}

// DuplicateError reports that duplicate address detection found an address in use by another node.
type DuplicateError struct {
	Link string
	Addr netip.Prefix
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("link %q: duplicate address detection failed for %s", e.Link, e.Addr)
}

// WaitDAD waits until all IPv6 addresses of l can be used. The error is a [*DuplicateError] as soon
// as one of them is found in use elsewhere. WaitDAD does not wait for a link that is down, and
// reaching the deadline of ctx is an error only if the operational state is up, because detection
// does not start before.
func (c Addrs) WaitDAD(ctx context.Context, l Link) error {
	err := c.conn.await(ctx, l, unix.RTNLGRP_IPV6_IFADDR, func() (bool, error) {
		all, err := c.Stored(l)
		for _, a := range all {
			if a.flags&unix.IFA_F_DADFAILED != 0 {
				err = &DuplicateError{Link: l.Name, Addr: a.Addr}
			}
		}
		if err != nil || !slices.ContainsFunc(all, StoredAddr.unusable) {
			return true, err
		}
		now, err := c.conn.Links.ByIndex(l.Index)
		return !now.Up, err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	now, linkErr := c.conn.Links.ByIndex(l.Index)
	if linkErr != nil {
		return linkErr
	}
	if now.OperState != OperUp {
		return nil
	}
	return fmt.Errorf("link %q: duplicate address detection has not finished: %w", l.Name, err)
}

// await calls done at once and after each event of the multicast group, until it returns true or an
// error, or ctx is done.
func (c *Conn) await(
	ctx context.Context, l Link, group int, done func() (bool, error),
) (err error) {
	if ok, err := done(); ok || err != nil {
		return err
	}
	if s := trace.From(ctx); s != nil {
		wait := s.Waiting("event", waitName(group, l))
		defer func() { wait.End(err) }()
	}
	events, err := OpenStream(c.ns, StreamOptions{Protocol: unix.NETLINK_ROUTE, Groups: []int{group}})
	if err != nil {
		return fmt.Errorf("watch link %q: %w", l.Name, err)
	}
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		_, _, err := events.Next(true)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, ErrOverrun): // lost events count as an event
			return fmt.Errorf("watch link %q: %w", l.Name, err)
		}
	}
}

// waitName describes a wait in a trace.
func waitName(group int, l Link) string {
	if group == unix.RTNLGRP_IPV6_IFADDR {
		return "duplicate address detection on " + l.Name
	}
	return "link " + l.Name
}
