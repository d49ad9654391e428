package rtnl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// WaitUp waits until the operational state of l is up.
func (c *Conn) WaitUp(ctx context.Context, l Link) error {
	var state OperState
	err := c.await(ctx, l, unix.RTNLGRP_LINK, func() (bool, error) {
		now, err := c.LinkByIndex(l.Index)
		state = now.OperState
		return state == OperUp, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("link %q is %s, not up: %w", l.Name, state, err)
	}
	return err
}

// DuplicateError says that duplicate address detection has found an address in use by another node.
type DuplicateError struct {
	Link string
	Addr netip.Prefix
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("link %q: duplicate address detection failed for %s", e.Link, e.Addr)
}

// WaitDAD waits until all IPv6 addresses of l can be used. The error is a [*DuplicateError] as soon as one of them is found
// in use elsewhere. A link that is down is not waited for, and reaching the deadline of ctx is an error only if the
// operational state is up: before, detection does not even start.
func (c *Conn) WaitDAD(ctx context.Context, l Link) error {
	err := c.await(ctx, l, unix.RTNLGRP_IPV6_IFADDR, func() (bool, error) {
		d, err := c.dad(l)
		if err == nil && d.duplicate.IsValid() {
			err = &DuplicateError{Link: l.Name, Addr: d.duplicate}
		}
		if err != nil || !d.tentative {
			return true, err
		}
		now, err := c.LinkByIndex(l.Index)
		return !now.Up, err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	now, linkErr := c.LinkByIndex(l.Index)
	if linkErr != nil {
		return linkErr
	}
	if now.OperState != OperUp {
		return nil
	}
	return fmt.Errorf("link %q: duplicate address detection has not finished: %w", l.Name, err)
}

// await calls done, again after each event of the multicast group that is about l, until it returns true or an error, or
// ctx is done.
func (c *Conn) await(ctx context.Context, l Link, group uint, done func() (bool, error)) error {
	if ok, err := done(); ok || err != nil {
		return err
	}
	events, err := nl.SubscribeAt(vns.NsHandle(c.ns.Fd()), vns.None(), unix.NETLINK_ROUTE, group)
	if err != nil {
		return fmt.Errorf("watch link %q: %w", l.Name, err)
	}
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		for {
			msgs, _, err := events.Receive()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if errors.Is(err, unix.ENOBUFS) { // events were lost: look
				break
			}
			if err != nil {
				return fmt.Errorf("watch link %q: %w", l.Name, err)
			}
			if about(msgs, l.Index) {
				break
			}
		}
	}
}

// about reports whether one of the messages concerns a link. The index is at the same place in struct ifinfomsg and
// struct ifaddrmsg.
func about(msgs []syscall.NetlinkMessage, index int) bool {
	for _, m := range msgs {
		if len(m.Data) >= 8 && binary.NativeEndian.Uint32(m.Data[4:]) == uint32(index) {
			return true
		}
	}
	return false
}
