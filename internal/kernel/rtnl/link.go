package rtnl

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoLink says that there is no such link.
var ErrNoLink = errors.New("not found")

// Link is what was read of a link (network interface); it does not follow later changes. Methods that take one use its
// index, and the other fields only as the state before.
type Link struct {
	Index     int              // above 0
	Name      string           // 1 to 15 bytes
	Kind      string           // of rtnetlink: "veth", "bridge", …; "device" for one without (hardware, loopback)
	Alias     string           // free text, up to 255 bytes
	MAC       net.HardwareAddr // nil if none or all zero
	MTU       int              // bytes
	Up        bool             // administrative state (IFF_UP)
	OperState OperState        // operational state
	Master    int              // index of the link (bridge, bond, VRF) this is a port of, or 0
	Peer      int              // veth: index of the other end, in its namespace; else 0
	PeerNSID  int              // veth: identifier of the other end's namespace in this one, -1 if it is this one
	Promisc   int              // how many demand promiscuous mode, packet captures included
	TxQLen    int              // packets that wait for transmission at most, for queueing disciplines that go by it

	// What the administrator demands (IFF_PROMISC, IFF_ALLMULTI), whatever others do.
	Promiscuous  bool // receives everything
	AllMulticast bool // receives all multicast

	VLANFiltering bool // bridge: whether it forwards by VLAN
	VRFTable      int  // VRF: its routing table; else 0
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
	names := [...]string{"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"}
	if int(s) >= len(names) {
		return fmt.Sprintf("operstate %d", uint8(s))
	}
	return names[s]
}

// Link finds a link by its name or by an alternative name; only alternative names may be longer than 15 bytes. The error
// wraps [ErrNoLink] if there is none.
func (c *Conn) Link(name string) (Link, error) {
	l, err := c.h.LinkByName(name)
	if err != nil {
		return Link{}, linkError(fmt.Sprintf("link %q", name), err)
	}
	return newLink(l), nil
}

// LinkByIndex finds a link by its index. The error wraps [ErrNoLink] if there is none.
func (c *Conn) LinkByIndex(index int) (Link, error) {
	l, err := c.h.LinkByIndex(index)
	if err != nil {
		return Link{}, linkError(fmt.Sprintf("link with index %d", index), err)
	}
	return newLink(l), nil
}

// Links lists all links.
func (c *Conn) Links() ([]Link, error) {
	ls, err := c.h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	links := make([]Link, len(ls))
	for i, l := range ls {
		links[i] = newLink(l)
	}
	return links, nil
}

// SetUp sets the administrative state.
func (c *Conn) SetUp(l Link, up bool) error {
	if up {
		return c.h.LinkSetUp(ref(l))
	}
	return c.h.LinkSetDown(ref(l))
}

// SetAlias sets the alias; an empty one removes it.
func (c *Conn) SetAlias(l Link, alias string) error { return c.h.LinkSetAlias(ref(l), alias) }

// SetMAC sets the hardware address, which from then on counts as chosen by the administrator.
func (c *Conn) SetMAC(l Link, mac net.HardwareAddr) error {
	return c.h.LinkSetHardwareAddr(ref(l), mac)
}

// SetPromisc sets the administrator's demand for promiscuous mode and reports whether it was different before.
func (c *Conn) SetPromisc(l Link, on bool) (changed bool, err error) {
	now, err := c.h.LinkByIndex(l.Index)
	if err != nil {
		return false, linkError(fmt.Sprintf("link %q", l.Name), err)
	}
	if was := now.Attrs().RawFlags&unix.IFF_PROMISC != 0; was == on {
		return false, nil
	}
	if on {
		return true, c.h.SetPromiscOn(ref(l))
	}
	return true, c.h.SetPromiscOff(ref(l))
}

// SetAllMulticast sets the administrator's demand for all multicast.
func (c *Conn) SetAllMulticast(l Link, on bool) error {
	if on {
		return c.h.LinkSetAllmulticastOn(ref(l))
	}
	return c.h.LinkSetAllmulticastOff(ref(l))
}

// SetMTU sets the MTU, in bytes.
func (c *Conn) SetMTU(l Link, mtu int) error { return c.h.LinkSetMTU(ref(l), mtu) }

// SetTxQLen sets the length of the transmit queue, in packets.
func (c *Conn) SetTxQLen(l Link, packets int) error { return c.h.LinkSetTxQLen(ref(l), packets) }

// SetMaster makes l a port of the link with the index master, or of none if that is 0.
func (c *Conn) SetMaster(l Link, master int) error {
	return c.h.LinkSetMasterByIndex(ref(l), master)
}

// Delete deletes a link and reports whether it was there.
func (c *Conn) Delete(l Link) (existed bool, err error) {
	err = c.h.LinkDel(ref(l))
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

// ref is how the library is told which link is meant: it looks at nothing but the index.
func ref(l Link) netlink.Link { return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: l.Index}} }

func newLink(l netlink.Link) Link {
	a := l.Attrs()
	link := Link{
		Index:     a.Index,
		Name:      a.Name,
		Kind:      l.Type(),
		Alias:     a.Alias,
		MAC:       a.HardwareAddr,
		MTU:       a.MTU,
		Up:        a.RawFlags&unix.IFF_UP != 0,
		OperState: OperState(a.OperState),
		Master:    a.MasterIndex,
		PeerNSID:  -1,
		Promisc:   a.Promisc,
		TxQLen:    a.TxQLen,

		Promiscuous:  a.RawFlags&unix.IFF_PROMISC != 0,
		AllMulticast: a.RawFlags&unix.IFF_ALLMULTI != 0,
	}
	if link.Kind == "veth" {
		link.Peer, link.PeerNSID = a.ParentIndex, a.NetNsID
	}
	if br, ok := l.(*netlink.Bridge); ok && br.VlanFiltering != nil {
		link.VLANFiltering = *br.VlanFiltering
	}
	if vrf, ok := l.(*netlink.Vrf); ok {
		link.VRFTable = int(vrf.Table)
	}
	return link
}

func linkError(what string, err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
		err = ErrNoLink
	}
	return fmt.Errorf("%s: %w", what, err)
}
