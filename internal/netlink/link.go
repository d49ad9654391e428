package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// ErrNoLink reports that a link does not exist.
var ErrNoLink = errors.New("not found")

// Link is the state of a link (network interface) when it was read; it does not follow later
// changes. Methods that take a Link identify it by its index, and use the other fields only as the
// previous state.
type Link struct {
	Index      int              // above 0
	Name       string           // 1 to 15 bytes
	Kind       string           // "veth", "bridge", …; "device" if rtnetlink reports none
	Alias      string           // free text, up to 255 bytes
	AltNames   []string         // alternative names, up to 127 bytes each
	MAC        net.HardwareAddr // nil if none or all zero
	MTU        int              // bytes
	Up         bool             // administrative state (IFF_UP)
	OperState  OperState        // operational state
	Group      int              // number of its group; 0 is the group of new links
	Master     int              // index of the link (bridge, bond, VRF) this is a port of, or 0
	Peer       int              // veth: index of the peer, in the peer's namespace; else 0
	PeerNSID   int              // veth: identifier of the peer's namespace, -1 if it is this one
	Parent     int              // VLAN, macvlan, ipvlan: index of the parent, in its namespace; else 0
	ParentNSID int              // identifier of the parent's namespace, -1 if it is this one
	Promisc    int              // number of users of promiscuous mode, packet captures included
	TxQLen     int              // length of the transmit queue, in packets

	// The following fields describe the hardware, independent of the link's namespace and name.
	PermMAC net.HardwareAddr // the permanent address; nil if none, and before 5.6
	Device  string           // the parent device, such as "pci/0000:3b:00.0"; "" if none, and before 5.14

	// The flags that the administrator set (IFF_PROMISC, IFF_ALLMULTI), independent of other users.
	Promiscuous  bool // receives all frames
	AllMulticast bool // receives all multicast frames

	VLANFiltering bool // bridge: whether it forwards by VLAN
	VRFTable      int  // VRF: its routing table; else 0

	Mode string // macvlan, ipvlan: see [NewLink]; else ""
	VLAN int    // VLAN: its ID; else 0

	Tun   *Tun   // tun and tap devices; else nil, and before Linux 4.18
	VXLAN *VXLAN // VXLAN; else nil
}

// OperState is the operational state of a link (RFC 2863; the kernel's networking/operstates).
type OperState uint8

// The operational states, numbered as IF_OPER_*.
const (
	OperUnknown OperState = iota
	OperNotPresent
	OperDown
	OperLowerLayerDown
	OperTesting
	OperDormant
	OperUp
)

// String returns the name as in /sys/class/net/*/operstate.
func (s OperState) String() string {
	names := [...]string{"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant",
		"up"}
	if int(s) >= len(names) {
		return fmt.Sprintf("operstate %d", uint8(s))
	}
	return names[s]
}

// ByName finds a link by its name or an alternative name; only alternative names may be longer than
// 15 bytes. The error wraps [ErrNoLink] if there is none.
func (c Links) ByName(name string) (Link, error) {
	kind := uint16(unix.IFLA_IFNAME)
	if len(name) >= unix.IFNAMSIZ {
		kind = unix.IFLA_ALT_IFNAME
	}
	l, err := c.conn.link(0, String(kind, name))
	if err != nil {
		return Link{}, linkError(fmt.Sprintf("link %q", name), err)
	}
	return l, nil
}

// ByIndex finds a link by its index. The error wraps [ErrNoLink] if there is none.
func (c Links) ByIndex(index int) (Link, error) {
	l, err := c.conn.link(index)
	if err != nil {
		return Link{}, linkError(fmt.Sprintf("link with index %d", index), err)
	}
	return l, nil
}

func (c *Conn) link(index int, attributes ...Attribute) (l Link, err error) {
	err = c.ask(unix.RTM_GETLINK, 0, header(index), append(attributes, brief()),
		func(m []byte) (err error) {
			l, err = readLink(m)
			return err
		})
	return l, err
}

// All lists all links.
func (c Links) All() ([]Link, error) {
	links, err := c.conn.links()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return links, nil
}

// In lists the links of the namespace with the identifier nsid (Linux 4.20 or newer). Namespace
// identifiers in the links are valid in the namespace of the connection, not in their own.
func (c Links) In(nsid int) ([]Link, error) {
	return c.conn.links(Uint32(unix.IFLA_TARGET_NETNSID, uint32(nsid)))
}

func (c *Conn) links(attributes ...Attribute) ([]Link, error) {
	read := func(list []Link, m []byte) ([]Link, error) {
		l, err := readLink(m)
		return append(list, l), err
	}
	return list(c, unix.RTM_GETLINK, header(0), append(attributes, brief()), read)
}

// SkipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h.
const SkipStats = 1 << 3

// brief returns the attribute that asks the kernel to omit counters.
func brief() Attribute {
	return Uint32(unix.IFLA_EXT_MASK, SkipStats)
}

func header(index int) unix.IfInfomsg { return unix.IfInfomsg{Index: int32(index)} }

// set changes attributes of a link.
func (c *Conn) set(l Link, attributes ...Attribute) error {
	return c.change(unix.RTM_NEWLINK, 0, header(l.Index), attributes...)
}

// setFlag changes a flag of a link (IFF_…).
func (c *Conn) setFlag(l Link, flag uint32, on bool) error {
	m := header(l.Index)
	m.Change = flag
	if on {
		m.Flags = flag
	}
	return c.change(unix.RTM_NEWLINK, 0, m)
}

// SetUp sets the administrative state.
func (c Links) SetUp(l Link, up bool) error { return c.conn.setFlag(l, unix.IFF_UP, up) }

// SetAlias sets the alias; an empty one removes it.
func (c Links) SetAlias(l Link, alias string) error {
	return c.conn.set(l, Bytes(unix.IFLA_IFALIAS, []byte(alias)))
}

// SetMAC sets the MAC address. The kernel then treats it as set by the administrator.
func (c Links) SetMAC(l Link, mac net.HardwareAddr) error {
	return c.conn.set(l, Bytes(unix.IFLA_ADDRESS, mac))
}

// SetPromisc sets or clears the administrator's promiscuous flag and reports whether that changed
// it.
func (c Links) SetPromisc(l Link, on bool) (changed bool, err error) {
	now, err := c.ByIndex(l.Index)
	if err != nil || now.Promiscuous == on {
		return false, err
	}
	return true, c.conn.setFlag(l, unix.IFF_PROMISC, on)
}

// SetAllMulticast sets or clears the administrator's flag for all multicast.
func (c Links) SetAllMulticast(l Link, on bool) error {
	return c.conn.setFlag(l, unix.IFF_ALLMULTI, on)
}

// SetMTU sets the MTU, in bytes.
func (c Links) SetMTU(l Link, mtu int) error {
	return c.conn.set(l, Uint32(unix.IFLA_MTU, uint32(mtu)))
}

// SetTxQLen sets the length of the transmit queue, in packets.
func (c Links) SetTxQLen(l Link, packets int) error {
	return c.conn.set(l, Uint32(unix.IFLA_TXQLEN, uint32(packets)))
}

// SetMaster makes l a port of the link with the index master; 0 removes it from its master.
func (c Links) SetMaster(l Link, master int) error {
	return c.conn.set(l, Uint32(unix.IFLA_MASTER, uint32(master)))
}

// AddAltName gives a link an alternative name.
func (c Links) AddAltName(l Link, name string) error {
	return c.conn.change(unix.RTM_NEWLINKPROP, unix.NLM_F_CREATE|unix.NLM_F_APPEND|unix.NLM_F_EXCL,
		header(l.Index), altNames(name))
}

// RemoveAltName removes an alternative name of a link.
func (c Links) RemoveAltName(l Link, name string) error {
	return c.conn.change(unix.RTM_DELLINKPROP, 0, header(l.Index), altNames(name))
}

func altNames(name string) Attribute {
	return Nest(unix.IFLA_PROP_LIST|unix.NLA_F_NESTED, String(unix.IFLA_ALT_IFNAME, name))
}

// Rename renames a link. The error is EEXIST if the name is in use, EBUSY if the link is up
// (before Linux 6.2).
func (c Links) Rename(l Link, name string) error {
	return c.conn.set(l, String(unix.IFLA_IFNAME, name))
}

// Move moves a link to another namespace and renames it, in one request. index is its index there;
// with 0 the link keeps its own index or, if that is in use, gets another (before 5.13: always
// another). The kernel sets the link down and removes its addresses and routes.
//
// The link arrives under its old name and is then renamed; if a link there has the old name, it
// arrives under the new one. If only the new name is in use, the error is EEXIST although the link
// has moved. If both names are in use, the link has not moved. If the index is in use, it has not
// moved either, and the error is EBUSY.
func (c Links) Move(l Link, to *netns.NS, name string, index int) error {
	attributes := []Attribute{Uint32(unix.IFLA_NET_NS_FD, uint32(to.Fd())),
		String(unix.IFLA_IFNAME, name)}
	if index != 0 {
		attributes = append(attributes, Uint32(unix.IFLA_NEW_IFINDEX, uint32(index)))
	}
	return c.conn.set(l, attributes...)
}

// Delete deletes a link and reports whether it existed.
func (c Links) Delete(l Link) (existed bool, err error) {
	return deleted(c.conn.change(unix.RTM_DELLINK, 0, header(l.Index)))
}

// DeleteAll deletes links, in one step of the kernel if it can (Linux 4.1 or newer), which then
// waits once for all of them. It needs a group number that no link has. It returns an error for
// each link, nil also if the link did not exist.
func (c Links) DeleteAll(links []Link, group uint32) []error {
	errs := make([]error, len(links))
	together := len(links) > 1
	for i, l := range links {
		if together {
			errs[i] = c.conn.change(unix.RTM_SETLINK, 0, header(l.Index),
				Uint32(unix.IFLA_GROUP, group))
		}
	}
	if together {
		err := c.conn.change(unix.RTM_DELLINK, 0, header(0), Uint32(unix.IFLA_GROUP, group))
		together = unless(err, unix.ENODEV) == nil
	}
	for i, l := range links {
		if !together || errs[i] != nil {
			_, errs[i] = c.Delete(l)
		}
	}
	return errs
}

// readLink decodes struct ifinfomsg and its attributes.
func readLink(m []byte) (Link, error) {
	var about unix.IfInfomsg
	attributes, err := ReadBody(m, &about)
	if err != nil {
		return Link{}, err
	}
	l := Link{
		Index: int(about.Index), Kind: noKind, PeerNSID: -1,
		Up: about.Flags&unix.IFF_UP != 0, Promiscuous: about.Flags&unix.IFF_PROMISC != 0,
		AllMulticast: about.Flags&unix.IFF_ALLMULTI != 0,
	}
	var info []byte
	var bus, device string
	parent, parentNSID := 0, -1
	for kind, v := range Attributes(attributes) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = Text(v)
		case unix.IFLA_IFALIAS:
			l.Alias = Text(v)
		case unix.IFLA_PROP_LIST:
			for kind, name := range Attributes(v) {
				if kind == unix.IFLA_ALT_IFNAME {
					l.AltNames = append(l.AltNames, Text(name))
				}
			}
		case unix.IFLA_ADDRESS:
			if slices.ContainsFunc(v, func(b byte) bool { return b != 0 }) {
				l.MAC = slices.Clone(v)
			}
		case unix.IFLA_PERM_ADDRESS:
			l.PermMAC = slices.Clone(v)
		case unix.IFLA_PARENT_DEV_BUS_NAME:
			bus = Text(v)
		case unix.IFLA_PARENT_DEV_NAME:
			device = Text(v)
		case unix.IFLA_MTU:
			l.MTU = number(v)
		case unix.IFLA_OPERSTATE:
			l.OperState = OperState(number(v))
		case unix.IFLA_GROUP:
			l.Group = number(v)
		case unix.IFLA_MASTER:
			l.Master = number(v)
		case unix.IFLA_LINK:
			parent = number(v)
		case unix.IFLA_LINK_NETNSID:
			parentNSID = int(int32(number(v)))
		case unix.IFLA_PROMISCUITY:
			l.Promisc = number(v)
		case unix.IFLA_TXQLEN:
			l.TxQLen = number(v)
		case unix.IFLA_LINKINFO:
			info = v
		}
	}
	for kind, v := range Attributes(info) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			l.Kind = Text(v)
		case unix.IFLA_INFO_DATA:
			l.readKind(v)
		}
	}
	if device != "" {
		l.Device = bus + "/" + device
	}
	if l.Kind == "veth" {
		l.Peer, l.PeerNSID = parent, parentNSID
	} else if l.Kind != noKind {
		l.Parent, l.ParentNSID = parent, parentNSID
	}
	return l, nil
}

// noKind is the kind of links for which rtnetlink reports none.
const noKind = "device"

// number decodes an unsigned number of 1, 2 or 4 bytes.
func number(v []byte) int {
	switch len(v) {
	case 1:
		return int(v[0])
	case 2:
		return int(binary.NativeEndian.Uint16(v))
	case 4:
		return int(binary.NativeEndian.Uint32(v))
	}
	return 0
}

func linkError(what string, err error) error {
	// ERANGE: the name is longer than any alternative name can be.
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ERANGE) {
		err = ErrNoLink
	}
	return fmt.Errorf("%s: %w", what, err)
}
