package netconf

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// Use is a range of addresses that is in use.
type Use struct {
	Prefix netip.Prefix
	By     string // description of the user
}

// Uses returns the ranges in use: by the networks of a directory, and by addresses and routes of
// this host. It skips the bridge of n and default routes, and the whole host if n has a parent
// interface, with which it shares addresses.
func (n Draft) Uses(ctx context.Context, c *config.Catalog) ([]Use, error) {
	var uses []Use
	for _, f := range c.Candidates() {
		if f.Network == nil {
			continue
		}
		for _, subnet := range subnetsOf(ctx, f) {
			uses = append(uses, Use{subnet, fmt.Sprintf("network %s (%s)", f.Name, f.Path)})
		}
	}
	if n.Master != "" {
		return uses, nil
	}
	host, err := n.hostUses(ctx)
	return append(uses, host...), err
}

// subnetsOf returns the subnets of a network with host-local. It skips invalid ranges, which lint
// reports.
func subnetsOf(ctx context.Context, f config.File) (subnets []netip.Prefix) {
	pools, _ := hostlocal.Pools(ctx, []*cni.List{f.Network.List})
	for _, p := range pools {
		for _, r := range p.Ranges {
			if r.Subnet.IsValid() && p.Network == f.Name {
				subnets = append(subnets, r.Subnet.Masked())
			}
		}
	}
	return subnets
}

// hostUses returns the ranges of addresses and routes of the host.
func (n Draft) hostUses(ctx context.Context) (uses []Use, err error) {
	host, closeHost, err := kernel.OpenHost(ctx)
	if err != nil {
		return nil, err
	}
	defer closeHost()
	links, err := host.Links.All()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, l := range links {
		if n.Type == "bridge" && l.Name == bridgeName(n.Name) {
			continue
		}
		names[l.Index] = l.Name
		addrs, err := host.Addrs.Of(l)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			uses = append(
				uses,
				Use{a.Masked(), fmt.Sprintf("interface %s (address %s)", l.Name, a)},
			)
		}
	}
	routes, err := host.Routes.All(kernel.AllTables)
	for _, r := range routes {
		if name, ok := names[r.Link]; ok && r.Dst.Bits() > 0 {
			uses = append(
				uses,
				Use{
					r.Dst.Masked(),
					fmt.Sprintf("a route of the host (%s, interface %s)", r.Dst.Masked(), name),
				},
			)
		}
	}
	return uses, err
}

// Overlap returns an error that names the first use that shares addresses with a subnet, nil if
// there is none.
func (n Draft) Overlap(uses []Use) error {
	for _, s := range n.Subnets {
		for _, u := range uses {
			if s.Overlaps(u.Prefix) {
				return cni.Errorf(
					cni.CodeInvalidConfig,
					"subnet %s overlaps with %s, which is in use by %s",
					s,
					u.Prefix,
					u.By,
				)
			}
		}
	}
	return nil
}

// Pool describes the subnets that [Free] chooses from.
const Pool = "10.88.0.0/16 to 10.127.0.0/16, and fd00:88::/64 to fd00:127::/64, without 96 to 111"

// The second octets of the subnets in the pool; the second group of IPv6 subnets has the same
// digits. The pool omits 10.96.0.0/12, from which kubeadm allocates service addresses: no route and
// no address of the host shows that they are in use.
const firstOctet, firstService, lastService, lastOctet = 88, 96, 111, 127

// Free returns the first subnet of the pool that shares no address with a use.
func Free(uses []Use, ipv6 bool) (netip.Prefix, error) {
	for octet := firstOctet; octet <= lastOctet; octet++ {
		if octet >= firstService && octet <= lastService {
			continue
		}
		s := netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", octet))
		if ipv6 {
			s = netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", octet))
		}
		if (Draft{Subnets: []netip.Prefix{s}}).Overlap(uses) == nil {
			return s, nil
		}
	}
	return netip.Prefix{}, cni.Errorf(cni.CodeInvalidConfig, "no subnet of %s is free", Pool)
}

// Numbered reports whether the network needs a free subnet, because it is of type bridge or ptp and
// no option names addresses.
func (n Draft) Numbered() bool {
	return (n.Type == "bridge" || n.Type == "ptp") && !n.DHCP && n.Master == "" &&
		len(n.Subnets) == 0 &&
		len(n.Gateways) == 0
}
