package netlink

import "github.com/tenon-cni/tenon/internal/netns"

// ExecuteLabelled lets a test run without a device.
var ExecuteLabelled = executeLabelled

// ChangeName returns the name of a type of messages that change objects, or "" for another type.
func ChangeName(kind uint16) string {
	if !changes(kind) {
		return ""
	}
	return messageName(kind)
}

// Over returns a connection over a socket of any kind, for tests that play the kernel.
func Over(fd int, ns *netns.NS) *Conn { return newConn(ns, fd) }

// LastNumber returns the number of the last request.
func LastNumber(c *Conn) uint32 { return c.exchange.last }
