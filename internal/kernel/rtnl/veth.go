package rtnl

import (
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

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
	peer := nl.NewRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	for _, a := range (creation{name: v.Peer, mtu: v.MTU}).common() {
		peer.AddChild(a)
	}
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(v.PeerNS.Fd())))
	return c.made(creation{name: v.Name, kind: "veth", mac: v.MAC, mtu: v.MTU, data: []*nl.RtAttr{peer}})
}
