package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/network"
)

// checkInterfaces compares containers with the results of their ADDs.
func checkInterfaces(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partAttachments); err != nil {
		return nil, err
	}
	for i, a := range s.CNI.Attachments {
		n := s.namespaceOf(a)
		switch rec := s.Options.Records[i]; {
		case n == nil || rec.Result == nil || a.State != inspect.OK && a.State != inspect.InterfaceGone:
		case n.LinkByName(a.IfName) == nil:
			list = append(list, Finding{ID: "attachments.interface-gone", Severity: Error,
				Affects: []string{a.Container}, Objects: objects(a),
				Title: fmt.Sprintf(
					"%s has lost its interface %s (network %s)",
					a.Container,
					a.IfName,
					a.Network,
				),
				Evidence: []Evidence{{inside(a, "ip link show "+a.IfName), "does not exist"}},
				Fix: []Fix{{Command: attachAgain(a),
					Effect: "the container gets a new interface, perhaps with another address"}}})
		default:
			list = append(list, lost(a, rec, n)...)
		}
	}
	return list, nil
}

// objects returns the IDs of attachments, for [Finding.Objects].
func objects(list ...Attachment) (ids []string) {
	for _, a := range list {
		ids = append(ids, topology.AttachmentID(a.Attachment))
	}
	return ids
}

// namespaceOf returns the namespace of an attachment, nil if it was not read.
func (s *State) namespaceOf(a Attachment) *host.Namespace {
	return s.Host.At(a.Netns)
}

func inside(a Attachment, command string) string {
	return fmt.Sprintf("nsenter --net=%s %s", a.Netns, command)
}

func attachAgain(a Attachment) string {
	key := fmt.Sprintf("--id %s --ifname %s", a.Container, a.IfName)
	return fmt.Sprintf("tenon del %[1]s %[2]s %[3]s && tenon add %[1]s %[2]s %[3]s", a.Network,
		a.Netns, key)
}

// lost finds addresses and routes of a result that a container no longer has.
func lost(a Attachment, rec network.Record, n *host.Namespace) (list []Finding) {
	link := n.LinkByName(a.IfName)
	for _, ip := range rec.Result.IPs {
		if !ofInterface(rec.Result, ip, a.IfName) || has(n, link, ip.Address) {
			continue
		}
		list = append(list, Finding{ID: "attachments.address-lost", Severity: Error,
			Affects:  []string{a.Container},
			Objects:  objects(a),
			Title:    fmt.Sprintf("%s has lost its address %s", a.Container, ip.Address),
			Evidence: []Evidence{{inside(a, "ip addr show dev "+a.IfName), ""}},
			Fix: []Fix{{Command: inside(a, fmt.Sprintf("ip addr add %s dev %s", ip.Address,
				a.IfName))}}})
	}
	for _, r := range rec.Result.Routes {
		// Routes leave with the address. Check traffic.outside reports default routes.
		if reaches(n, r) || list != nil || r.Dst.Bits() == 0 {
			continue
		}
		command := fmt.Sprintf("ip route add %s dev %s", r.Dst, a.IfName)
		if r.GW.IsValid() {
			command = fmt.Sprintf("ip route add %s via %s dev %s", r.Dst, r.GW, a.IfName)
		}
		list = append(list, Finding{ID: "attachments.route-lost", Severity: Error,
			Affects:  []string{a.Container},
			Objects:  objects(a),
			Title:    fmt.Sprintf("%s has lost its route to %s", a.Container, r.Dst),
			Evidence: []Evidence{{inside(a, fmt.Sprintf("ip route show %s", r.Dst)), ""}},
			Fix:      []Fix{{Command: inside(a, command)}}})
	}
	return list
}

// ofInterface reports whether an address of a result belongs to the interface of the container.
func ofInterface(r *cni.Result, ip cni.IP, ifName string) bool {
	i, ok := ip.Interface.Get()
	if !ok {
		return true
	}
	return i >= 0 && i < len(r.Interfaces) && r.Interfaces[i].Name == ifName &&
		r.Interfaces[i].Sandbox != ""
}

func has(n *host.Namespace, link *host.Link, p netip.Prefix) bool {
	return slices.ContainsFunc(n.Addrs, func(x host.Addr) bool {
		return x.Link == link.Index && x.Prefix.Addr() == p.Addr()
	})
}

// reaches reports whether a container has a route of a result, in any table.
func reaches(n *host.Namespace, want cni.Route) bool {
	return slices.ContainsFunc(n.Routes, func(r host.Route) bool {
		return r.Dst.Masked() == want.Dst.Masked()
	})
}

// publication is a host port that an attachment has requested.
type publication struct {
	HostPort int    `json:"hostPort"`
	Protocol string `json:"protocol"`
	HostIP   string `json:"hostIP"`
}

// checkPorts finds host ports that several attachments have requested.
func checkPorts(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partAttachments); err != nil {
		return nil, err
	}
	type holder struct {
		Attachment
		publication
	}
	var held []holder
	for i, a := range s.CNI.Attachments {
		var asked []publication
		text := s.Options.Records[i].Capabilities["portMappings"]
		if a.State != inspect.OK || json.Unmarshal(text, &asked) != nil {
			continue
		}
		for _, p := range asked {
			p.Protocol = strings.ToLower(p.Protocol)
			if p.Protocol == "" {
				p.Protocol = "tcp"
			}
			for _, h := range held {
				if h.Container != a.Container && h.conflicts(p) {
					list = append(list, portConflict(h.Attachment, a, p))
				}
			}
			held = append(held, holder{a, p})
		}
	}
	return list, nil
}

// conflicts reports whether two requests claim the same port of an address.
func (p publication) conflicts(q publication) bool {
	all := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return p.HostPort == q.HostPort && p.Protocol == q.Protocol &&
		(p.HostIP == q.HostIP || all(p.HostIP) || all(q.HostIP))
}

func portConflict(first, second Attachment, p publication) Finding {
	return Finding{ID: "attachments.port-conflict", Severity: Error,
		Affects: []string{first.Container, second.Container}, Objects: objects(first, second),
		Title: fmt.Sprintf("port %d/%s of the host is published by container %s (network %s, %s) "+
			"and by %s", p.HostPort, p.Protocol, first.Container, first.Network, first.IfName,
			second.Container),
		Evidence: []Evidence{{"tenon ps --json", fmt.Sprintf("hostPort %d", p.HostPort)}},
		Fix: []Fix{{Command: fmt.Sprintf("tenon del %s - --id %s --ifname %s", second.Network,
			second.Container, second.IfName)},
			{Command: fmt.Sprintf("attach %s again with another port", second.Container)}}}
}
