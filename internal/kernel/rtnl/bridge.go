package rtnl

import (
	"errors"
	"net"

	"github.com/vishvananda/netlink"
)

// AddBridge makes a bridge and sets it up. An mtu of 0 is the kernel's default. The error is EEXIST if the name is taken.
func (c *Conn) AddBridge(name string, mtu int) error {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU, a.Flags = name, mtu, net.FlagUp
	return c.h.LinkAdd(&netlink.Bridge{LinkAttrs: a})
}

// Port is the configuration of a bridge port (bridge(8)).
type Port struct {
	Hairpin  bool // frames may leave through the port they came in by
	Isolated bool // no frames to and from other isolated ports
}

// SetPort configures l, which must be a port of a bridge.
func (c *Conn) SetPort(l Link, p Port) error {
	return errors.Join(c.h.LinkSetHairpin(ref(l), p.Hairpin), c.h.LinkSetIsolated(ref(l), p.Isolated))
}
