package netlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// fixedNeighbour are the states in which the kernel knows the MAC address without resolution
// (include/uapi/linux/neighbour.h).
const fixedNeighbour = unix.NUD_PERMANENT | unix.NUD_NOARP

// maxAsks limits the requests for one address: the kernel refuses them at once on a link that is
// down.
const maxAsks = 50

// Answers reports whether the owner of an address on a link answers ARP or neighbour discovery
// before ctx is done. It ignores existing neighbour entries, except permanent ones. An entry that
// has failed proves nothing at first: another process that asks for the same address may have
// deleted it, and the kernel reports such an entry as failed. Answers then asks again.
func (c Addrs) Answers(ctx context.Context, l Link, a netip.Addr) (bool, error) {
	state, err := c.conn.neighbour(l, a)
	if err != nil || state&fixedNeighbour != 0 {
		return err == nil, err
	}
	if err := c.conn.resolve(l, a); err != nil {
		return false, fmt.Errorf("link %q: resolve %s: %w", l.Name, a, err)
	}
	asks := 1
	err = c.conn.await(ctx, l, unix.RTNLGRP_NEIGH, func() (bool, error) {
		state, err = c.conn.neighbour(l, a)
		if err != nil || state&unix.NUD_FAILED == 0 || asks == maxAsks {
			return state&(unix.NUD_REACHABLE|unix.NUD_STALE|unix.NUD_FAILED) != 0, err
		}
		asks++
		return false, c.conn.use(l, a)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil && state&unix.NUD_FAILED == 0, err
}

// neighbour returns the state of the neighbour entry of an address (NUD_…), 0 if there is none.
func (c *Conn) neighbour(l Link, a netip.Addr) (state uint16, err error) {
	err = c.ask(unix.RTM_GETNEIGH, 0, about(l, a, 0), destination(a), func(m []byte) error {
		var entry unix.NdMsg
		_, err := ReadBody(m, &entry)
		state = entry.State
		return err
	})
	if err := unless(err, unix.ENOENT); err != nil {
		return 0, fmt.Errorf("link %q: neighbour %s: %w", l.Name, a, err)
	}
	return state, nil
}

// resolve makes the kernel drop the entry of an address and resolve it again.
func (c *Conn) resolve(l Link, a netip.Addr) error {
	err := c.change(unix.RTM_DELNEIGH, 0, about(l, a, 0), destination(a)...)
	if err := unless(err, unix.ENOENT); err != nil {
		return err
	}
	return c.use(l, a)
}

// use makes the kernel resolve an address like a packet to it.
func (c *Conn) use(l Link, a netip.Addr) error {
	return c.change(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE, about(l, a, unix.NTF_USE),
		destination(a)...)
}

func about(l Link, a netip.Addr, flags uint8) unix.NdMsg {
	return unix.NdMsg{Family: familyOf(a), Ifindex: int32(l.Index), Flags: flags}
}

func destination(a netip.Addr) []Attribute {
	return []Attribute{Bytes(unix.NDA_DST, a.AsSlice())}
}
