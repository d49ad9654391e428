package netlink

import (
	"golang.org/x/sys/unix"
)

// Bridge describes a bridge to create (bridge(8)).
type Bridge struct {
	Name          string
	MTU           int  // bytes; 0 is the kernel's default
	VLANFiltering bool // forward by VLAN: frames reach only ports in their VLAN
}

// AddBridge creates a bridge, down and with a MAC address that the kernel chooses. The error is
// EEXIST if the name is in use.
func (c Links) AddBridge(b Bridge) error {
	l := creation{name: b.Name, kind: "bridge", mtu: b.MTU}
	// A kernel without VLAN filtering refuses the attribute, whatever its value.
	if b.VLANFiltering {
		l.data = []Attribute{Uint8(unix.IFLA_BR_VLAN_FILTERING, 1)}
	}
	return c.conn.create(l)
}

// Port is the configuration of a bridge port (bridge(8)).
type Port struct {
	Hairpin  bool // frames may leave through the port that received them
	Isolated bool // no frames to and from other isolated ports
}

// SetPort configures l, which must be a port of a bridge.
func (c Links) SetPort(l Link, p Port) error {
	return c.conn.change(unix.RTM_SETLINK, 0,
		unix.IfInfomsg{Family: unix.AF_BRIDGE, Index: int32(l.Index)},
		Nest(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, flag(unix.IFLA_BRPORT_MODE, p.Hairpin),
			flag(unix.IFLA_BRPORT_ISOLATED, p.Isolated)))
}

func flag(kind uint16, on bool) Attribute {
	if on {
		return Uint8(kind, 1)
	}
	return Uint8(kind, 0)
}
