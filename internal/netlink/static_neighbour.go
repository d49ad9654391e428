package netlink

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Neighbour is a permanent entry of a link. In a neighbour table it has the MAC address of an IP
// address. In the forwarding database of a VXLAN device it has the address of the node to which
// frames for the MAC address go.
type Neighbour struct {
	Link int // its index
	Addr netip.Addr
	MAC  [6]byte

	// Other is set in an entry that was read and that this type cannot describe: it has another
	// state, or an attribute such as a port.
	Other bool
}

func (n Neighbour) String() string {
	return fmt.Sprintf("%s %s", n.Addr, net.HardwareAddr(n.MAC[:]))
}

// SetNeighbour returns the change that adds or replaces a permanent neighbour entry.
func SetNeighbour(n Neighbour) Change {
	const flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	return change("set neighbour "+n.String(), unix.RTM_NEWNEIGH, flags,
		n.body(familyOf(n.Addr), 0))
}

// DeleteNeighbour returns the change that deletes a neighbour entry.
func DeleteNeighbour(n Neighbour) Change {
	about := unix.NdMsg{Family: familyOf(n.Addr), Ifindex: int32(n.Link)}
	return change("delete neighbour "+n.String(), unix.RTM_DELNEIGH, 0,
		Body(about, Bytes(unix.NDA_DST, n.Addr.AsSlice())))
}

// SetForwarding returns the change that adds or replaces an entry in the forwarding database of a
// VXLAN device.
func SetForwarding(n Neighbour) Change {
	const flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	return change("set fdb entry "+n.String(), unix.RTM_NEWNEIGH, flags,
		n.body(unix.AF_BRIDGE, unix.NTF_SELF))
}

// DeleteForwarding returns the change that deletes all entries of a MAC address in the forwarding
// database of a VXLAN device.
func DeleteForwarding(n Neighbour) Change {
	text := "delete fdb entry " + n.String()
	n.Addr = netip.Addr{}
	return change(text, unix.RTM_DELNEIGH, 0, n.body(unix.AF_BRIDGE, unix.NTF_SELF))
}

// Proxy is an address for which the host answers on a link, because it forwards packets to it.
// Proxies have [NodeProtocol] (Linux 5.0 or newer).
type Proxy struct {
	Link int // its index
	Addr netip.Addr
}

// SetProxy returns the change that adds a proxy entry.
func SetProxy(p Proxy) Change {
	return change(fmt.Sprintf("set proxy %s", p.Addr), unix.RTM_NEWNEIGH, unix.NLM_F_CREATE,
		Body(p.about(), Bytes(unix.NDA_DST, p.Addr.AsSlice()), Uint8(ndaProtocol, NodeProtocol)))
}

// DeleteProxy returns the change that deletes a proxy entry.
func DeleteProxy(p Proxy) Change {
	return change(fmt.Sprintf("delete proxy %s", p.Addr), unix.RTM_DELNEIGH, 0,
		Body(p.about(), Bytes(unix.NDA_DST, p.Addr.AsSlice())))
}

func (p Proxy) about() unix.NdMsg {
	return unix.NdMsg{Family: familyOf(p.Addr), Ifindex: int32(p.Link), Flags: ntfProxy}
}

// Constants of linux/neighbour.h.
const (
	ntfProxy    = 1 << 3 // NTF_PROXY
	ndaProtocol = 12     // NDA_PROTOCOL
)

// Proxies lists the proxy entries with [NodeProtocol], of all links and in both families.
func (c Addrs) Proxies() (all []Proxy, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		found, err := list(c.conn, unix.RTM_GETNEIGH, unix.NdMsg{Family: family, Flags: ntfProxy}, nil,
			func(list []Proxy, b []byte) ([]Proxy, error) {
				var entry unix.NdMsg
				attributes, err := ReadBody(b, &entry)
				a, ok := netip.AddrFromSlice(Find(attributes, unix.NDA_DST))
				if err != nil || !ok || entry.Family != family || entry.Flags&ntfProxy == 0 ||
					number(Find(attributes, ndaProtocol)) != NodeProtocol {
					return list, err
				}
				return append(list, Proxy{int(entry.Ifindex), a}), nil
			})
		if err := unless(err, unix.EOPNOTSUPP); err != nil {
			return nil, fmt.Errorf("list proxies: %w", err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func (n Neighbour) body(family, flags uint8) []byte {
	about := unix.NdMsg{Family: family, Ifindex: int32(n.Link), Flags: flags,
		State: unix.NUD_PERMANENT}
	attributes := []Attribute{Bytes(unix.NDA_LLADDR, n.MAC[:])}
	if n.Addr.IsValid() {
		attributes = append(attributes, Bytes(unix.NDA_DST, n.Addr.AsSlice()))
	}
	return Body(about, attributes...)
}

// Neighbours lists the neighbour entries of a link, in both families, except entries that the
// kernel makes for multicast and broadcast addresses.
func (c Addrs) Neighbours(l Link) (all []Neighbour, err error) {
	selection := []Attribute{Uint32(unix.NDA_IFINDEX, uint32(l.Index))}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		found, err := c.conn.neighbours(unix.NdMsg{Family: family}, selection, l)
		if err := unless(err, unix.EOPNOTSUPP); err != nil {
			return nil, fmt.Errorf("list neighbours of link %q: %w", l.Name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Forwarding lists the entries in the forwarding database of a VXLAN device. An entry without an
// address, or one that was learned, is listed as Other.
func (c Addrs) Forwarding(l Link) ([]Neighbour, error) {
	about := unix.NdMsg{Family: unix.AF_BRIDGE, Ifindex: int32(l.Index)}
	all, err := c.conn.neighbours(about, nil, l)
	if err != nil {
		return nil, fmt.Errorf("list fdb entries of link %q: %w", l.Name, err)
	}
	return all, nil
}

func (c *Conn) neighbours(about unix.NdMsg, selection []Attribute, l Link) ([]Neighbour, error) {
	return list(c, unix.RTM_GETNEIGH, about, selection,
		func(list []Neighbour, b []byte) ([]Neighbour, error) {
			var entry unix.NdMsg
			attributes, err := ReadBody(b, &entry)
			if err != nil || int(entry.Ifindex) != l.Index || entry.Family != about.Family ||
				entry.State == unix.NUD_NOARP {
				return list, err
			}
			return append(list, readNeighbour(entry, attributes)), nil
		})
}

func readNeighbour(entry unix.NdMsg, attributes []byte) Neighbour {
	n := Neighbour{Link: int(entry.Ifindex), Other: entry.State != unix.NUD_PERMANENT}
	for kind, v := range Attributes(attributes) {
		switch kind {
		case unix.NDA_DST:
			n.Addr, _ = netip.AddrFromSlice(v)
		case unix.NDA_LLADDR:
			copy(n.MAC[:], v)
			n.Other = n.Other || len(v) != len(n.MAC)
		case unix.NDA_PORT, unix.NDA_VNI, unix.NDA_IFINDEX:
			n.Other = true
		}
	}
	n.Other = n.Other || !n.Addr.IsValid() || bytes.Equal(n.MAC[:], make([]byte, len(n.MAC)))
	return n
}
