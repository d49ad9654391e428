// Package rtnl speaks rtnetlink(7): links, addresses and routes of one network namespace, as plain values. It is the
// only package that imports the netlink library. It neither undoes nor names what it does; that is for package kernel.
package rtnl

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

// Conn is rtnetlink sockets, bound to a namespace. Dumps that the kernel interrupts are repeated a bounded number of
// times; then their error wraps [ErrInterrupted].
type Conn struct {
	ns  *netns.NS
	h   *netlink.Handle
	own *nl.SocketHandle // for requests of our own; nil until the first
}

// ErrInterrupted says that a list changed each time while it was read (NLM_F_DUMP_INTR).
var ErrInterrupted = netlink.ErrDumpInterrupted

// Open opens a socket in ns, which must stay open as long as the connection.
func Open(ns *netns.NS) (*Conn, error) {
	at := vns.NsHandle(ns.Fd())
	h, err := netlink.NewHandleWithOptions(netlink.HandleOptions{
		DisableVFInfoCollection: true,
		RetryInterrupted:        true,
		NetNS:                   &at,
	}, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket in %s: %w", ns, err)
	}
	// Lets the kernel filter dumps; one that cannot (before 4.20) sends more, which the library filters.
	_ = h.SetStrictCheck(true)
	return &Conn{ns: ns, h: h}, nil
}

// Close closes the sockets.
func (c *Conn) Close() error {
	if c.own != nil {
		c.own.Close()
	}
	return c.h.Close()
}

// request sends a request that the library does not know, or knows too much of, and returns what the kernel answers.
func (c *Conn) request(typ uint16, flags int, about nl.NetlinkRequestData, attributes []*nl.RtAttr) ([][]byte, error) {
	if c.own == nil {
		s, err := nl.GetNetlinkSocketAt(vns.NsHandle(c.ns.Fd()), vns.None(), unix.NETLINK_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("rtnetlink socket in %s: %w", c.ns, err)
		}
		c.own = &nl.SocketHandle{Socket: s}
	}
	r := nl.NewNetlinkRequest(int(typ), flags)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: c.own}
	r.RetryInterrupted = true
	r.AddData(about)
	for _, a := range attributes {
		r.AddData(a)
	}
	return r.Execute(unix.NETLINK_ROUTE, 0)
}

// gone reports whether err says that the object of a deletion is not there.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL)
}
