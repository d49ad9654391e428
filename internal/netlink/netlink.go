// Package netlink implements netlink(7) without a library: the messages and exchanges of every
// family, rtnetlink(7) as plain values (links, addresses, routes, rules, neighbours, traffic
// control), and the flows of connection tracking. Each socket is bound to a network namespace. Tap
// devices are created with the ioctls of /dev/net/tun, because rtnetlink cannot create them. The
// package neither undoes changes nor knows their purpose, which is the task of package kernel, and
// it knows nothing of CNI. nftables is in internal/nft.
package netlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Conn is an rtnetlink socket, bound to a namespace. It must be used by one goroutine at a time. If
// a list changes during a dump, the request is repeated a limited number of times before it fails.
type Conn struct {
	Links  Links
	Addrs  Addrs
	Routes Routes
	Qdiscs Qdiscs

	ns       *netns.NS
	fd       int
	exchange Exchange
	watch    func(message string) // see Watch; may be nil
}

// The methods of a [Conn] are grouped by the kind of object. A group has no state of its own.
type (
	// Links adds, changes, lists and deletes links, and the VLANs of bridge ports.
	Links struct{ conn *Conn }

	// Addrs adds, lists and deletes addresses of links.
	Addrs struct{ conn *Conn }

	// Routes adds, lists and deletes routes and policy rules.
	Routes struct{ conn *Conn }

	// Qdiscs adds, lists and deletes queueing disciplines and their filters.
	Qdiscs struct{ conn *Conn }
)

// Open opens a socket in ns, which must stay open as long as the connection.
func Open(ns *netns.NS) (*Conn, error) {
	fd, err := socket(ns)
	if err != nil {
		return nil, err
	}
	Prepare(fd)
	// Let the kernel filter lists of one link; before Linux 4.20 the callers do.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	return newConn(ns, fd), nil
}

func newConn(ns *netns.NS, fd int) *Conn {
	c := &Conn{ns: ns, fd: fd}
	c.Links, c.Addrs, c.Routes, c.Qdiscs = Links{c}, Addrs{c}, Routes{c}, Qdiscs{c}
	return c
}

// Watch makes c call watch with the type of each message that changes an object ("RTM_NEWLINK"),
// before it is sent.
func (c *Conn) Watch(watch func(message string)) { c.watch = watch }

// socket opens an rtnetlink socket in ns; flags are SOCK_….
func socket(ns *netns.NS) (fd int, err error) {
	fd, err = ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("rtnetlink socket in %s: %w", ns, err)
	}
	return fd, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// list returns the objects of a dump; read appends the objects of a message to a list.
func list[T any](
	c *Conn, kind uint16, about any, attributes []Attribute, read func([]T, []byte) ([]T, error),
) ([]T, error) {
	return List(&c.exchange, c.fd, kind, Body(about, attributes...), read)
}

// change makes a change; flags are NLM_F_… in addition to NLM_F_ACK.
func (c *Conn) change(kind uint16, flags int, about any, attributes ...Attribute) error {
	return c.ask(kind, flags|unix.NLM_F_ACK, about, attributes, nil)
}

func (c *Conn) ask(kind uint16, flags int, about any, attributes []Attribute,
	each func([]byte) error) error {
	if c.watch != nil && changes(kind) {
		c.watch(messageName(kind))
	}
	return c.exchange.Ask(c.fd, kind, flags, Body(about, attributes...), each)
}

// deleted interprets the answer to a deletion: it reports whether the object existed, and returns
// an error only if the deletion failed for another reason.
func deleted(answer error) (existed bool, err error) {
	return answer == nil, unless(answer, gone...)
}

// gone are the errors of deletions of objects that do not exist.
var gone = []unix.Errno{unix.ENODEV, unix.ESRCH, unix.EADDRNOTAVAIL}

// unless returns err, or nil if it is one of errnos.
func unless(err error, errnos ...unix.Errno) error {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return nil
		}
	}
	return err
}
