package rtnl

import (
	"net"

	"github.com/vishvananda/netlink"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

// Veth describes a veth pair to be made (veth(4)).
type Veth struct {
	Name   string
	MAC    net.HardwareAddr // of the near end; nil lets the kernel choose, as it does for the far end
	MTU    int              // of both ends; 0 is the kernel's default
	Peer   string           // name of the far end
	PeerNS *netns.NS        // namespace of the far end
}

// AddVeth makes a pair, both ends in their namespaces under their names and down, and returns the index of the near
// end. The transmit queues have the kernel's default length. The error is EEXIST if one of the names is taken.
func (c *Conn) AddVeth(v Veth) (index int, err error) {
	l := netlink.NewVeth(netlink.NewLinkAttrs()) // these set "no queue length given", which 0 is not
	l.Name, l.HardwareAddr, l.MTU = v.Name, v.MAC, v.MTU
	l.PeerName, l.PeerNamespace = v.Peer, netlink.NsFd(v.PeerNS.Fd())
	err = c.h.LinkAdd(l)
	return l.Index, err
}
