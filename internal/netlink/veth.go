package netlink

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Veth describes a veth pair to create (veth(4)).
type Veth struct {
	Name   string
	MAC    net.HardwareAddr // of the near end; nil: the kernel chooses, as for the peer
	MTU    int              // of both ends; 0 is the kernel's default
	Peer   string           // name of the peer
	PeerNS *netns.NS        // namespace of the peer
}

// vethInfoPeer is VETH_INFO_PEER of linux/veth.h.
const vethInfoPeer = 1

// AddVeth creates a pair, with both ends in their namespaces under their names and down, and
// returns the index of the near end. The transmit queues have the kernel's default length. The
// error is EEXIST if one of the names is in use.
func (c Links) AddVeth(v Veth) (index int, err error) {
	far := append(creation{name: v.Peer, mtu: v.MTU}.common(),
		Uint32(unix.IFLA_NET_NS_FD, uint32(v.PeerNS.Fd())))
	peer := Struct(vethInfoPeer, unix.IfInfomsg{}, far...)
	return c.conn.made(creation{name: v.Name, kind: "veth", mac: v.MAC, mtu: v.MTU,
		data: []Attribute{peer}})
}
