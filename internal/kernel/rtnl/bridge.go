package rtnl

import (
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Bridge describes a bridge to be made (bridge(8)).
type Bridge struct {
	Name          string
	MTU           int  // bytes; 0 is the kernel's default
	VLANFiltering bool // forward by VLAN: frames reach only those ports that have theirs
}

// AddBridge makes a bridge and sets it up. It gets a hardware address of its own, random and locally administered: the
// kernel would have it follow its ports, and neighbours lose it with each of them. The error is EEXIST if the name is
// taken.
func (c *Conn) AddBridge(b Bridge) error {
	mac := make(net.HardwareAddr, 6)
	if _, err := unix.Getrandom(mac, 0); err != nil {
		return err
	}
	mac[0] = mac[0]&^1 | 2 // unicast, locally administered (IEEE 802)
	l := creation{name: b.Name, kind: "bridge", mac: mac, mtu: b.MTU, up: true}
	if b.VLANFiltering { // a kernel that cannot refuses to be told not to
		l.data = []*nl.RtAttr{nl.NewRtAttr(nl.IFLA_BR_VLAN_FILTERING, nl.Uint8Attr(1))}
	}
	return c.create(l)
}

// Port is the configuration of a bridge port (bridge(8)).
type Port struct {
	Hairpin  bool // frames may leave through the port they came in by
	Isolated bool // no frames to and from other isolated ports
}

// SetPort configures l, which must be a port of a bridge.
func (c *Conn) SetPort(l Link, p Port) error {
	info := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
	info.AddRtAttr(nl.IFLA_BRPORT_MODE, flag(p.Hairpin))
	info.AddRtAttr(nl.IFLA_BRPORT_ISOLATED, flag(p.Isolated))
	m := nl.NewIfInfomsg(unix.AF_BRIDGE)
	m.Index = int32(l.Index)
	return c.change(unix.RTM_SETLINK, 0, m, info)
}

func flag(on bool) []byte {
	if on {
		return []byte{1}
	}
	return []byte{0}
}
