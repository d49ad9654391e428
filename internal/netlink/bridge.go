package netlink

import (
	"golang.org/x/sys/unix"
)

// Bridge describes a bridge to be made (bridge(8)).
type Bridge struct {
	Name          string
	MTU           int  // bytes; 0 is the kernel's default
	VLANFiltering bool // forward by VLAN: frames reach only those ports that have theirs
}

// AddBridge makes a bridge, down and with an address that the kernel chooses. The error is EEXIST
// if the name is in use.
func (c Links) AddBridge(b Bridge) error {
	l := creation{name: b.Name, kind: "bridge", mtu: b.MTU}
	if b.VLANFiltering { // a kernel without filtering refuses the attribute, whatever its value
		l.data = []Attribute{Uint8(unix.IFLA_BR_VLAN_FILTERING, 1)}
	}
	return c.conn.create(l)
}

// Port is the configuration of a bridge port (bridge(8)).
type Port struct {
	Hairpin  bool // frames may leave through the port they came in by
	Isolated bool // no frames to and from other isolated ports
}

// SetPort configures l, which must be a port of a bridge.
func (c Links) SetPort(l Link, p Port) error {
	return c.conn.change(unix.RTM_SETLINK, 0, unix.IfInfomsg{Family: unix.AF_BRIDGE, Index: int32(l.Index)},
		Nest(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, flag(unix.IFLA_BRPORT_MODE, p.Hairpin), flag(unix.IFLA_BRPORT_ISOLATED, p.Isolated)))
}

func flag(kind uint16, on bool) Attribute {
	if on {
		return Uint8(kind, 1)
	}
	return Uint8(kind, 0)
}
