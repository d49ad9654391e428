package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/why"
)

// tableLocal is the routing table of the host's own addresses.
const tableLocal = 255

// overlaps reports subnets of networks that other routes of this host, or other networks, use too.
func overlaps(_ context.Context, s *State) (list []Finding, err error) {
	gateways := s.gateways()
	for i := range gateways {
		g := &gateways[i]
		links := s.linksOf(g)
		maps.Copy(links, s.insideLinks()) // other networks are compared below
		for _, subnet := range g.subnets {
			for _, r := range s.Host.Own().Routes {
				if x, bad := s.overlap(g, links, subnet, r); bad {
					list = append(list, x)
				}
			}
			for k := range gateways[:i] {
				if x, bad := s.overlapOf(&gateways[k], g, subnet); bad {
					list = append(list, x)
				}
			}
		}
	}
	return list, nil
}

// linksOf returns the indexes of the links of this host to the containers of a network.
func (s *State) linksOf(g *gateway) map[int]bool {
	links := map[int]bool{}
	if l := s.Host.Own().LinkByName(g.bridge); g.bridge != "" && l != nil {
		links[l.Index] = true
		for _, other := range s.Host.Own().Links { // VLAN interfaces are gateways, too
			if other.Lower == l.Index {
				links[other.Index] = true
			}
		}
	}
	for _, m := range g.members {
		if m.link != nil {
			links[m.link.Index] = true
		}
	}
	return links
}

// overlap judges a route of the host against the subnet of a network.
func (s *State) overlap(
	g *gateway, links map[int]bool, subnet netip.Prefix, r host.Route,
) (x Finding, bad bool) {
	if r.Dst.Bits() == 0 || !r.Dst.Overlaps(subnet) || r.Table == tableLocal || len(r.Hops) == 0 ||
		r.Type != "unicast" ||
		links[r.Hops[0].Link] ||
		r.Dst.Addr().IsLinkLocalUnicast() {
		return x, false
	}
	l := s.Host.Own().Link(r.Hops[0].Link)
	if l == nil {
		return x, false
	}
	x = Finding{
		ID: "routes.overlap", Affects: []string{g.Name}, Owner: l.Name,
		Evidence: []Evidence{
			{
				fmt.Sprintf("ip route show table all %s", r.Dst),
				fmt.Sprintf("%s dev %s", r.Dst, l.Name),
			},
		},
		Fix: []Fix{
			{
				Command: fmt.Sprintf(
					"another subnet for network %s, or another route than %s dev %s",
					g.Name,
					r.Dst,
					l.Name,
				),
				Effect: "containers get new addresses",
			},
		},
	}
	inside := r.Dst.Bits() >= subnet.Bits()
	const tableMain = 254
	switch {
	case inside && r.Table != tableMain && !s.applies(g, r):
		return x, false
	case inside:
		x.Severity = Error
		x.Title = fmt.Sprintf(
			"route %s to %s takes packets to containers in %s of network %s",
			r.Dst,
			l.Name,
			subnet,
			g.Name,
		)
		x.Text = "The longer prefix wins. Typical owners are VPN clients, clouds, and the " +
			"bridges of Docker and libvirt."
		return x, true
	case r.Scope == "link" && r.Table == tableMain:
		x.Severity = Warning
		x.Title = fmt.Sprintf(
			"subnet %s of network %s is part of %s, the network of %s: this host cannot reach "+
				"neighbours there",
			subnet,
			g.Name,
			r.Dst,
			l.Name,
		)
		return x, true
	}
	return x, false // a route for a larger network, as clouds and VPNs have, is meant for the rest
}

// applies reports whether packets to the containers use a route of another table.
func (s *State) applies(g *gateway, r host.Route) bool {
	for _, m := range g.members {
		for _, p := range m.addrs {
			if !r.Dst.Contains(p.Addr()) {
				continue
			}
			if f, ok := s.Host.Own().Lookup(host.Query{Dst: p.Addr()}); ok &&
				f.Route.Table == r.Table {
				return true
			}
		}
	}
	return false
}

// overlapOf judges two networks that share addresses. Networks of the same bridge and pool may, and
// networks in different VRFs.
func (s *State) overlapOf(a, b *gateway, subnet netip.Prefix) (x Finding, bad bool) {
	i := slices.IndexFunc(a.subnets, subnet.Overlaps)
	if i < 0 || a.kind == "bridge" && b.kind == "bridge" && a.bridge == b.bridge ||
		s.vrf(a) != s.vrf(b) {
		return x, false
	}
	severity, text := Error, "This host sends packets for a container to the link of the other network."
	if len(a.members) == 0 || len(b.members) == 0 {
		severity, text = Warning, "Once both have containers, this host sends packets for one of them "+
			"to the link of the other network."
	}
	return Finding{
		ID: "routes.networks-overlap", Severity: severity, Affects: []string{a.Name, b.Name},
		Title: fmt.Sprintf("networks %s (%s) and %s (%s) use the same addresses on different links",
			a.Name, a.subnets[i], b.Name, subnet),
		Text:     text,
		Evidence: []Evidence{{"tenon net list; ip route show", ""}},
		Fix: []Fix{
			{
				Command: "another subnet for one of the networks",
				Effect:  "its containers get new addresses",
			},
		},
	}, true
}

// vrf returns the index of the VRF with the links to the containers of a network, 0 for none.
func (s *State) vrf(g *gateway) int {
	own := s.Host.Own()
	for _, l := range own.Links {
		through := func(m member) bool { return m.link != nil && m.link.Index == l.Index }
		if l.Name != g.bridge && !slices.ContainsFunc(g.members, through) {
			continue
		}
		if master := own.Link(l.Master); master != nil && master.Kind == "vrf" {
			return master.Index
		}
	}
	return 0
}

// defaultRoutes reports a missing default route, and several of the same metric.
func defaultRoutes(_ context.Context, s *State) (list []Finding, err error) {
	for _, f := range families {
		affected := []string{}
		for _, g := range s.gateways() {
			if len(g.attached(f.ipv6)) > 0 && g.leaves(f.ipv6) {
				affected = append(affected, g.Name)
			}
		}
		ups := s.uplinks(f.ipv6)
		see := Evidence{fmt.Sprintf("ip %sroute show default", f.flag), ""}
		if _, _, ok := s.outsider(f.ipv6); !ok && len(ups) == 0 && len(affected) > 0 &&
			s.connected(f.ipv6) {
			list = append(list, Finding{
				ID: "routes.no-default", Severity: Warning, Affects: affected,
				Title: fmt.Sprintf(
					"this host has no %s default route: containers reach only its own networks",
					f.title,
				),
				Evidence: []Evidence{see},
				Fix: []Fix{
					{
						Command: fmt.Sprintf(
							"ip %sroute add default via GATEWAY, and the same in the "+
								"configuration of the host",
							f.flag,
						),
					},
				},
			})
		}
		if len(ups) > 1 && ups[0].route.Metric == ups[1].route.Metric &&
			ups[0].link != ups[1].link &&
			len(ups[0].route.Hops) == 1 &&
			len(affected) > 0 {
			list = append(list, Finding{
				ID: "routes.two-defaults", Severity: Warning, Affects: affected,
				Title: fmt.Sprintf(
					"two %s default routes have the same metric %d, by %s and %s: the order of "+
						"their creation decides",
					f.title,
					ups[0].route.Metric,
					ups[0].link.Name,
					ups[1].link.Name,
				),
				Evidence: []Evidence{see},
				Fix: []Fix{
					{
						Command: "different metrics for the two routes in the configuration of " +
							"the host",
					},
				},
			})
		}
	}
	return list, nil
}

// leaves reports whether a network is meant to reach other hosts.
func (g gateway) leaves(ipv6 bool) bool {
	return g.masquerade || slices.ContainsFunc(g.subnets, func(p netip.Prefix) bool {
		return isIPv6(p) == ipv6 && !p.Addr().IsPrivate()
	})
}

// connected reports whether a link that does not lead to containers has a global address of a family.
func (s *State) connected(ipv6 bool) bool {
	own := s.Host.Own()
	inside := s.insideLinks()
	return slices.ContainsFunc(own.Addrs, func(a host.Addr) bool {
		l := own.Link(a.Link)
		return isIPv6(a.Prefix) == ipv6 && a.Scope == "global" && !inside[a.Link] && l != nil &&
			l.Name != "lo" &&
			l.Kind != "bridge"
	})
}

// gatewayAddresses reports gateways of containers that this host no longer has.
func gatewayAddresses(_ context.Context, s *State) (list []Finding, err error) {
	own := s.Host.Own()
	for _, g := range s.gateways() {
		for _, m := range g.members {
			if m.link == nil || m.ns == nil {
				continue
			}
			for i, gw := range m.gateways {
				if own.Holder(gw) != nil || !s.gatewayIsOwn(g, gw) {
					continue
				}
				list = merge(list, Finding{
					ID: "addresses.gateway", Severity: Error,
					Objects: []string{topology.InterfaceID(own.ID, m.link.Index)},
					Title: fmt.Sprintf(
						"%s has lost %s, the gateway of network %s",
						m.link.Name,
						gw,
						g.Name,
					),
					Text: "Another program has removed it. NetworkManager and systemd-networkd " +
						"do so with links that they manage: exclude the bridge there.",
					Affects:  []string{g.Name},
					Evidence: []Evidence{{"ip addr show dev " + m.link.Name, ""}},
					Fix: []Fix{
						{
							Command: fmt.Sprintf(
								"ip addr add %s/%d dev %s",
								gw,
								bitsOf(m, i, gw),
								m.link.Name,
							),
							Effect: "restores the gateway until it is removed again",
						},
					},
				})
			}
		}
	}
	return list, nil
}

// gatewayIsOwn reports whether the plugins give the gateway to this host.
func (s *State) gatewayIsOwn(g gateway, gw netip.Addr) bool {
	c := g.main()
	return (g.kind == "ptp" || c.IsGateway || c.IsDefaultGateway) && gw.IsValid()
}

// bitsOf returns the length of the prefix of the gateway: the one of the address in its network.
func bitsOf(m member, _ int, gw netip.Addr) int {
	for _, p := range m.addrs {
		if p.Contains(gw) {
			return p.Bits()
		}
	}
	return gw.BitLen()
}

// largeLinks reports containers with a larger MTU than the uplink, and veth ends that differ.
func mtus(_ context.Context, s *State) (list []Finding, err error) {
	own := s.Host.Own()
	for _, g := range s.gateways() {
		for i := range g.members {
			m := &g.members[i]
			if m.inside == nil {
				continue
			}
			if at, peer := s.Host.Peer(m.ns, m.inside); at == own && peer != nil &&
				peer.MTU != m.inside.MTU {
				list = append(list, s.unequal(m, peer))
			}
			for _, p := range m.addrs {
				x, bad := s.tooLarge(g, m, isIPv6(p))
				if !bad {
					continue
				}
				before := len(list)
				if list = merge(list, x); len(list) > before {
					list = append(list, s.blackHoles(&g, m, p.Addr(), x)...)
				}
			}
		}
	}
	return list, nil
}

func (s *State) unequal(m *member, peer *host.Link) Finding {
	return Finding{
		ID: "mtu.ends", Severity: Error, Affects: []string{m.name},
		Objects: []string{m.object},
		Title: fmt.Sprintf(
			"%s of container %s has MTU %d, its peer %s has %d: the smaller end drops larger "+
				"frames",
			m.inside.Name,
			m.name,
			m.inside.MTU,
			peer.Name,
			peer.MTU,
		),
		Evidence: []Evidence{{"ip link show dev " + peer.Name, fmt.Sprintf("mtu %d", peer.MTU)},
			{
				s.command(m.ns, "ip link show dev "+m.inside.Name),
				fmt.Sprintf("mtu %d", m.inside.MTU),
			}},
		Fix: []Fix{
			{
				Command: s.command(
					m.ns,
					fmt.Sprintf("ip link set dev %s mtu %d", m.inside.Name, peer.MTU),
				),
				Effect: "packets of the container become smaller",
			},
		},
	}
}

// tooLarge judges the MTU of a container against the way to other hosts.
func (s *State) tooLarge(g gateway, m *member, ipv6 bool) (x Finding, bad bool) {
	_, found, ok := s.outsider(ipv6)
	if !ok {
		return x, false
	}
	up := s.Host.Own().Link(found.Link())
	limit, where := up.MTU, up.Name
	if found.Route.MTU != 0 && found.Route.MTU < limit {
		limit, where = found.Route.MTU, "the default route"
	}
	if m.inside.MTU <= limit {
		return x, false
	}
	return Finding{
		ID: "mtu.uplink", Severity: Warning, Affects: []string{g.Name},
		Objects: []string{topology.InterfaceID(s.Host.Own().ID, up.Index)},
		Title: fmt.Sprintf(
			"%s has MTU %d, containers of network %s have %d: large packets depend on ICMP "+
				"messages that firewalls often drop",
			where,
			limit,
			g.Name,
			m.inside.MTU,
		),
		Text:     "Connections then open, and hang at the first large packet.",
		Evidence: []Evidence{{"ip link show dev " + up.Name, fmt.Sprintf("mtu %d", up.MTU)}},
		Fix: []Fix{
			{
				Command: fmt.Sprintf(
					"\"mtu\": %d in the configuration of network %s, or the same MTU on %s",
					limit,
					g.Name,
					up.Name,
				),
				Effect: "applies to new attachments",
			},
		},
	}, true
}

// resolver reports DNS settings of the host that do not work in containers.
func resolver(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partResolver); err != nil {
		return nil, err
	}
	r := s.Node.Resolver
	if r == nil || len(s.gateways()) == 0 {
		return nil, nil
	}
	see := func(text string) []Evidence { return []Evidence{{"cat " + resolvConf, text}} }
	loopback := []string{}
	for _, text := range r.Nameservers {
		a, err := netip.ParseAddr(strings.Split(text, "%")[0])
		if err != nil {
			continue
		}
		if a.IsLoopback() {
			loopback = append(loopback, text)
			continue
		}
		if g := s.gatewayOf(a); g != nil && s.Host.Own().Holder(a) == nil &&
			s.behindBridge(a) == nil {
			list = append(list, Finding{
				ID: "dns.shadowed", Severity: Warning, Affects: []string{g.Name},
				Title: fmt.Sprintf(
					"DNS server %s of this host is in the subnet of network %s: neither the "+
						"host nor containers reach it",
					text,
					g.Name,
				),
				Evidence: append(see("nameserver "+text), Evidence{"ip route get " + text, ""}),
				Fix: []Fix{
					{
						Command: "another subnet for network " + g.Name,
						Effect:  "containers get new addresses",
					},
				},
			})
		}
	}
	if len(loopback) > 0 && len(loopback) == len(r.Nameservers) {
		x := Finding{
			ID: "dns.loopback", Severity: Warning,
			Title: fmt.Sprintf(
				"the only DNS server of this host is %s, which containers cannot reach",
				strings.Join(loopback, ", "),
			),
			Text: "Runtimes copy resolv.conf into containers that have no other DNS setting.",
			Fix: []Fix{
				{
					Command: "\"dns\" in the network configuration, or --dns of the runtime " +
						"(kubelet: resolvConf: " +
						resolvedConf + ")",
					Effect: "applies to new containers",
				},
			},
			Evidence: see("nameserver " + loopback[0]),
		}
		if r.Upstream {
			x.Severity = Info
			x.Text += "\nsystemd-resolved lists its servers in " + resolvedConf + "; many " +
				"runtimes use that file."
		}
		list = append(list, x)
	}
	return append(list, limitsOfResolver(r, see)...), nil
}

// limitsOfResolver reports what C libraries ignore (resolv.conf(5): MAXNS; musl and old versions of
// glibc: 6 domains and 256 characters).
func limitsOfResolver(r *Resolver, see func(string) []Evidence) (list []Finding) {
	const maxServers, maxDomains, maxLength = 3, 6, 256
	if len(r.Nameservers) > maxServers {
		list = append(list, Finding{
			ID: "dns.servers", Severity: Info,
			Title: fmt.Sprintf(
				"resolv.conf has %d DNS servers; programs use the first %d",
				len(r.Nameservers),
				maxServers,
			),
			Evidence: see(""), Fix: []Fix{{Command: "at most three nameserver lines"}},
		})
	}
	if len(r.Search) > maxDomains || len(strings.Join(r.Search, " ")) > maxLength {
		list = append(list, Finding{
			ID: "dns.search", Severity: Info,
			Title: fmt.Sprintf(
				"resolv.conf has %d search domains; C libraries of older images use the first "+
					"%d, or %d characters",
				len(r.Search),
				maxDomains,
				maxLength,
			),
			Evidence: see(""), Fix: []Fix{{Command: "fewer search domains"}},
		})
	}
	return list
}

// gatewayOf returns the network with an address in its subnets.
func (s *State) gatewayOf(a netip.Addr) *gateway {
	for _, g := range s.gateways() {
		if slices.ContainsFunc(g.subnets, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return &g
		}
	}
	return nil
}

// programs reports XDP programs and tc filters on uplinks, which see packets before any rule.
func programs(_ context.Context, s *State) (list []Finding, err error) {
	seen := map[int]bool{}
	for _, f := range families {
		for _, u := range s.uplinks(f.ipv6) {
			if seen[u.link.Index] {
				continue
			}
			seen[u.link.Index] = true
			if u.link.XDP {
				list = append(list, before("firewall.xdp", "an XDP program", u.link,
					Evidence{"ip link show dev " + u.link.Name, "prog/xdp"}))
			}
			received := func(f host.Filter) bool { return f.Hook == "ingress" }
			if i := slices.IndexFunc(u.link.Filters, received); i >= 0 {
				list = append(list, before("firewall.tc", "a tc filter", u.link,
					Evidence{"tc filter show dev " + u.link.Name + " ingress", u.link.Filters[i].Text}))
			}
		}
	}
	return list, nil
}

func before(id, subject string, l *host.Link, see Evidence) Finding {
	return Finding{ID: id, Severity: Info, Owner: ownerUnknown,
		Title: fmt.Sprintf("%s on %s sees packets before all rules, and can drop or redirect them",
			subject, l.Name),
		Evidence: []Evidence{see, {"bpftool net", ""}}}
}

// covered are the causes that other checks report, with more detail.
var covered = []string{
	"firewall.",
	"sysctl.",
	"mtu.",
	"nat.masquerade",
	"service.",
	"address.gateway",
	"route.none",
}

// flows follows a packet from each container to another host, and reports where it stops.
func flows(ctx context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partNFT); err != nil {
		return nil, err
	}
	const most = 50 // containers of each network
	explain := s.Explainer()
	err = s.eachMember(ctx, min(most, s.sample()), func(g *gateway, m *member, a netip.Addr) {
		outside, _, ok := s.outsider(a.Is6())
		if m.ns == nil || !ok || !g.leaves(a.Is6()) {
			return
		}
		protocol := uint8(unix.IPPROTO_TCP)
		r, err := explain(
			why.Question{Source: m.ns.ID, To: outside, Protocol: protocol, Port: 443},
		)
		if err != nil || r.Verdict != why.Stopped {
			return
		}
		for _, c := range r.Culprits[:s.stopsHere(r, m)] {
			begins := func(prefix string) bool { return strings.HasPrefix(c.ID, prefix) }
			inContainer := c.ID == "route.none" && !strings.Contains(c.Text, "the host has")
			if slices.ContainsFunc(covered, begins) && !inContainer {
				continue
			}
			f := Finding{
				ID:       "traffic." + strings.ReplaceAll(c.ID, ".", "-"),
				Severity: Error,
				Title:    c.Text,
				Affects:  []string{m.name},
			}
			if inContainer {
				f.Objects = []string{m.object}
			}
			if c.See != "" {
				f.Evidence = []Evidence{{c.See, ""}}
			}
			if c.Fix != "" {
				f.Fix = []Fix{{Command: c.Fix}}
			}
			list = merge(list, f)
		}
	})
	return list, err
}

// stopsHere returns the number of culprits before the packet enters a namespace that is neither the
// container nor the host. It has left the host then: nothing is known about hosts that other
// namespaces are or imitate.
func (s *State) stopsHere(r *why.Report, m *member) (n int) {
	for _, step := range r.Steps {
		switch {
		case step.Where != s.Name(s.Host.Own()) && step.Where != s.Name(m.ns):
			return n
		case step.Result == "stopped":
			n++
		}
	}
	return min(n, len(r.Culprits))
}
