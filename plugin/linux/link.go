package linux

import (
	"net"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Link is a network interface with its attributes at the time of reading; it does not follow later
// changes. Its methods change the interface in the kernel.
type Link struct {
	Index  int              // above 0
	Name   string           // 1 to 15 bytes
	Kind   string           // of rtnetlink, such as "veth"; "device" for hardware and loopback
	Alias  string           // free text, up to 255 bytes; plugins store the owner in it
	MAC    net.HardwareAddr // nil if none
	MTU    int              // bytes
	Up     bool             // administratively up
	Master int              // index of the bridge, bond or VRF that it is a port of, or 0
	Mode   string           // macvlan, ipvlan: see ip-link(8); else ""
	VLAN   int              // vlan: the VLAN's ID; else 0

	in    *Namespace
	inner kernel.Link
}

func (n *Namespace) link(l kernel.Link) Link {
	return Link{
		Index: l.Index, Name: l.Name, Kind: l.Kind, Alias: l.Alias, MAC: l.MAC, MTU: l.MTU,
		Up:     l.Up,
		Master: l.Master, Mode: l.Mode, VLAN: l.VLAN, in: n, inner: l,
	}
}

// SetUp sets the link up. Undone by setting it down if it was down when it was read.
func (l Link) SetUp() error { return l.in.space.Links.Up(l.inner) }

// SetDown sets the link down; the kernel deletes the routes through it. Undone by setting it up if
// it was up when it was read, which does not restore routes that were added by hand.
func (l Link) SetDown() error { return l.in.space.Links.Down(l.inner) }

// SetMTU sets the MTU, in bytes. Undone by setting l.MTU.
func (l Link) SetMTU(mtu int) error { return l.in.space.Links.SetMTU(l.inner, mtu) }

// SetMAC sets the MAC address. Undone by setting l.MAC.
func (l Link) SetMAC(mac net.HardwareAddr) error { return l.in.space.Links.SetMAC(l.inner, mac) }

// SetAlias sets the alias, up to 255 bytes; an empty one removes it. Undone by setting l.Alias.
func (l Link) SetAlias(alias string) error { return l.in.space.Links.SetAlias(l.inner, alias) }

// Delete deletes the link. It succeeds if the link no longer exists. It cannot be undone.
func (l Link) Delete() error { return l.in.space.Links.Delete(l.inner) }

// Addresses lists the addresses of the link with their prefix lengths.
func (l Link) Addresses() ([]netip.Prefix, error) { return l.in.space.Addrs.Of(l.inner) }

// AddAddress adds an address. The error wraps [syscall.EEXIST] if the link has the address. Undone
// by deleting it.
func (l Link) AddAddress(address netip.Prefix) error {
	return l.in.space.Addrs.Add(l.inner, address)
}

// DeleteAddress deletes an address. It succeeds if the link does not have it. With the last address
// of IPv4 the kernel deletes the IPv4 routes through the link. Undone by adding the address again.
func (l Link) DeleteAddress(address netip.Prefix) error {
	return l.in.space.Addrs.Delete(l.inner, address)
}

// Routes lists the unicast routes through the link, of all tables.
func (l Link) Routes() ([]cni.Route, error) {
	all, err := l.in.space.Routes.All(kernel.AllTables)
	var list []cni.Route
	for _, r := range all {
		if r.Link != l.Index {
			continue
		}
		list = append(list, cni.Route{
			Dst: r.Dst, GW: r.GW, MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority,
			Table: cni.Some(r.Table), Scope: cni.Some(r.Scope),
		})
	}
	return list, err
}

// AddRoute adds a route through the link, which must be up. It leaves other routes to the same
// destination as they are. An identical route counts as added, and stays on rollback. Undone by
// deleting the route.
func (l Link) AddRoute(r cni.Route) error {
	return l.in.space.Routes.Add(l.inner, session.Route(r))
}

// DeleteRoute deletes a route through the link. It succeeds if there is no such route. Undone by
// adding the route again.
func (l Link) DeleteRoute(r cni.Route) error {
	return l.in.space.Routes.Delete(l.inner, session.Route(r))
}
