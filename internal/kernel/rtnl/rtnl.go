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
	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// Conn is rtnetlink sockets, bound to a namespace. It is for one goroutine. Lists that change while they are read are asked
// for again, a bounded number of times; then it is an error.
type Conn struct {
	ns       *netns.NS
	socket   *nl.NetlinkSocket
	exchange nlmsg.Exchange
	h        *netlink.Handle // for requests of the library; nil until the first
}

// Open opens a socket in ns, which must stay open as long as the connection.
func Open(ns *netns.NS) (*Conn, error) {
	socket, err := nl.GetNetlinkSocketAt(vns.NsHandle(ns.Fd()), vns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket in %s: %w", ns, err)
	}
	// For errors with a text (before 4.12: without). Lists of one link are then filtered by the kernel (before 4.20: here).
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK, unix.NETLINK_GET_STRICT_CHK} {
		_ = unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, option, 1)
	}
	return &Conn{ns: ns, socket: socket}, nil
}

// Close closes the sockets.
func (c *Conn) Close() error {
	c.socket.Close()
	if c.h == nil {
		return nil
	}
	return c.h.Close()
}

// library is for routes and rules, of which there is much to know.
func (c *Conn) library() (*netlink.Handle, error) {
	if c.h != nil {
		return c.h, nil
	}
	at := vns.NsHandle(c.ns.Fd())
	h, err := netlink.NewHandleWithOptions(netlink.HandleOptions{RetryInterrupted: true, NetNS: &at}, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket in %s: %w", c.ns, err)
	}
	// Lets the kernel filter dumps; one that cannot (before 4.20) sends more, which the library filters.
	_ = h.SetStrictCheck(true)
	c.h = h
	return h, nil
}

// repeats is how often a list is asked for that changes while it is read.
const repeats = 10

// list calls each with the messages of a dump. They are complete when it returns no error: each may see some that count for
// nothing, and is told by reset.
func (c *Conn) list(kind uint16, about nl.NetlinkRequestData, attributes []*nl.RtAttr, reset func(), each func([]byte) error) error {
	var err error
	for range repeats {
		reset()
		if err = c.ask(kind, unix.NLM_F_DUMP, about, attributes, each); !errors.Is(err, nlmsg.ErrInterrupted) {
			return err
		}
	}
	return err
}

// change makes a change; flags are NLM_F_… besides NLM_F_ACK.
func (c *Conn) change(kind uint16, flags int, about nl.NetlinkRequestData, attributes ...*nl.RtAttr) error {
	return c.ask(kind, flags|unix.NLM_F_ACK, about, attributes, nil)
}

func (c *Conn) ask(kind uint16, flags int, about nl.NetlinkRequestData, attributes []*nl.RtAttr, each func([]byte) error) error {
	body := about.Serialize()
	for _, a := range attributes {
		body = append(body, a.Serialize()...)
	}
	return c.exchange.Ask(c.socket.GetFd(), kind, flags, body, each)
}

// gone reports whether err says that the object of a deletion is not there.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL)
}
