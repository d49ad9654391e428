// Package nat lists the translations in the ruleset of a namespace, of all programs: ports of the
// host that lead to containers, and addresses that packets lose on their way out. It decodes the
// rules and elements that package host has read. It does not decide which of them a packet meets.
package nat

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Kind is the kind of a translation.
type Kind string

// The kinds. A masquerade takes the new source from the outgoing interface.
const (
	Port       Kind = "dnat"
	Masquerade Kind = "masquerade"
)

// Translation is an element of Tenon's sets, or a rule of another program.
type Translation struct {
	Kind    Kind
	Place   string // "map dnat4 of table inet tenon", "chain DOCKER of table ip nat"
	Table   string // the name of the table
	Chain   string // "" for an element
	Tenon   bool   // an element of Tenon
	Comment string // of the element or rule, or of the rule that jumps to its chain
	Packets *uint64

	// Of ports.
	Protocol    string     // tcp, udp, sctp
	Host        netip.Addr // invalid: any
	First, Last uint16
	To          netip.AddrPort

	// Source is the address of the packets, or the first of a network; invalid: any.
	Source netip.Addr
	// Out is the name of the outgoing interface, "" if the rule does not compare it.
	Out string
	// Conditional reports that the rule has other conditions, or that its chain is no base chain.
	Conditional bool
}

// List lists the translations of a ruleset, in the order of its sets and rules. others is the
// number of rules with a DNAT to a container that do not compare a port, such as rules of
// kube-proxy.
func List(r *nftmsg.Ruleset) (list []Translation, others int) {
	if r == nil {
		return nil, 0
	}
	for _, h := range nft.HeldIn(r, nft.Publishing) {
		if m, ok := nft.Published(h); ok {
			list = append(list, Translation{Kind: Port, Place: "map " + h.Set + " of table inet tenon",
				Table: "tenon", Tenon: true, Comment: h.Comment, Protocol: protocol(m.Protocol),
				Host: m.Host, First: m.First, Last: m.Last, To: m.To})
		}
	}
	for _, h := range nft.HeldIn(r, nft.Masquerading) {
		if a, ok := netip.AddrFromSlice(h.Key); ok && strings.HasPrefix(h.Set, "masq") {
			list = append(list, Translation{Kind: Masquerade, Place: "set " + h.Set + " of table inet tenon",
				Table: "tenon", Tenon: true, Comment: h.Comment, Source: a})
		}
	}
	jumps, bases := comments(r), map[chain]bool{}
	for _, c := range r.Chains {
		bases[chain{c.Table, c.Name}] = c.Base
	}
	for _, rule := range r.Rules {
		t, ok := decode(rule)
		if !ok || rule.Table.Name == "tenon" {
			continue
		}
		t.Conditional = t.Conditional || !bases[chain{rule.Table, rule.Chain}]
		if t.Comment == "" {
			t.Comment = jumps[chain{rule.Table, rule.Chain}]
		}
		if t.Kind == Port && t.First == 0 {
			others++
			continue
		}
		list = append(list, t)
	}
	return list, others
}

// chain names a chain.
type chain struct {
	table nftmsg.Table
	name  string
}

// comments returns the comments of the rules that jump to a chain.
func comments(r *nftmsg.Ruleset) map[chain]string {
	jumps := map[chain]string{}
	for _, rule := range r.Rules {
		d := nft.Describe(rule)
		if d.Jump != "" && d.Comment != "" {
			jumps[chain{rule.Table, d.Jump}] = d.Comment
		}
	}
	return jumps
}

// decode decodes a rule of another program that translates.
func decode(rule nftmsg.ListedRule) (t Translation, ok bool) {
	d := nft.Describe(rule)
	t = Translation{Kind: Port, Comment: d.Comment, Table: rule.Table.Name, Chain: rule.Chain,
		Place:  "chain " + rule.Chain + " of table " + rule.Table.Family.String() + " " + rule.Table.Name,
		Source: d.Source, Out: d.OIFName, Conditional: d.Others > 0}
	var load nftmsg.Payload // of the last payload expression
	for _, e := range rule.Exprs {
		if packets, _, counts := e.Counter(); counts {
			t.Packets = &packets
		}
		switch x := e.Read().(type) {
		case nftmsg.Payload:
			load = x
		case nftmsg.Range:
			t.ports(load, x)
		case nftmsg.Match:
			t.match(x)
		case nftmsg.Target:
			ok = ok || x.Name == "MASQUERADE"
		case nftmsg.Raw:
			ok = ok || x.Name == "masq"
		}
	}
	if ok {
		t.Kind = Masquerade
		return t, true
	}
	if d.Port != 0 {
		t.First, t.Last = d.Port, d.Port
	}
	if d.Protocol != 0 {
		t.Protocol = protocol(d.Protocol)
	}
	t.Host, t.To = d.Dest, d.DNAT
	if t.To.Port() == 0 && t.To.IsValid() {
		t.To = netip.AddrPortFrom(t.To.Addr(), t.First)
	}
	return t, d.DNAT.Addr().IsValid()
}

// ports decodes a range of destination ports.
func (t *Translation) ports(load nftmsg.Payload, x nftmsg.Range) {
	const offset, size = 2, 2 // in the headers of TCP, UDP and SCTP
	if load.Base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && load.Offset == offset &&
		x.Op == unix.NFT_RANGE_EQ &&
		len(x.From) == size && len(x.To) == size {
		t.First, t.Last = binary.BigEndian.Uint16(x.From), binary.BigEndian.Uint16(x.To)
	}
}

// match decodes the destination ports of the conditions tcp and udp of iptables (struct xt_tcp and
// xt_udp in include/uapi/linux/netfilter/xt_tcpudp.h).
func (t *Translation) match(m nftmsg.Match) {
	const ports, size = 4, 8
	if m.Name != "tcp" && m.Name != "udp" || len(m.Info) < size {
		return
	}
	first, last := binary.NativeEndian.Uint16(m.Info[ports:]),
		binary.NativeEndian.Uint16(m.Info[ports+2:])
	t.Protocol = m.Name
	if first != 0 || last != 0xffff {
		t.First, t.Last = first, last
	}
}

func protocol(p byte) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol %d", p)
}
