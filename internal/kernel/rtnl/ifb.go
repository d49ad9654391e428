package rtnl

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// IFB describes an intermediate functional block to be made: a link that sends what filters of another hand it, and gives
// it back to that one.
type IFB struct {
	Name string
	MTU  int              // bytes; 0 is the kernel's default
	MAC  net.HardwareAddr // nil lets the kernel choose; nobody sees it
}

// AddIFB makes an ifb, down. It has no transmit queue, as its qdisc is to be the only one, and as many queues as the kernel
// likes. The error is EEXIST if the name is taken.
func (c *Conn) AddIFB(b IFB) (index int, err error) {
	noQueue := nlmsg.Uint32(unix.IFLA_TXQLEN, 0)
	return c.made(creation{name: b.Name, kind: "ifb", mac: b.MAC, mtu: b.MTU, attributes: []nlmsg.Attribute{noQueue}})
}
