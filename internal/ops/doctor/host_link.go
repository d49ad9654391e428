package doctor

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// wrongEntries reports entries of the neighbour table and of bridges that send the packets of a
// container elsewhere, and IPv6 addresses that failed duplicate address detection.
func wrongEntries(_ context.Context, s *State) (list []Finding, err error) {
	for _, g := range s.gateways() {
		for i := range g.members {
			m := &g.members[i]
			if m.inside == nil || m.link == nil {
				continue
			}
			list = append(list, s.staleNeighbours(m)...)
			list = append(list, s.misledFrames(m)...)
			for _, a := range m.ns.Of(m.inside.Index) {
				if a.Failed() {
					list = append(list, s.failedAddress(m, a))
				}
			}
		}
	}
	return list, nil
}

// staleNeighbours compares the neighbour entries for the addresses of a container with its MAC
// address.
func (s *State) staleNeighbours(m *member) (list []Finding) {
	for _, n := range s.Host.Own().Neighbours {
		if n.Link != m.link.Index || n.MAC == "" || n.MAC == m.inside.MAC || n.Proxy ||
			n.State == "failed" || !m.holds(n.Addr) || m.ns.Holder(n.Addr) == nil {
			continue
		}
		list = append(list, Finding{
			ID: "addresses.neighbour", Severity: Error, Affects: []string{m.name},
			Objects: []string{m.object},
			Title: fmt.Sprintf("the neighbour entry of this host for %s has the MAC address %s, "+
				"container %s has %s", n.Addr, n.MAC, m.name, m.inside.MAC),
			Text: "The MAC address has changed, or another container uses the address.",
			Evidence: []Evidence{{fmt.Sprintf("ip neigh show %s", n.Addr), "lladdr " + n.MAC},
				{s.command(m.ns, "ip link show dev "+m.inside.Name), "link/ether " + m.inside.MAC}},
			Fix: []Fix{{Command: fmt.Sprintf("ip neigh flush %s dev %s", n.Addr, m.link.Name),
				Effect: "the host asks for the MAC address again"}},
		})
	}
	return list
}

// misledFrames reports static entries of the bridge that send frames for a container to the port
// of another one.
func (s *State) misledFrames(m *member) (list []Finding) {
	own := s.Host.Own()
	at, port := s.Host.Peer(m.ns, m.inside)
	if at != own || port == nil || port.Master != m.link.Index {
		return nil
	}
	for _, f := range own.Forwarding {
		if f.MAC != m.inside.MAC || f.Link == port.Index || f.Local || !f.Static {
			continue
		}
		other := own.Link(f.Link)
		if other == nil || other.Master != m.link.Index {
			continue
		}
		list = append(list, Finding{
			ID: "addresses.fdb", Severity: Error, Affects: []string{m.name},
			Objects: []string{m.object},
			Title: fmt.Sprintf("a static entry of bridge %s sends frames for container %s to port "+
				"%s instead of %s", m.link.Name, m.name, other.Name, port.Name),
			Evidence: []Evidence{
				{"bridge fdb show br " + m.link.Name, f.MAC + " dev " + other.Name},
			},
			Fix: []Fix{{Command: fmt.Sprintf("bridge fdb del %s dev %s master", f.MAC, other.Name),
				Effect: "the bridge learns the port again"}},
		})
	}
	return list
}

func (s *State) failedAddress(m *member, a host.Addr) Finding {
	holder := "another host or container"
	for i := range s.Host.Namespaces {
		n := &s.Host.Namespaces[i]
		if n != m.ns && n.Holder(a.Prefix.Addr()) != nil {
			holder = s.Name(n)
		}
	}
	name := fmt.Sprintf("%s dev %s", a.Prefix, m.inside.Name)
	return Finding{
		ID: "addresses.dad-failed", Severity: Error, Affects: []string{m.name},
		Objects: []string{m.object},
		Title: fmt.Sprintf("%s on %s of container %s is in state dadfailed: %s has it",
			a.Prefix.Addr(), m.inside.Name, m.name, holder),
		Evidence: []Evidence{{s.command(m.ns, "ip -6 addr show dadfailed"), a.Prefix.String()}},
		Fix: []Fix{{Command: "remove the other address, then " +
			s.command(m.ns, fmt.Sprintf("ip addr del %s; ip addr add %s", name, name))}},
	}
}

// blackHoles reports the rule that drops the message by which this host informs a container that
// a packet is too large for the uplink.
func (s *State) blackHoles(g *gateway, m *member, a netip.Addr, small Finding) []Finding {
	if m.link == nil || s.needs(partNFT) != nil {
		return nil
	}
	by := s.dropsTooBig(m, a)
	if by == nil {
		return nil
	}
	return []Finding{{
		ID: "mtu.black-hole", Severity: Error, Affects: []string{g.Name}, Owner: s.owner(*by),
		Title: fmt.Sprintf("%s drops the messages \"packet too big\" of this host to containers "+
			"of network %s: their large packets vanish", placeTitle(*by), g.Name),
		Text:     small.Title,
		Evidence: []Evidence{{listing(*by), ""}},
		Fix: []Fix{{Command: "accept ICMP type 3 and ICMPv6 type 2 before that rule",
			Effect: "opens this host for these messages"}},
	}}
}

// dropsTooBig returns the place that drops the message "packet too big" to a container, nil if none
// does.
func (s *State) dropsTooBig(m *member, a netip.Addr) *packet.Place {
	own := s.Host.Own()
	source := a
	for _, x := range own.Of(m.link.Index) {
		if x.Prefix.Addr().Is4() == a.Is4() && x.Scope == "global" {
			source = x.Prefix.Addr()
		}
	}
	p := &packet.Packet{Src: source, Dst: a, Protocol: unix.IPPROTO_ICMP, DstPort: 3<<8 | 4,
		TTL: 64, Length: 576, Out: packet.InterfaceOf(own, m.link),
		Conn: packet.Connection{State: packet.Related}}
	if a.Is6() {
		p.Protocol, p.DstPort = unix.IPPROTO_ICMPV6, 2<<8
	}
	r := s.firewall().rules.Hook(unix.NF_INET_LOCAL_OUT, p)
	if r.Verdict == packet.Drop || r.Verdict == packet.Reject {
		return r.By
	}
	return nil
}
