package netlink

import (
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// NewLink describes a link to create that has no peer (ip-link(8)): a macvlan, an ipvlan or a VLAN,
// each on a parent; a dummy, a VRF or a VXLAN, without one.
type NewLink struct {
	Name string
	Kind string           // of rtnetlink
	MAC  net.HardwareAddr // nil lets the kernel choose, or copy the parent's
	MTU  int              // bytes; 0 is the kernel's default, or the parent's MTU

	Parent   int       // index of the parent, or 0
	ParentNS *netns.NS // namespace of the parent

	Mode string // macvlan: bridge, private, vepa, passthru; ipvlan: l2, l3, l3s
	// BCQueueLen is the length of the queue of broadcasts of a macvlan, in packets; 0 is the
	// kernel's default.
	BCQueueLen uint32
	VLAN       uint16 // VLAN: its ID in IEEE 802.1Q, 0 to 4095
	Table      uint32 // VRF: its routing table, from 1
	VXLAN      VXLAN  // VXLAN: the tunnel
}

// Names of modes by their numbers (MACVLAN_MODE_*, IPVLAN_MODE_*).
var (
	macvlanModes = []string{1: "private", 2: "vepa", 4: "bridge", 8: "passthru"}
	ipvlanModes  = []string{"l2", "l3", "l3s"}
)

func modeNumber(modes []string, name string) (uint32, error) {
	n := slices.Index(modes, name)
	if n < 0 || name == "" {
		return 0, fmt.Errorf("mode %q: %w", name, unix.EINVAL)
	}
	return uint32(n), nil
}

// Mode returns the name of a mode of a macvlan or ipvlan device, as in [NewLink], or its number.
func Mode(kind string, number int) string {
	if kind == "ipvlan" {
		return modeName(ipvlanModes, number)
	}
	return modeName(macvlanModes, number)
}

func modeName(modes []string, number int) string {
	if number >= len(modes) || modes[number] == "" {
		return fmt.Sprint(number)
	}
	return modes[number]
}

// Add creates a link, in its namespace under its name from the start, and down. The error is EEXIST
// if the name, or the VLAN on that parent, is in use.
func (c Links) Add(l NewLink) (index int, err error) {
	data, err := l.data()
	if err != nil {
		return 0, err
	}
	made := creation{name: l.Name, kind: l.Kind, mac: l.MAC, mtu: l.MTU, data: data}
	if l.Parent != 0 {
		made.attributes = []Attribute{Uint32(unix.IFLA_LINK, uint32(l.Parent))}
		if !l.ParentNS.Same(c.conn.ns) {
			id, err := c.conn.nsid(l.ParentNS)
			if err != nil {
				return 0, err
			}
			made.attributes = append(made.attributes, Uint32(unix.IFLA_LINK_NETNSID, uint32(id)))
		}
	}
	if l.Kind == "ifb" { // its qdisc must be its only queue
		made.attributes = append(made.attributes, Uint32(unix.IFLA_TXQLEN, 0))
	}
	return c.conn.made(made)
}

// data returns the attributes that the kind defines.
func (l NewLink) data() ([]Attribute, error) {
	switch l.Kind {
	case "macvlan":
		number, err := modeNumber(macvlanModes, l.Mode)
		list := []Attribute{Uint32(unix.IFLA_MACVLAN_MODE, number)}
		if l.BCQueueLen != 0 { // kernels before 5.11 refuse the attribute
			list = append(list, Uint32(unix.IFLA_MACVLAN_BC_QUEUE_LEN, l.BCQueueLen))
		}
		return list, err
	case "ipvlan":
		number, err := modeNumber(ipvlanModes, l.Mode)
		return []Attribute{Uint16(unix.IFLA_IPVLAN_MODE, uint16(number))}, err
	case "vlan":
		return []Attribute{Uint16(unix.IFLA_VLAN_ID, l.VLAN)}, nil
	case "vrf":
		return []Attribute{Uint32(unix.IFLA_VRF_TABLE, l.Table)}, nil
	case KindVXLAN:
		return l.VXLAN.data(), nil
	}
	return nil, nil
}

// readKind decodes the data that the link's kind defines; the kernel sends the kind first.
func (l *Link) readKind(data []byte) {
	if l.Kind == "tun" {
		l.Tun = readTun(data)
		return
	}
	if l.Kind == KindVXLAN {
		l.VXLAN = readVXLAN(data)
		return
	}
	for kind, v := range Attributes(data) {
		switch {
		case l.Kind == "bridge" && kind == unix.IFLA_BR_VLAN_FILTERING:
			l.VLANFiltering = number(v) != 0
		case l.Kind == "vrf" && kind == unix.IFLA_VRF_TABLE:
			l.VRFTable = number(v)
		case l.Kind == "vlan" && kind == unix.IFLA_VLAN_ID:
			l.VLAN = number(v)
		case l.Kind == "macvlan" && kind == unix.IFLA_MACVLAN_MODE,
			l.Kind == "ipvlan" && kind == unix.IFLA_IPVLAN_MODE:
			l.Mode = Mode(l.Kind, number(v))
		}
	}
}
