package doctor

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/network"
)

// gateway is a network for which this host is the gateway: of type bridge with isGateway, or ptp.
type gateway struct {
	Network
	kind       string // bridge or ptp
	bridge     string // the name of the bridge
	masquerade bool
	subnets    []netip.Prefix
	members    []member
}

// member is a container in a network.
type member struct {
	name     string
	ifname   string
	object   string // see [Finding.Objects]
	addrs    []netip.Prefix
	gateways []netip.Addr
	ns       *host.Namespace // nil if it no longer exists
	inside   *host.Link      // the container-side link, nil if it does not exist
	link     *host.Link      // of the host to the container: the bridge, or the host-side veth
	ports    []mapping
}

// mapping is a published port.
type mapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// mainConf holds the keys of bridge and ptp that the checks need.
type mainConf struct {
	Type             string `json:"type"`
	Bridge           string `json:"bridge"`
	IsGateway        bool   `json:"isGateway"`
	IsDefaultGateway bool   `json:"isDefaultGateway"`
	IPMasq           bool   `json:"ipMasq"`
	MTU              int    `json:"mtu"`
	IPAM             struct {
		Type   string `json:"type"`
		Subnet string `json:"subnet"`
		Ranges [][]struct {
			Subnet string `json:"subnet"`
		} `json:"ranges"`
		Addresses []struct {
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"ipam"`
}

// main returns the configuration of the plugin that creates the interface, the first of the list.
func (n Network) main() (c mainConf) {
	if len(n.Plugins) > 0 {
		_ = json.Unmarshal(n.Plugins[0].Conf, &c) // the checks of configurations report mistakes
	}
	return c
}

// uses reports whether a plugin is in the list.
func (n Network) uses(plugin string) bool {
	return slices.ContainsFunc(n.Plugins, func(p Plugin) bool { return p.Type == plugin })
}

// subnets returns the subnets of the pools of a network.
func (n Network) subnets() (list []netip.Prefix) {
	c := n.main()
	add := func(text string) {
		if p, err := netip.ParsePrefix(text); err == nil && !slices.Contains(list, p.Masked()) {
			list = append(list, p.Masked())
		}
	}
	add(c.IPAM.Subnet)
	for _, set := range c.IPAM.Ranges {
		for _, r := range set {
			add(r.Subnet)
		}
	}
	for _, a := range c.IPAM.Addresses {
		add(a.Address)
	}
	return list
}

func isIPv6(p netip.Prefix) bool { return p.Addr().Is6() }

// gateways returns the networks for which this host is the gateway.
func (s *State) gateways() (list []gateway) {
	for _, n := range s.Networks {
		c := n.main()
		g := gateway{Network: n, kind: c.Type, masquerade: c.IPMasq, subnets: n.subnets()}
		switch {
		case c.Type == "bridge" && (c.IsGateway || c.IsDefaultGateway || c.IPMasq):
			g.bridge = c.Bridge
			if g.bridge == "" {
				g.bridge = "cni0" // the default of the plugin
			}
		case c.Type == "ptp":
		default:
			continue
		}
		for _, rec := range s.Records {
			if rec.Attachment.Network == n.Name {
				g.members = append(g.members, s.member(g, rec))
			}
		}
		list = append(list, g)
	}
	return list
}

func (s *State) member(g gateway, rec network.Record) member {
	m := member{name: rec.Attachment.Container, ifname: rec.Attachment.IfName,
		object: topology.AttachmentID(rec.Attachment)}
	if rec.Result != nil {
		for _, ip := range rec.Result.IPs {
			m.addrs = append(m.addrs, ip.Address)
			if ip.Gateway.IsValid() {
				m.gateways = append(m.gateways, ip.Gateway)
			}
		}
	}
	if raw, ok := rec.Capabilities["portMappings"]; ok && g.uses("portmap") {
		_ = json.Unmarshal(raw, &m.ports) // as given to a plugin that accepted it
	}
	m.ns = s.namespaceAt(rec.Netns)
	if m.ns != nil {
		m.inside = m.ns.LinkByName(m.ifname)
	}
	own := s.Host.Own()
	switch {
	case g.bridge != "":
		m.link = own.LinkByName(g.bridge)
	case m.inside != nil:
		if at, peer := s.Host.Peer(m.ns, m.inside); at == own {
			m.link = peer
		}
	}
	return m
}

// namespaceAt returns the namespace at a path, nil if there is none.
func (s *State) namespaceAt(path string) *host.Namespace {
	n := s.Host.At(path)
	if n == s.Host.Own() {
		return nil
	}
	return n
}

// setting returns a sysctl of the host, "" if the kernel lacks it.
func (s *State) setting(name string) string { return s.Host.Own().Settings[name] }

// uplink is a link with a default route.
type uplink struct {
	link  *host.Link
	route host.Route
	hop   host.Hop
}

// uplinks returns the default routes of table main of a family, the one in use first.
func (s *State) uplinks(ipv6 bool) (list []uplink) {
	const tableMain = 254
	own := s.Host.Own()
	for _, r := range own.Routes {
		if r.Table != tableMain || r.Dst.Bits() != 0 || isIPv6(r.Dst) != ipv6 ||
			r.Type != "unicast" {
			continue
		}
		for _, h := range r.Hops {
			if l := own.Link(h.Link); l != nil {
				list = append(list, uplink{l, r, h})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b uplink) int { return a.route.Metric - b.route.Metric })
	return list
}

// outsiders are addresses of networks for documentation (RFC 5737, RFC 3849) and of public
// services, as destinations of packets that are only evaluated.
var outsiders = []netip.Addr{
	netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("203.0.113.9"),
	netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("1.1.1.1"),
	netip.MustParseAddr("2001:db8:ffff::9"), netip.MustParseAddr("2606:4700:4700::1111"),
}

// outsider returns an address of a family to which the host sends packets by the default route.
func (s *State) outsider(ipv6 bool) (a netip.Addr, found host.Found, ok bool) {
	for _, a := range outsiders {
		if a.Is6() != ipv6 {
			continue
		}
		f, ok := s.Host.Own().Lookup(host.Query{Dst: a})
		if ok && f.Route.Type == "unicast" && f.Route.Dst.Bits() == 0 && f.Link() != 0 {
			return a, f, true
		}
	}
	return a, found, false
}
