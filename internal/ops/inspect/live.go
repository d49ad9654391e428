package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// live adds the state of the kernel.
func (d *Details) live(ctx context.Context, a Attachment) {
	host, closeHost, err := kernel.OpenHost(ctx)
	if err != nil {
		d.differ("the host's namespace cannot be read: %v", err)
		return
	}
	defer closeHost()
	if a.State == OK || a.State == InterfaceGone || a.State == Adding || a.State == Deleting {
		d.container(ctx, host)
	}
	d.host(host)
	slices.SortStableFunc(
		d.Interfaces,
		func(a, b Interface) int { return strings.Compare(string(a.Place), string(b.Place)) },
	)
	if err := d.ports(host, a); err != nil {
		d.differ("published ports cannot be read: %v", err)
	}
}

func (d *Details) differ(format string, args ...any) {
	d.Differences = append(d.Differences, fmt.Sprintf(format, args...))
}

// openContainer opens the namespace of a container. The caller must call closeAll.
func openContainer(ctx context.Context, path string) (s *kernel.Space, closeAll func(), err error) {
	ns, err := kernel.OpenNamespace(path)
	if err != nil {
		return nil, nil, err
	}
	if s, err = kernel.Begin(ctx).Open(ns); err != nil {
		ns.Close()
		return nil, nil, err
	}
	return s, func() { s.Close(); ns.Close() }, nil
}

// container adds the interface in the container, its addresses and routes, and its peer on the
// host.
func (d *Details) container(ctx context.Context, host *kernel.Space) {
	inside, closeInside, err := openContainer(ctx, d.Netns)
	if err != nil {
		d.differ("namespace %s cannot be read: %v", d.Netns, err)
		return
	}
	defer closeInside()
	link, err := inside.Links.ByName(d.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		d.differ("interface %s does not exist in the container", d.IfName)
		return
	}
	if err == nil {
		err = d.inside(inside, link)
	}
	if err != nil {
		d.differ("interface %s cannot be read: %v", d.IfName, err)
		return
	}
	if peer, err := host.Links.Peer(link); err == nil {
		d.link(host, peer, OnHost)
	}
}

// inside adds the interface in the container, with its addresses and routes.
func (d *Details) inside(s *kernel.Space, link kernel.Link) error {
	d.link(s, link, InContainer)
	addrs, err := s.Addrs.Of(link)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		i := slices.IndexFunc(d.Addresses, func(x Address) bool { return x.Address == a })
		if i >= 0 {
			d.Addresses[i].Live = true
		} else if !a.Addr().IsLinkLocalUnicast() {
			d.Addresses = append(d.Addresses, Address{Address: a, Interface: link.Name, Live: true})
		}
	}
	routes, err := s.Routes.All(kernel.AllTables)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Link == link.Index {
			d.route(r, addrs)
		}
	}
	return nil
}

// mainTable is RT_TABLE_MAIN.
const mainTable = 254

// route adds a route, unless the kernel has added it for an address.
func (d *Details) route(r kernel.Route, addrs []netip.Prefix) {
	live := Route{
		Dst:     r.Dst.Masked(),
		Gateway: r.Gateway(),
		Table:   r.Table,
		Metric:  r.Priority,
		Live:    true,
	}
	if r.Table == mainTable {
		live.Table = 0
	}
	for i, x := range d.Routes {
		gateway := !x.Gateway.IsValid() || x.Gateway == live.Gateway
		if x.Recorded && x.Dst == live.Dst && gateway &&
			(x.Table == live.Table || x.Table == mainTable && live.Table == 0) {
			d.Routes[i].Live, d.Routes[i].Gateway, d.Routes[i].Metric = true, live.Gateway, live.Metric
			return
		}
	}
	own := slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Masked() == live.Dst })
	if !live.Gateway.IsValid() &&
		(own || live.Dst.Addr().IsLinkLocalUnicast() || live.Dst.Addr().IsMulticast()) {
		return
	}
	d.Routes = append(d.Routes, live)
}

// link adds the properties of an existing interface.
func (d *Details) link(s *kernel.Space, l kernel.Link, place Place) {
	i := slices.IndexFunc(
		d.Interfaces,
		func(x Interface) bool { return x.Name == l.Name && x.Place == place },
	)
	if i < 0 {
		d.Interfaces = append(d.Interfaces, Interface{Name: l.Name, Place: place})
		i = len(d.Interfaces) - 1
	}
	x := &d.Interfaces[i]
	if x.Recorded && x.MAC != "" && !strings.EqualFold(x.MAC, l.MAC.String()) {
		d.differ("interface %s has MAC address %s, %s is recorded", l.Name, l.MAC, x.MAC)
	}
	if x.Recorded && x.MTU != 0 && x.MTU != l.MTU {
		d.differ("interface %s has MTU %d, %d is recorded", l.Name, l.MTU, x.MTU)
	}
	x.Kind, x.MAC, x.MTU, x.Up, x.Live = l.Kind, l.MAC.String(), l.MTU, l.Up, true
	if l.Master != 0 {
		if master, err := s.Links.ByIndex(l.Master); err == nil {
			x.Master = master.Name
		}
	}
}

// host adds the properties of the interfaces on the host that the result names.
func (d *Details) host(s *kernel.Space) {
	for _, x := range slices.Clone(d.Interfaces) {
		if x.Place != OnHost || x.Live {
			continue
		}
		if l, err := s.Links.ByName(x.Name); err == nil {
			d.link(s, l, OnHost)
		}
	}
}

// ports adds the ports that the runtime has requested, and the published ports.
func (d *Details) ports(host *kernel.Space, a Attachment) error {
	var asked []askedPort
	_ = json.Unmarshal(d.Capabilities["portMappings"], &asked) // ADD has refused anything else
	held, err := host.Rules.Owned(kernel.Publishing)
	if err != nil {
		return err
	}
	byIPTables, err := d.inIPTables(host)
	if err != nil {
		return err
	}
	for _, h := range held {
		if m, ok := kernel.Published(h); ok && h.Comment == a.Attachment.Tag() {
			d.Ports = append(
				d.Ports,
				Port{Mapping: m.String(), Backend: "nftables", Live: true, published: m},
			)
		}
	}
	for _, p := range asked {
		for _, to := range d.targets(p.HostIP) {
			d.askedPort(p, to, byIPTables)
		}
	}
	return nil
}

// askedPort is an entry of the capability portMappings.
type askedPort struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// targets returns the container addresses to which a port on hostIP leads: the first address of its
// family, or of each family if hostIP is empty.
func (d *Details) targets(hostIP string) (list []netip.Addr) {
	host, err := netip.ParseAddr(hostIP)
	for _, a := range d.Addresses {
		addr := a.Address.Addr()
		same := func(o netip.Addr) bool { return o.Is4() == addr.Is4() }
		if a.Recorded && a.Interface == d.IfName && (err != nil || same(host.Unmap())) &&
			!slices.ContainsFunc(list, same) {
			list = append(list, addr)
		}
	}
	return list
}

// askedPort adds a requested port, or marks it as requested if nftables publishes it.
func (d *Details) askedPort(p askedPort, to netip.Addr, byIPTables bool) {
	protocol, target := strings.ToLower(p.Protocol), netip.AddrPortFrom(to, uint16(p.ContainerPort))
	host := cmp.Or(p.HostIP, "*")
	one := Port{
		Mapping:  fmt.Sprintf("%s %s:%d to %s", protocol, host, p.HostPort, target),
		Recorded: true,
	}
	i := slices.IndexFunc(d.Ports, func(x Port) bool {
		return x.published.To.Addr() == to && covers(x.published, protocol, p.HostPort)
	})
	switch {
	case i >= 0:
		d.Ports[i].Recorded = true
		return
	case byIPTables:
		one.Backend, one.Live = "iptables", true
	}
	d.Ports = append(d.Ports, one)
}

// covers reports whether a mapping publishes a port of the host.
func covers(m kernel.PortMapping, protocol string, port int) bool {
	return int(m.First) <= port && port <= int(m.Last) &&
		strings.HasPrefix(m.String(), strings.ToLower(protocol)+" ")
}

// inIPTables reports whether a rule of either variant of iptables publishes ports of the
// attachment, as upstream portmap does.
func (d *Details) inIPTables(host *kernel.Space) (bool, error) {
	comment := fmt.Sprintf("dnat name: %q id: %q", d.Network, d.Container)
	for _, f := range []kernel.Family{kernel.IPv4, kernel.IPv6} {
		rules, err := host.Rules.OfNAT(f, "CNI-HOSTPORT-DNAT")
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(rules, func(r kernel.NATRule) bool { return r.Comment == comment }) {
			return true, nil
		}
	}
	return false, nil
}

// compare lists recorded objects that do not exist.
func (d *Details) compare(a Attachment) {
	if a.State != OK && a.State != InterfaceGone {
		return
	}
	for _, x := range d.Interfaces {
		if !x.Live && (x.Name != d.IfName || x.Place != InContainer) {
			d.differ("interface %s does not exist (%s)", x.Name, x.Place)
		}
	}
	for _, x := range d.Addresses {
		if !x.Live && x.Interface == d.IfName {
			d.differ("address %s is missing", x.Address)
		}
		if !x.Recorded {
			d.differ("address %s is not recorded", x.Address)
		}
	}
	for _, x := range d.Routes {
		if !x.Live {
			d.differ("route to %s is missing", x.Dst)
		}
	}
	for _, x := range d.Ports {
		if !x.Live {
			d.differ("port %s is not published", x.Mapping)
		}
	}
}

// PortHolders returns the attachments that publish a host port in nftables.
func PortHolders(
	ctx context.Context,
	protocol string,
	port int,
) (holders []cni.Attachment, err error) {
	host, closeHost, err := kernel.OpenHost(ctx)
	if err != nil {
		return nil, err
	}
	defer closeHost()
	held, err := host.Rules.Owned(kernel.Publishing)
	for _, h := range held {
		if m, ok := kernel.Published(h); !ok || !covers(m, protocol, port) {
			continue
		}
		if a, ok := session.Tagged(h.Comment); ok && !slices.Contains(holders, a) {
			holders = append(holders, a)
		}
	}
	return holders, err
}
