package bundle

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/nft/nfttext"
)

// HostText describes the namespaces of a host in the words of ip(8), for readers without Tenon.
func HostText(h *host.Host, name func(*host.Namespace) string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "host %s, kernel %s, boot %s, %s\n", h.Name, h.Kernel, h.BootID, h.Time)
	for i := range h.Namespaces {
		n := &h.Namespaces[i]
		fmt.Fprintf(&b, "\n== %s (%s) %s\n", name(n), n.ID, strings.Join(n.Paths, " "))
		for _, l := range n.Links {
			fmt.Fprintf(&b, "%d: %s %s mtu %d %s state %s%s\n", l.Index, l.Name, l.Kind, l.MTU,
				strings.Join(l.Flags, ","), l.OperState, ports(n, l))
			for _, a := range n.Of(l.Index) {
				fmt.Fprintf(&b, "    %s scope %s %s\n", a.Prefix, a.Scope, strings.Join(a.Flags, ","))
			}
		}
		for _, r := range n.Rules {
			fmt.Fprintf(&b, "rule %s %d:%s %s %d\n", r.Family, r.Priority, conditions(r), r.Action, r.Table)
		}
		for _, r := range n.Routes {
			fmt.Fprintf(&b, "route %s %s table %d proto %d metric %d%s\n", r.Type, r.Dst, r.Table,
				r.Protocol, r.Metric, hops(n, r))
		}
		for _, e := range n.Neighbours {
			fmt.Fprintf(&b, "neighbour %s dev %s %s %s\n", e.Addr, linkName(n, e.Link), e.MAC, e.State)
		}
	}
	return b.Bytes()
}

// conditions returns the conditions of a rule, " from all" without any.
func conditions(r host.Rule) (text string) {
	for _, c := range []struct{ name, value string }{
		{"from", prefix(r.Src)}, {"to", prefix(r.Dst)}, {"iif", r.IIF}, {"oif", r.OIF},
	} {
		if c.value != "" {
			text += " " + c.name + " " + c.value
		}
	}
	if r.Mark != 0 || r.Mask != 0 {
		text += fmt.Sprintf(" fwmark %#x/%#x", r.Mark, r.Mask)
	}
	if r.Invert {
		text = " not" + text
	}
	if r.Other {
		text += " and other conditions"
	}
	return cmp.Or(text, " from all")
}

func prefix(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func ports(n *host.Namespace, l host.Link) (text string) {
	if l.Master != 0 {
		text += " master " + linkName(n, l.Master)
	}
	if l.Alias != "" {
		text += " alias " + l.Alias
	}
	return text
}

func hops(n *host.Namespace, r host.Route) (text string) {
	for _, h := range r.Hops {
		if h.Via.IsValid() {
			text += " via " + h.Via.String()
		}
		if h.Link != 0 {
			text += " dev " + linkName(n, h.Link)
		}
	}
	return text
}

func linkName(n *host.Namespace, index int) string {
	if l := n.Link(index); l != nil {
		return l.Name
	}
	return fmt.Sprintf("if%d", index)
}

// RulesText writes the rule sets of all namespaces in the language of nft(8).
func RulesText(h *host.Host, name func(*host.Namespace) string) ([]byte, error) {
	var b bytes.Buffer
	for i := range h.Namespaces {
		n := &h.Namespaces[i]
		if n.Ruleset == nil || len(n.Ruleset.Tables) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# %s\n", name(n))
		if err := nfttext.Write(&b, n.Ruleset); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
