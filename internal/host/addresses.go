package host

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

var addrFlags = []flag{
	{unix.IFA_F_SECONDARY, "secondary"}, {unix.IFA_F_TENTATIVE, "tentative"},
	{unix.IFA_F_DADFAILED, "dadfailed"}, {unix.IFA_F_DEPRECATED, "deprecated"},
	{unix.IFA_F_PERMANENT, "permanent"}, {unix.IFA_F_NODAD, "nodad"},
	{unix.IFA_F_NOPREFIXROUTE, "noprefixroute"}, {unix.IFA_F_OPTIMISTIC, "optimistic"},
}

// scopes are the names of scopes (RT_SCOPE_…).
var scopes = map[uint8]string{
	unix.RT_SCOPE_UNIVERSE: "global", unix.RT_SCOPE_SITE: "site", unix.RT_SCOPE_LINK: "link",
	unix.RT_SCOPE_HOST: "host", unix.RT_SCOPE_NOWHERE: "nowhere",
}

func scopeName(scope uint8) string {
	if name, ok := scopes[scope]; ok {
		return name
	}
	return fmt.Sprint(scope)
}

func (r *reader) addresses() ([]Addr, error) {
	return netlink.Dump(r.conn, unix.RTM_GETADDR, unix.IfAddrmsg{}, nil,
		func(list []Addr, m []byte) ([]Addr, error) {
			var about unix.IfAddrmsg
			values, err := netlink.ReadBody(m, &about)
			if err != nil || about.Family != unix.AF_INET && about.Family != unix.AF_INET6 {
				return list, err
			}
			return append(list, readAddr(about, values)), nil
		})
}

func readAddr(about unix.IfAddrmsg, values []byte) Addr {
	flags := uint32(about.Flags)
	if v := netlink.Find(values, unix.IFA_FLAGS); v != nil {
		flags = uint32(netlink.Number(v))
	}
	a := Addr{Link: int(about.Index), Scope: scopeName(about.Scope), Flags: names(addrFlags, flags)}
	address := address(values, unix.IFA_ADDRESS)
	local := address
	if l, ok := netip.AddrFromSlice(netlink.Find(values, unix.IFA_LOCAL)); ok {
		local = l
	}
	a.Prefix = netip.PrefixFrom(local, int(about.Prefixlen))
	if local != address {
		a.Prefix = netip.PrefixFrom(local, local.BitLen())
		a.Peer = netip.PrefixFrom(address, int(about.Prefixlen))
	}
	return a
}

// address decodes the value of an attribute.
func address(values []byte, kind uint16) netip.Addr {
	a, _ := netip.AddrFromSlice(netlink.Find(values, kind))
	return a
}

// neighbourStates are the states of neighbour entries (NUD_…).
var neighbourStates = []flag{
	{unix.NUD_INCOMPLETE, "incomplete"}, {unix.NUD_REACHABLE, "reachable"}, {unix.NUD_STALE, "stale"},
	{unix.NUD_DELAY, "delay"}, {unix.NUD_PROBE, "probe"}, {unix.NUD_FAILED, "failed"},
	{unix.NUD_NOARP, "noarp"}, {unix.NUD_PERMANENT, "permanent"},
}

// Constants of linux/neighbour.h.
const (
	ntfSelf   = 1 << 1
	ntfMaster = 1 << 2
	ntfProxy  = 1 << 3
	ntfSticky = 1 << 6
)

func (r *reader) neighbours() (all []Neighbour, err error) {
	for _, flags := range []uint8{0, ntfProxy} {
		found, err := netlink.Dump(r.conn, unix.RTM_GETNEIGH, unix.NdMsg{Flags: flags}, nil,
			func(list []Neighbour, m []byte) ([]Neighbour, error) {
				var about unix.NdMsg
				values, err := netlink.ReadBody(m, &about)
				n := Neighbour{Link: int(about.Ifindex), Addr: address(values, unix.NDA_DST),
					MAC: mac(values), Proxy: about.Flags&ntfProxy != 0}
				if err != nil || !n.Addr.IsValid() || n.Proxy != (flags == ntfProxy) ||
					about.State == unix.NUD_NOARP { // multicast and loopback need no resolution
					return list, err
				}
				for _, s := range names(neighbourStates, uint32(about.State)) {
					n.State = s
				}
				return append(list, n), nil
			})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (r *reader) forwarding() ([]Forwarding, error) {
	return netlink.Dump(r.conn, unix.RTM_GETNEIGH, unix.NdMsg{Family: unix.AF_BRIDGE}, nil,
		func(list []Forwarding, m []byte) ([]Forwarding, error) {
			var about unix.NdMsg
			values, err := netlink.ReadBody(m, &about)
			f := Forwarding{
				Link: int(about.Ifindex), MAC: mac(values), Remote: address(values, unix.NDA_DST),
				VLAN:   netlink.Number(netlink.Find(values, unix.NDA_VLAN)),
				Local:  about.State&unix.NUD_PERMANENT != 0 && about.Flags&ntfSelf == 0,
				Static: about.State&unix.NUD_NOARP != 0, Sticky: about.Flags&ntfSticky != 0,
			}
			if err != nil || about.Family != unix.AF_BRIDGE || f.multicast() {
				return list, err
			}
			return append(list, f), nil
		})
}

// multicast reports whether an entry is for a group, which every port gets.
func (f Forwarding) multicast() bool {
	mac, err := net.ParseMAC(f.MAC)
	return err != nil || mac[0]&1 != 0
}

func mac(values []byte) string {
	return net.HardwareAddr(netlink.Find(values, unix.NDA_LLADDR)).String()
}
