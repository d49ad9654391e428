package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// link is a link of a source.
type link struct {
	index  int
	name   string
	kind   string // of the copy: [standIn] for devices that cannot be copied
	flags  uint32 // IFF_…
	values []byte // attributes
	data   []byte // attributes of the kind
	lower  int    // index of the peer or parent, 0: none
	at     int    // index of the namespace of lower in maker.spaces, -1: it has no copy
	master int
	port   []byte // attributes as a port of a bridge

	followsPorts bool // a bridge without a MAC address of its own
}

// followPorts finds the bridges that take the lowest MAC address of their ports. The kernel shows
// only in sysfs whether a program has set the address, and only for the namespace for which it is
// mounted.
func (s *space) followPorts() {
	const set = "3" // NET_ADDR_SET
	for _, l := range s.links {
		if l.kind != "bridge" {
			continue
		}
		if kind, ok := s.assigned(l); ok {
			l.followsPorts = kind != set
			continue
		}
		var lowest []byte
		for _, p := range s.links {
			mac := netlink.Find(p.values, unix.IFLA_ADDRESS)
			if p.master == l.index && (lowest == nil || bytes.Compare(mac, lowest) < 0) {
				lowest = mac
			}
		}
		mac := netlink.Find(l.values, unix.IFLA_ADDRESS)
		l.followsPorts = lowest != nil && bytes.Equal(mac, lowest) || len(bytes.Trim(mac, "\x00")) == 0
	}
}

// assigned reads how the address of a link was assigned.
func (s *space) assigned(l *link) (kind string, ok bool) {
	dir := filepath.Join("/sys/class/net", l.name)
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // sysfs may be of another namespace
		return strings.TrimSpace(string(text))
	}
	mac := net.HardwareAddr(netlink.Find(l.values, unix.IFLA_ADDRESS)).String()
	if read("ifindex") != strconv.Itoa(l.index) || read("address") != mac {
		return "", false
	}
	kind = read("addr_assign_type")
	return kind, kind != ""
}

// key names a link.
type key struct{ space, index int }

// standIn replaces kinds that cannot be copied: a veth device with its peer in the rest.
const standIn = "veth"

// copied are the attributes of each kind that a copy gets.
var copied = map[string][]uint16{
	"dummy": {}, "ifb": {}, "veth": {}, "tun": {},
	"bridge": {
		unix.IFLA_BR_FORWARD_DELAY, unix.IFLA_BR_HELLO_TIME, unix.IFLA_BR_MAX_AGE,
		unix.IFLA_BR_AGEING_TIME, unix.IFLA_BR_STP_STATE, unix.IFLA_BR_PRIORITY,
		unix.IFLA_BR_VLAN_FILTERING, unix.IFLA_BR_VLAN_PROTOCOL, unix.IFLA_BR_VLAN_DEFAULT_PVID,
		unix.IFLA_BR_GROUP_FWD_MASK, unix.IFLA_BR_MCAST_SNOOPING, unix.IFLA_BR_NF_CALL_IPTABLES,
		unix.IFLA_BR_NF_CALL_IP6TABLES, unix.IFLA_BR_NF_CALL_ARPTABLES,
	},
	"vlan": {unix.IFLA_VLAN_ID, unix.IFLA_VLAN_FLAGS, unix.IFLA_VLAN_EGRESS_QOS,
		unix.IFLA_VLAN_INGRESS_QOS, unix.IFLA_VLAN_PROTOCOL},
	"macvlan": {unix.IFLA_MACVLAN_MODE, unix.IFLA_MACVLAN_FLAGS, unix.IFLA_MACVLAN_BC_QUEUE_LEN},
	"ipvlan":  {unix.IFLA_IPVLAN_MODE, unix.IFLA_IPVLAN_FLAGS},
	"vrf":     {unix.IFLA_VRF_TABLE},
	"vxlan": {unix.IFLA_VXLAN_ID, unix.IFLA_VXLAN_LINK, unix.IFLA_VXLAN_LOCAL,
		unix.IFLA_VXLAN_LOCAL6, unix.IFLA_VXLAN_GROUP, unix.IFLA_VXLAN_GROUP6, unix.IFLA_VXLAN_TTL,
		unix.IFLA_VXLAN_TOS, unix.IFLA_VXLAN_LEARNING, unix.IFLA_VXLAN_AGEING, unix.IFLA_VXLAN_PORT,
		unix.IFLA_VXLAN_PROXY, unix.IFLA_VXLAN_GBP, unix.IFLA_VXLAN_COLLECT_METADATA},
}

// portCopied are the attributes of a bridge port that a copy gets.
var portCopied = []uint16{
	unix.IFLA_BRPORT_PRIORITY, unix.IFLA_BRPORT_MODE, unix.IFLA_BRPORT_GUARD,
	unix.IFLA_BRPORT_PROTECT, unix.IFLA_BRPORT_FAST_LEAVE, unix.IFLA_BRPORT_LEARNING,
	unix.IFLA_BRPORT_UNICAST_FLOOD, unix.IFLA_BRPORT_PROXYARP, unix.IFLA_BRPORT_MCAST_FLOOD,
	unix.IFLA_BRPORT_BCAST_FLOOD, unix.IFLA_BRPORT_NEIGH_SUPPRESS, unix.IFLA_BRPORT_ISOLATED,
}

// Constants of linux/rtnetlink.h and linux/veth.h that package unix lacks.
const (
	skipStats    = 1 << 3 // RTEXT_FILTER_SKIP_STATS
	vethInfoPeer = 1      // VETH_INFO_PEER
	vlanFlags    = 0x1f   // all of enum vlan_flags
)

// filter returns the attributes of some types, as the kernel listed them.
func filter(values []byte, kinds []uint16) (list []netlink.Attribute) {
	for kind, v := range netlink.Attributes(values) {
		if slices.Contains(kinds, kind) {
			list = append(list, netlink.Bytes(kind, v))
		}
	}
	return list
}

func (s *space) readLinks(at int) error {
	messages, err := dump(s.from, unix.RTM_GETLINK, unix.IfInfomsg{},
		netlink.Uint32(unix.IFLA_EXT_MASK, skipStats))
	if err != nil {
		return err
	}
	for _, m := range messages {
		var about unix.IfInfomsg
		values, err := netlink.ReadBody(m, &about)
		if err != nil {
			return err
		}
		n := func(kind uint16) int { return netlink.Number(netlink.Find(values, kind)) }
		info := netlink.Find(values, unix.IFLA_LINKINFO)
		l := &link{
			index: int(about.Index), name: netlink.Text(netlink.Find(values, unix.IFLA_IFNAME)),
			kind:  netlink.Text(netlink.Find(info, unix.IFLA_INFO_KIND)),
			flags: about.Flags, values: values, data: netlink.Find(info, unix.IFLA_INFO_DATA),
			lower: n(unix.IFLA_LINK), at: at, master: n(unix.IFLA_MASTER),
		}
		if netlink.Text(netlink.Find(info, unix.IFLA_INFO_SLAVE_KIND)) == "bridge" {
			l.port = netlink.Find(info, unix.IFLA_INFO_SLAVE_DATA)
		}
		if netlink.Find(values, unix.IFLA_LINK_NETNSID) != nil {
			l.at = -1 // until it is identified
		}
		if _, ok := copied[l.kind]; !ok {
			l.stand()
		}
		s.links = append(s.links, l)
	}
	s.followPorts()
	return nil
}

// stand makes the copy a stand-in.
func (l *link) stand() { l.kind, l.data, l.lower, l.at = standIn, nil, 0, -1 }

func (s *space) link(index int) *link {
	i := slices.IndexFunc(s.links, func(l *link) bool { return l.index == index })
	if i < 0 {
		return nil
	}
	return s.links[i]
}

// makeLinks creates the links: each one after its parent.
func (m *maker) makeLinks() error {
	for progress := true; progress; {
		progress = false
		for i, s := range m.spaces {
			for _, l := range s.links {
				k := key{i, l.index}
				if m.created[k] || !m.ready(l) {
					continue
				}
				if err := m.make(i, s, l); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				m.created[k], progress = true, true
			}
		}
	}
	for i, s := range m.spaces {
		for _, l := range s.links {
			if m.created[key{i, l.index}] {
				continue
			}
			m.note("link %s has no parent in the copy, where it is a veth device", l.name)
			l.stand()
			if err := m.make(i, s, l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

// ready reports whether the parent of a link exists. A veth device needs none.
func (m *maker) ready(l *link) bool {
	switch l.kind {
	case "vlan", "macvlan", "ipvlan":
		return l.at >= 0 && m.created[key{l.at, l.lower}]
	}
	return true
}

// make creates a link and, for veth, its peer.
func (m *maker) make(at int, s *space, l *link) error {
	switch {
	case l.flags&unix.IFF_LOOPBACK != 0:
		return s.change(l, l.common()...)
	case l.kind == "tun":
		return m.makeTap(at, s, l)
	case l.kind == "veth":
		return m.makeVeth(at, s, l)
	case l.lower != 0 && l.at != at && l.at >= 0:
		return m.makeBelow(s, l)
	}
	if err := s.create(l, l.index); err != nil {
		m.note("link %s of type %s: %v; it is a veth device in the copy", l.name, l.kind, err)
		l.stand()
		return m.makeVeth(at, s, l)
	}
	return nil
}

// common returns the attributes that links of every kind have.
func (l *link) common() []netlink.Attribute {
	kinds := []uint16{unix.IFLA_MTU, unix.IFLA_TXQLEN}
	if l.kind != "ipvlan" && l.flags&unix.IFF_LOOPBACK == 0 {
		const ethernet = 6 // bytes; the copies of tunnels have an Ethernet address
		if len(netlink.Find(l.values, unix.IFLA_ADDRESS)) == ethernet && !l.followsPorts {
			kinds = append(kinds, unix.IFLA_ADDRESS)
		}
	}
	return filter(l.values, kinds)
}

// info returns IFLA_LINKINFO.
func (l *link) info(more ...netlink.Attribute) netlink.Attribute {
	data := filter(l.data, copied[l.kind])
	data = slices.DeleteFunc(data, func(a netlink.Attribute) bool {
		// The kernel lists the attribute, but cannot set it, without VLAN filtering.
		return l.kind == "bridge" && binary.NativeEndian.Uint16(a[2:]) == unix.IFLA_BR_VLAN_FILTERING && a[4] == 0
	})
	for _, a := range data {
		if l.kind == "vlan" && binary.NativeEndian.Uint16(a[2:]) == unix.IFLA_VLAN_FLAGS {
			binary.NativeEndian.PutUint32(a[8:], vlanFlags) // the kernel lists an invalid mask
		}
	}
	return netlink.Nest(unix.IFLA_LINKINFO, netlink.String(unix.IFLA_INFO_KIND, l.kind),
		netlink.Nest(unix.IFLA_INFO_DATA, append(data, more...)...))
}

// create creates a link in the namespace; index 0 lets the kernel choose one.
func (s *space) create(l *link, index int, more ...netlink.Attribute) error {
	attributes := append(l.common(), netlink.String(unix.IFLA_IFNAME, l.name), l.info(more...))
	if l.lower != 0 && l.kind != "veth" {
		attributes = append(attributes, netlink.Uint32(unix.IFLA_LINK, uint32(s.index(l.lower))))
	}
	return request(s.to, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		unix.IfInfomsg{Index: int32(index)}, attributes...)
}

// request makes one change.
func request(c *netlink.Conn, kind uint16, flags int, about any, attributes ...netlink.Attribute) error {
	errs, err := c.Try([]netlink.Change{netlink.RawChange("", kind, flags, netlink.Body(about, attributes...))})
	return errors.Join(append(errs, err)...)
}

// change changes a link of the copy.
func (s *space) change(l *link, attributes ...netlink.Attribute) error {
	return request(s.to, unix.RTM_NEWLINK, 0, unix.IfInfomsg{Index: int32(s.index(l.index))}, attributes...)
}

// makeVeth creates a veth pair. A peer without a copy gets another name in the rest.
func (m *maker) makeVeth(at int, s *space, l *link) error {
	about := unix.IfInfomsg{}
	name := fmt.Sprintf("p%d-%d", at, l.index)
	to := m.Rest
	var attributes []netlink.Attribute
	if l.at >= 0 {
		if peer := m.spaces[l.at].link(l.lower); peer != nil && peer.kind == "veth" {
			m.created[key{l.at, peer.index}] = true
			name, to, about.Index = peer.name, m.spaces[l.at].copy, int32(peer.index)
			attributes = peer.common()
		}
	}
	attributes = append(attributes, netlink.String(unix.IFLA_IFNAME, name),
		netlink.Uint32(unix.IFLA_NET_NS_FD, uint32(to.Fd())))
	if err := s.create(l, l.index, netlink.Struct(vethInfoPeer, about, attributes...)); err != nil {
		return err
	}
	if to != m.Rest || l.flags&unix.IFF_LOWER_UP == 0 {
		return nil
	}
	return request(m.rest, unix.RTM_NEWLINK, 0, unix.IfInfomsg{Flags: unix.IFF_UP, Change: unix.IFF_UP},
		netlink.String(unix.IFLA_IFNAME, name))
}

// makeBelow creates a link in the namespace of its parent, and then moves it.
func (m *maker) makeBelow(s *space, l *link) error {
	parent := m.spaces[l.at]
	temporary := *l
	temporary.name = "tenon-copy"
	if err := parent.create(&temporary, 0); err != nil {
		return err
	}
	return s.moveHere(parent.to, l, temporary.name)
}

// moveHere moves a link from another namespace, if possible with its index.
func (s *space) moveHere(from *netlink.Conn, l *link, name string) error {
	made, err := from.Links.ByName(name)
	if err != nil {
		return err
	}
	if err := from.Links.Move(made, s.copy, l.name, l.index); err == nil {
		if now, err := s.to.Links.ByName(l.name); err == nil && now.Index != l.index {
			s.indexes[l.index] = now.Index // before Linux 5.13
		}
		return nil
	}
	err = from.Links.Move(made, s.copy, l.name, 0)
	if now, wrong := s.to.Links.ByName(l.name); wrong == nil && err == nil {
		s.indexes[l.index] = now.Index
	}
	return err
}

// makeTap creates a tap device in the rest, because only a move sets its index.
func (m *maker) makeTap(at int, s *space, l *link) error {
	source, err := s.from.Links.ByIndex(l.index)
	if err != nil {
		return err
	}
	t := netlink.Tap{Name: "tenon-copy"}
	if tun := source.Tun; tun != nil {
		t.MultiQueue, t.VNetHdr, t.Owner, t.Group = tun.MultiQueue, tun.VNetHdr, tun.Owner, tun.Group
	}
	if err := m.Rest.Run(t.Create); err != nil {
		m.note("link %s: %v; it is a veth device in the copy", l.name, err)
		l.stand()
		return m.makeVeth(at, s, l)
	}
	if err := s.moveHere(m.rest, l, t.Name); err != nil {
		return err
	}
	return s.change(l, l.common()...)
}

// raise sets masters, ports, names and the administrative states. A link without carrier stays
// without.
func (m *maker) raise(s *space) error {
	var changes []netlink.Change
	var about []string
	add := func(l *link, header unix.IfInfomsg, attributes ...netlink.Attribute) {
		header.Index = int32(s.index(l.index))
		changes = append(changes, netlink.RawChange(l.name, unix.RTM_NEWLINK, 0, netlink.Body(header, attributes...)))
		about = append(about, l.name)
	}
	for _, l := range s.links {
		if alias := netlink.Find(l.values, unix.IFLA_IFALIAS); alias != nil {
			add(l, unix.IfInfomsg{}, netlink.Bytes(unix.IFLA_IFALIAS, alias))
		}
		if master := s.link(l.master); master != nil && (master.kind == "bridge" || master.kind == "vrf") {
			add(l, unix.IfInfomsg{}, netlink.Uint32(unix.IFLA_MASTER, uint32(s.index(l.master))))
		}
		if l.port != nil {
			add(l, unix.IfInfomsg{}, netlink.Nest(unix.IFLA_LINKINFO,
				netlink.String(unix.IFLA_INFO_SLAVE_KIND, "bridge"),
				netlink.Nest(unix.IFLA_INFO_SLAVE_DATA, filter(l.port, portCopied)...)))
		}
		add(l, unix.IfInfomsg{}, addrGenMode(addrGenNone))
		if l.kind == "dummy" && l.flags&unix.IFF_UP != 0 && l.flags&unix.IFF_LOWER_UP == 0 {
			add(l, unix.IfInfomsg{}, netlink.Uint8(unix.IFLA_CARRIER, 0))
		}
	}
	if err := m.sendLinks(s, changes, about); err != nil {
		return err
	}
	if err := s.vlans(); err != nil {
		return err
	}
	if err := s.altNames(); err != nil {
		return err
	}
	// A link must be up before the links on it. Two rounds suffice for the kinds that are copied.
	for range 2 {
		changes, about = nil, nil
		for _, l := range s.links {
			if set := l.flags & (unix.IFF_UP | unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_NOARP); set != 0 {
				add(l, unix.IfInfomsg{Flags: set, Change: set})
			}
		}
		if err := send(s.to, changes, func(int, error) {}); err != nil {
			return err
		}
	}
	return nil
}

// carrierDelay limits the wait for carrier. The kernel processes most changes of carrier at once, and
// the others once a second (linkwatch in net/core/link_watch.c).
const carrierDelay = 3 * time.Second

// settle waits until the links have the carrier of their sources.
func (m *maker) settle(s *space) error {
	ctx, cancel := context.WithTimeout(context.Background(), carrierDelay)
	defer cancel()
	for _, l := range s.links {
		if !s.hasCarrier(l) {
			continue
		}
		err := s.to.Links.WaitUp(ctx, netlink.Link{Index: s.index(l.index), Name: l.name})
		if ctx.Err() == nil && err != nil {
			return err
		}
		if err != nil && s.hasCarrier(l) {
			m.note("%v", err)
		}
	}
	return nil
}

// hasCarrier reports whether the operational state of a source is up. A list can show a state that
// the kernel is about to change.
func (s *space) hasCarrier(l *link) bool {
	listed := netlink.OperState(netlink.Number(netlink.Find(l.values, unix.IFLA_OPERSTATE)))
	if listed != netlink.OperUp {
		return false
	}
	now, err := s.from.Links.ByIndex(l.index)
	return err == nil && now.OperState == netlink.OperUp
}

func (m *maker) sendLinks(s *space, changes []netlink.Change, names []string) error {
	return send(s.to, changes, func(i int, err error) {
		if !errors.Is(err, unix.EAFNOSUPPORT) { // without IPv6
			m.note("link %s: %v", names[i], err)
		}
	})
}

// Modes of automatic link-local addresses (IN6_ADDR_GEN_MODE_…).
const addrGenNone = 1

func addrGenMode(mode uint8) netlink.Attribute {
	return netlink.Nest(unix.IFLA_AF_SPEC, netlink.Nest(unix.AF_INET6,
		netlink.Uint8(unix.IFLA_INET6_ADDR_GEN_MODE, mode)))
}

// vlans gives ports and bridges the VLANs of the source.
func (s *space) vlans() error {
	for _, l := range s.links {
		filters := func(l *link) bool {
			return l != nil && l.kind == "bridge" &&
				netlink.Number(netlink.Find(l.data, unix.IFLA_BR_VLAN_FILTERING)) != 0
		}
		if !filters(l) && !filters(s.link(l.master)) {
			continue
		}
		wanted, err := s.from.Links.VLANs(netlink.Link{Index: l.index})
		if err != nil {
			return err
		}
		made := netlink.Link{Index: s.index(l.index)}
		present, err := s.to.Links.VLANs(made)
		if err == nil {
			err = s.to.Links.DeleteVLANs(made, present)
		}
		if err == nil {
			err = s.to.Links.AddVLANs(made, wanted)
		}
		if err != nil {
			return fmt.Errorf("VLANs of %s: %w", l.name, err)
		}
	}
	return nil
}

func (s *space) altNames() error {
	for _, l := range s.links {
		for _, name := range netlink.Attributes(netlink.Find(l.values, unix.IFLA_PROP_LIST)) {
			if err := s.to.Links.AddAltName(netlink.Link{Index: s.index(l.index)}, netlink.Text(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreModes sets the mode of automatic link-local addresses, once the addresses exist.
func (m *maker) restoreModes(s *space) error {
	var changes []netlink.Change
	for _, l := range s.links {
		inet6 := netlink.Find(netlink.Find(l.values, unix.IFLA_AF_SPEC), unix.AF_INET6)
		if mode := netlink.Find(inet6, unix.IFLA_INET6_ADDR_GEN_MODE); len(mode) == 1 && mode[0] != addrGenNone {
			changes = append(changes, netlink.RawChange(l.name, unix.RTM_NEWLINK, 0,
				netlink.Body(unix.IfInfomsg{Index: int32(s.index(l.index))}, addrGenMode(mode[0]))))
		}
	}
	return send(s.to, changes, func(int, error) {})
}
