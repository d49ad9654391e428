package host

import (
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// linkFlags are the flags of a link that explain its behaviour (IFF_…).
var linkFlags = []flag{
	{unix.IFF_UP, "up"}, {unix.IFF_LOWER_UP, "lower-up"}, {unix.IFF_LOOPBACK, "loopback"},
	{unix.IFF_POINTOPOINT, "pointopoint"}, {unix.IFF_NOARP, "noarp"},
	{unix.IFF_PROMISC, "promisc"}, {unix.IFF_ALLMULTI, "allmulti"},
}

// flag is the name of a bit.
type flag struct {
	bit  uint32
	name string
}

func names(flags []flag, bits uint32) (list []string) {
	for _, f := range flags {
		if bits&f.bit != 0 {
			list = append(list, f.name)
		}
	}
	return list
}

func (r *reader) links() ([]Link, error) {
	mask := []netlink.Attribute{netlink.Uint32(unix.IFLA_EXT_MASK, netlink.SkipStats)}
	links, err := netlink.Dump(r.conn, unix.RTM_GETLINK, unix.IfInfomsg{}, mask,
		func(list []Link, m []byte) ([]Link, error) {
			l, err := readLink(m)
			return append(list, l), err
		})
	if err != nil || !slices.ContainsFunc(links, func(l Link) bool { return l.Bridge != nil }) {
		return links, err
	}
	return links, r.bridgeVLANs(links)
}

// bridgeVLANs adds the VLANs of bridges and their ports.
func (r *reader) bridgeVLANs(links []Link) error {
	type member struct {
		index int
		vlans []VLAN
	}
	mask := []netlink.Attribute{netlink.Uint32(unix.IFLA_EXT_MASK, netlink.FilterVLANs)}
	about := unix.IfInfomsg{Family: unix.AF_BRIDGE}
	members, err := netlink.Dump(r.conn, unix.RTM_GETLINK, about, mask,
		func(list []member, m []byte) ([]member, error) {
			var about unix.IfInfomsg
			values, err := netlink.ReadBody(m, &about)
			if err != nil {
				return list, err
			}
			found, err := netlink.AppendVLANs(nil, values)
			vlans := make([]VLAN, len(found))
			for i, v := range found {
				vlans[i] = VLAN{int(v.ID), v.PVID, v.Untagged}
			}
			return append(list, member{int(about.Index), vlans}), err
		})
	for _, m := range members {
		i := slices.IndexFunc(links, func(l Link) bool { return l.Index == m.index })
		switch {
		case i < 0:
		case links[i].Bridge != nil:
			links[i].Bridge.VLANs = append(links[i].Bridge.VLANs, m.vlans...)
		case links[i].Port != nil:
			links[i].Port.VLANs = append(links[i].Port.VLANs, m.vlans...)
		}
	}
	return err
}

func readLink(m []byte) (l Link, err error) {
	var about unix.IfInfomsg
	values, err := netlink.ReadBody(m, &about)
	if err != nil {
		return l, err
	}
	l = Link{Index: int(about.Index), Flags: names(linkFlags, about.Flags)}
	for kind, v := range netlink.Attributes(values) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = netlink.Text(v)
		case unix.IFLA_IFALIAS:
			l.Alias = netlink.Text(v)
		case unix.IFLA_PROP_LIST:
			for _, name := range netlink.Attributes(v) {
				l.AltNames = append(l.AltNames, netlink.Text(name))
			}
		case unix.IFLA_ADDRESS:
			l.MAC = net.HardwareAddr(v).String()
		case unix.IFLA_MTU:
			l.MTU = netlink.Number(v)
		case unix.IFLA_OPERSTATE:
			l.OperState = netlink.OperState(netlink.Number(v)).String()
		case unix.IFLA_MASTER:
			l.Master = netlink.Number(v)
		case unix.IFLA_LINK:
			l.Lower = netlink.Number(v)
		case unix.IFLA_LINK_NETNSID:
			id := int(int32(netlink.Number(v)))
			l.LowerNSID = &id
		case unix.IFLA_QDISC:
			l.Qdisc = netlink.Text(v)
		case unix.IFLA_XDP:
			l.XDP = netlink.Number(netlink.Find(v, unix.IFLA_XDP_ATTACHED)) != 0
		case unix.IFLA_LINKINFO:
			l.readInfo(v)
		}
	}
	if l.Lower == l.Index && l.LowerNSID == nil {
		l.Lower = 0 // a device without a lower one
	}
	return l, nil
}

// readInfo reads what depends on the kind of the link, and of its master.
func (l *Link) readInfo(info []byte) {
	l.Kind = netlink.Text(netlink.Find(info, unix.IFLA_INFO_KIND))
	data := netlink.Find(info, unix.IFLA_INFO_DATA)
	n := func(kind uint16) int { return netlink.Number(netlink.Find(data, kind)) }
	switch l.Kind {
	case "bridge":
		l.Bridge = &Bridge{
			VLANFiltering: n(unix.IFLA_BR_VLAN_FILTERING) != 0, STP: n(unix.IFLA_BR_STP_STATE) != 0,
			ForwardDelay: n(unix.IFLA_BR_FORWARD_DELAY), Call: n(unix.IFLA_BR_NF_CALL_IPTABLES) != 0,
		}
	case "vlan":
		l.VLAN = n(unix.IFLA_VLAN_ID)
	case "vrf":
		l.VRF = n(unix.IFLA_VRF_TABLE)
	case "vxlan":
		l.VNI = n(unix.IFLA_VXLAN_ID)
	case "macvlan":
		l.Mode = netlink.Mode(l.Kind, n(unix.IFLA_MACVLAN_MODE))
	case "ipvlan":
		l.Mode = netlink.Mode(l.Kind, n(unix.IFLA_IPVLAN_MODE))
	}
	if netlink.Text(netlink.Find(info, unix.IFLA_INFO_SLAVE_KIND)) == "bridge" {
		l.Port = readPort(netlink.Find(info, unix.IFLA_INFO_SLAVE_DATA))
	}
}

// portStates are the states of bridge ports (BR_STATE_…).
var portStates = []string{"disabled", "listening", "learning", "forwarding", "blocking"}

func readPort(data []byte) *Port {
	n := func(kind uint16) int { return netlink.Number(netlink.Find(data, kind)) }
	p := &Port{
		Hairpin: n(unix.IFLA_BRPORT_MODE) != 0, Isolated: n(unix.IFLA_BRPORT_ISOLATED) != 0,
		Learning: n(unix.IFLA_BRPORT_LEARNING) != 0, Flood: n(unix.IFLA_BRPORT_UNICAST_FLOOD) != 0,
	}
	if s := n(unix.IFLA_BRPORT_STATE); s < len(portStates) {
		p.State = portStates[s]
	}
	return p
}
