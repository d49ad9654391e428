package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// families are the address families with what sysctls and people call them.
var families = []struct {
	ipv6             bool
	key, title, flag string
}{{false, "ipv4", "IPv4", ""}, {true, "ipv6", "IPv6", "-6 "}}

// has reports whether a member has an address of a family.
func (m member) has(ipv6 bool) bool {
	return slices.ContainsFunc(m.addrs, func(p netip.Prefix) bool { return isIPv6(p) == ipv6 })
}

// attached returns the names of the members with an address of a family.
func (g gateway) attached(ipv6 bool) (names []string) {
	for _, m := range g.members {
		if m.has(ipv6) {
			names = append(names, m.name)
		}
	}
	return names
}

func sysctlEvidence(name, value string) Evidence {
	return Evidence{"sysctl " + name, name + " = " + value}
}

func forwarding(_ context.Context, s *State) (list []Finding, err error) {
	for _, f := range families {
		global := "net.ipv4.ip_forward"
		if f.ipv6 {
			global = "net.ipv6.conf.all.forwarding"
		}
		var affected []string
		single := map[string][]string{} // networks by a setting of one link
		for _, g := range s.gateways() {
			if len(g.attached(f.ipv6)) == 0 {
				continue // the plugin sets it when it attaches the first container
			}
			affected = append(affected, g.Name)
			for _, m := range g.members {
				if m.link == nil {
					continue
				}
				name := "net." + f.key + ".conf." + m.link.Name + ".forwarding"
				if s.setting(name) == "0" && !slices.Contains(single[name], g.Name) {
					single[name] = append(single[name], g.Name)
				}
			}
		}
		if s.setting(global) == "0" && affected != nil {
			single = map[string][]string{global: affected}
		}
		for name, networks := range single {
			list = append(list, Finding{
				ID: "sysctl.forwarding", Severity: Error,
				Title: fmt.Sprintf(
					"%s is 0: containers reach their gateway and nothing beyond it by %s",
					name,
					f.title,
				),
				Text: "The plugin sets it at ADD, so another program or a file in /etc/sysctl.d " +
					"has changed it since.",
				Affects:  networks,
				Evidence: []Evidence{sysctlEvidence(name, "0")},
				Fix: []Fix{sysctlFix("this host forwards packets between all its interfaces",
					name+"=1")},
			})
		}
	}
	return list, nil
}

func disabledIPv6(_ context.Context, s *State) (list []Finding, err error) {
	own := s.Host.Own()
	for _, g := range s.gateways() {
		for _, m := range g.members {
			if !m.has(true) {
				continue
			}
			for _, at := range []struct {
				ns    *host.Namespace
				link  *host.Link
				where string
			}{{own, m.link, ""}, {m.ns, m.inside, " in " + m.name}} {
				if at.ns == nil || at.link == nil {
					continue
				}
				name := "net.ipv6.conf." + at.link.Name + ".disable_ipv6"
				if at.ns.Settings[name] != "1" {
					continue
				}
				object := m.object
				if at.ns == own {
					object = topology.InterfaceID(own.ID, at.link.Index)
				}
				list = merge(list, Finding{
					ID: "sysctl.disable-ipv6", Severity: Error,
					Title:    fmt.Sprintf("%s is 1%s: its IPv6 addresses are gone", name, at.where),
					Affects:  []string{m.name},
					Objects:  []string{object},
					Evidence: []Evidence{{s.command(at.ns, "sysctl "+name), name + " = 1"}},
					Fix: []Fix{{Command: s.command(at.ns, "sysctl -w "+name+"=0") +
						", then detach and attach the containers",
						Effect: "the containers lose their connections"}},
				})
			}
		}
	}
	return list, nil
}

// command returns a command that runs in a namespace.
func (s *State) command(n *host.Namespace, command string) string {
	switch {
	case n == s.Host.Own():
		return command
	case len(n.Paths) > 0:
		return "nsenter --net=" + n.Paths[0] + " " + command
	case len(n.PIDs) > 0:
		return fmt.Sprintf("nsenter --net=/proc/%d/ns/net %s", n.PIDs[0], command)
	}
	return command
}

// merge adds a finding to a list, or what it affects to an equal one.
func merge(list []Finding, f Finding) []Finding {
	i := slices.IndexFunc(list, func(x Finding) bool { return x.ID == f.ID && x.Title == f.Title })
	if i < 0 {
		return append(list, f)
	}
	for _, name := range f.Affects {
		if !slices.Contains(list[i].Affects, name) {
			list[i].Affects = append(list[i].Affects, name)
		}
	}
	for _, id := range f.Objects {
		list[i].Objects = add(list[i].Objects, id)
	}
	return list
}

// acceptRA reports uplinks that ignore router advertisements, where nothing else sets a default
// route.
func acceptRA(_ context.Context, s *State) (list []Finding, err error) {
	own := s.Host.Own()
	if s.setting("net.ipv6.conf.all.forwarding") != "1" {
		return nil, nil
	}
	for _, u := range s.uplinks(true) {
		if u.route.Expires == 0 {
			return nil, nil // a route that stays
		}
	}
	inside := s.insideLinks()
	for i := range own.Links {
		l := &own.Links[i]
		name := "net.ipv6.conf." + l.Name + ".accept_ra"
		if own.Settings[name] != "1" || inside[l.Index] || l.Name == "lo" || l.Master != 0 ||
			!l.Up() ||
			!slices.ContainsFunc(own.Of(l.Index), isGlobalIPv6) ||
			!s.needsIPv6() {
			continue
		}
		list = append(list, Finding{
			ID: "sysctl.accept-ra", Severity: Warning,
			Title: fmt.Sprintf(
				"%s ignores router advertisements: forwarding is on and accept_ra is 1; "+
					"it has no lasting IPv6 default route",
				l.Name,
			),
			Text: "The kernel of a router accepts advertisements only with accept_ra=2. A route " +
				"that was learned before forwarding was switched on expires.",
			Objects:  []string{topology.InterfaceID(own.ID, l.Index)},
			Evidence: []Evidence{sysctlEvidence(name, "1"), {"ip -6 route show default", ""}},
			Fix:      []Fix{sysctlFix("", name+"=2")},
		})
	}
	return list, nil
}

func isGlobalIPv6(a host.Addr) bool { return a.Prefix.Addr().Is6() && a.Scope == "global" }

// needsIPv6 reports whether containers have IPv6 addresses.
func (s *State) needsIPv6() bool {
	return slices.ContainsFunc(
		s.gateways(),
		func(g gateway) bool { return len(g.attached(true)) > 0 },
	)
}

// insideLinks returns the indexes of links that lead to containers: bridges and veths of networks,
// and links with the other end in another namespace.
func (s *State) insideLinks() map[int]bool {
	own := s.Host.Own()
	inside := map[int]bool{}
	for _, g := range s.gateways() {
		if l := own.LinkByName(g.bridge); l != nil && g.bridge != "" {
			inside[l.Index] = true
		}
		for _, m := range g.members {
			if m.link != nil {
				inside[m.link.Index] = true
			}
		}
	}
	return inside
}

// reversePaths reports uplinks on which strict rp_filter drops packets, because the route back
// leaves by another one.
func reversePaths(_ context.Context, s *State) (list []Finding, err error) {
	own := s.Host.Own()
	outside, _, ok := s.outsider(false)
	if !ok {
		return nil, nil
	}
	for _, g := range s.gateways() {
		for _, m := range g.members {
			i := slices.IndexFunc(m.addrs, func(p netip.Prefix) bool { return p.Addr().Is4() })
			if i < 0 {
				continue
			}
			for _, u := range s.uplinks(false) {
				back, found := own.Lookup(host.Query{Src: m.addrs[i].Addr(), Dst: outside})
				if !s.strict(u.link) || !found || back.Link() == u.link.Index || back.Link() == 0 {
					continue
				}
				name := "net.ipv4.conf." + u.link.Name + ".rp_filter"
				list = merge(list, Finding{
					ID: "sysctl.rp-filter", Severity: Warning,
					Title: fmt.Sprintf(
						"strict rp_filter on %s drops packets from outside to containers: "+
							"the route back leaves by %s",
						u.link.Name,
						own.Link(back.Link()).Name,
					),
					Affects: []string{g.Name},
					Objects: []string{topology.InterfaceID(own.ID, u.link.Index)},
					Evidence: []Evidence{{"sysctl net.ipv4.conf.all.rp_filter " + name, ""},
						{
							fmt.Sprintf(
								"ip route get %s from %s iif %s",
								outside,
								m.addrs[i].Addr(),
								linkName(m.link),
							),
							"",
						}},
					Fix: []Fix{
						sysctlFix(
							"the kernel no longer checks by which link a source is reached",
							name+"=2",
						),
					},
				})
			}
			break // one container is enough
		}
	}
	return append(list, s.asymmetric()...), nil
}

func linkName(l *host.Link) string {
	if l == nil {
		return "lo"
	}
	return l.Name
}

// strict reports whether rp_filter is strict on a link: the greater of "all" and the link counts
// (ip-sysctl.rst).
func (s *State) strict(l *host.Link) bool {
	return max(
		s.setting("net.ipv4.conf.all.rp_filter"),
		s.setting("net.ipv4.conf."+l.Name+".rp_filter"),
	) == "1"
}

// asymmetric reports routes to hosts and networks beyond another gateway than the one of the
// default route: rp_filter drops packets from there that arrive by the default route.
func (s *State) asymmetric() (list []Finding) {
	const tableMain = 254
	own := s.Host.Own()
	ups := s.uplinks(false)
	if len(ups) == 0 || !s.strict(ups[0].link) {
		return nil
	}
	for _, r := range own.Routes {
		if r.Table != tableMain || r.Type != "unicast" || r.Dst.Bits() == 0 || isIPv6(r.Dst) ||
			len(r.Hops) == 0 ||
			!r.Hops[0].Via.IsValid() ||
			r.Hops[0].Link == ups[0].link.Index {
			continue
		}
		l := own.Link(r.Hops[0].Link)
		if l == nil || s.insideLinks()[l.Index] {
			continue
		}
		list = append(list, Finding{
			ID: "sysctl.rp-filter-routes", Severity: Info,
			Title: fmt.Sprintf(
				"packets from %s are accepted only by %s, because rp_filter is strict on %s",
				r.Dst,
				l.Name,
				ups[0].link.Name,
			),
			Text: "If replies arrive by the default route, connections of containers to these " +
				"addresses time out.",
			Evidence: []Evidence{{"ip route get " + r.Dst.Addr().String(), ""}},
			Fix: []Fix{sysctlFix("the kernel no longer checks by which link a source is reached",
				"net.ipv4.conf."+ups[0].link.Name+".rp_filter=2")},
		})
	}
	return list
}

// bridgeNF reports services that fail from their own bridge, because replies there are not
// translated back.
func bridgeNF(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partNFT); err != nil {
		return nil, err
	}
	for _, f := range families {
		name := "net.bridge.bridge-nf-call-iptables"
		if f.ipv6 {
			name = "net.bridge.bridge-nf-call-ip6tables"
		}
		value := s.setting(name)
		if value == "1" {
			continue
		}
		state, fix := "is 0", sysctlFix("iptables sees the frames of all bridges", name+"=1")
		if value == "" {
			state = "does not exist: module br_netfilter is not loaded"
			fix.Command = "modprobe br_netfilter, and the same in /etc/modules-load.d; " +
				"" + fix.Command
		}
		for _, d := range s.destinationRules() {
			g := s.behindBridge(d.to.Addr())
			if g == nil || d.to.Addr().Is6() != f.ipv6 {
				continue
			}
			list = merge(list, Finding{
				ID: "sysctl.bridge-nf", Severity: Warning,
				Title: fmt.Sprintf(
					"services of %s that translate to containers fail from the bridge of these "+
						"containers: %s %s",
					d.owner,
					name,
					state,
				),
				Text: "The reply of a container to a neighbour on the same bridge never passes " +
					"the IP layer, so its source is not translated back.",
				Affects: []string{g.Name}, Owner: d.owner,
				Evidence: []Evidence{{"sysctl " + name, strings.TrimSpace(name + " = " + value)},
					{d.see, fmt.Sprintf("translates to %s", d.to)}},
				Fix: []Fix{fix},
			})
		}
	}
	return list, nil
}

// behindBridge returns the network of type bridge with an attached container that has an address.
func (s *State) behindBridge(a netip.Addr) *gateway {
	for _, g := range s.gateways() {
		if g.kind != "bridge" {
			continue
		}
		for _, m := range g.members {
			if slices.ContainsFunc(m.addrs, func(p netip.Prefix) bool { return p.Addr() == a }) {
				return &g
			}
		}
	}
	return nil
}
