package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Family is a family of tables.
type Family = nftmsg.Family

// The families.
const (
	INet   = nftmsg.INet
	IPv4   = nftmsg.IPv4
	IPv6   = nftmsg.IPv6
	Bridge = nftmsg.Bridge
)

// Table is a table that somebody else owns.
type Table = nftmsg.Table

// Rule is what tells to whom a rule belongs.
type Rule struct {
	Comment string     // of nft or of iptables
	Jump    string     // the chain it jumps or goes to, "" if it does not
	Source  netip.Addr // what it compares the source address with, its network part if it is a network; not valid if it does not
	Dest    netip.Addr // the same of the destination
	IIFName string     // what it compares the name of the incoming interface with, "" if it does not
	OIFName string     // the same of the outgoing interface
	Verdict string     // "accept", "drop", "reject", "return", or the name of a target of iptables; "" if it has none of these
	Others  int        // how many conditions it has besides

	Protocol byte           // what it compares the transport protocol with, 0 if it does not; one of Others
	Port     uint16         // the same of the destination port
	DNAT     netip.AddrPort // where it leads by destination NAT; not valid if it does not

	handle uint64
}

// Rules lists the rules of a chain. One that is not there has none.
func (c *Conn) Rules(t Table, chain string) ([]Rule, error) {
	list, err := c.RawRules(t, chain)
	if err != nil {
		return nil, err
	}
	rules := make([]Rule, len(list))
	for i, r := range list {
		rules[i] = ruleOf(t.Family, r)
	}
	return rules, nil
}

// RawRules is Rules, with all that the kernel says of them.
func (c *Conn) RawRules(t Table, chain string) ([]nftmsg.Rule, error) {
	list, err := c.messages.Rules(t, chain)
	if err != nil {
		return nil, fmt.Errorf("rules of nft chain %s %s %s: %w", t.Family, t.Name, chain, explain(err, lackingQuestion))
	}
	return list, nil
}

// HasTable reports whether there is a table.
func (c *Conn) HasTable(t Table) (bool, error) {
	ok, err := c.messages.HasTable(t)
	if err != nil {
		return false, fmt.Errorf("nft table %s %s: %w", t.Family, t.Name, explain(err, lackingQuestion))
	}
	return ok, nil
}

// HasChain reports whether a table has a chain.
func (c *Conn) HasChain(t Table, chain string) (bool, error) {
	_, err := c.messages.Chain(t, chain)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("nft chain %s %s %s: %w", t.Family, t.Name, chain, explain(err, lackingQuestion))
	}
	return true, nil
}

// Drops reports whether nothing gets past a base chain that none of its rules accepts: by its policy, or by a last rule that
// is for everything. One that is not there stops nothing.
func (c *Conn) Drops(t Table, chain string) (bool, error) {
	base, err := c.messages.Chain(t, chain)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("nft chain %s %s %s: %w", t.Family, t.Name, chain, explain(err, lackingQuestion))
	}
	if base.Drops {
		return true, nil
	}
	rules, err := c.Rules(t, chain)
	if err != nil || len(rules) == 0 {
		return false, err
	}
	last := rules[len(rules)-1]
	last.Comment, last.handle = "", 0
	return last == Rule{Verdict: "drop"} || last == Rule{Verdict: "reject"} || last == Rule{Verdict: "REJECT"}, nil
}

// Pruning is what to remove from the table of somebody else.
type Pruning struct {
	Table Table
	Base  string          // the rules of this chain
	Match func(Rule) bool // that match
	// Chains are removed too when no rule of Base is left that jumps to one of them. If any are named, but the first
	// is not there, nothing is done, and the rules of Base are not even read.
	Chains []string
	Unless func(Rule) bool // nothing is done while a rule of Chains matches; may be nil
}

// Prune removes rules and chains in one transaction. Nothing is sent when there are none.
func (c *Conn) Prune(ctx context.Context, p Pruning) error {
	return c.locked(ctx, func() (err error) {
		for range attempts {
			// What was read may be gone, and a chain may have got a new rule that jumps to it.
			if err = c.prune(p); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
				return err
			}
		}
		return err
	})
}

func (c *Conn) prune(p Pruning) error {
	var chains []string
	for i, chain := range p.Chains {
		ok, err := c.HasChain(p.Table, chain)
		if err != nil || !ok && i == 0 {
			return err
		}
		if ok {
			chains = append(chains, chain)
		}
	}
	if needed, err := c.needed(p, chains); needed || err != nil {
		return err
	}
	rules, err := c.Rules(p.Table, p.Base)
	if err != nil {
		return err
	}
	var t nftmsg.Transaction
	used := false
	for _, r := range rules {
		if p.Match(r) {
			t.DeleteRule(nftmsg.Chain{Table: p.Table, Name: p.Base}, r.handle)
		} else {
			used = used || slices.Contains(chains, r.Jump)
		}
	}
	if !used {
		for _, chain := range chains {
			t.FlushChain(nftmsg.Chain{Table: p.Table, Name: chain})
		}
		for _, chain := range chains {
			t.DeleteChain(nftmsg.Chain{Table: p.Table, Name: chain})
		}
	}
	if err := c.messages.Commit(&t); err != nil {
		return fmt.Errorf("remove from nft table %s %s: %w", p.Table.Family, p.Table.Name, err)
	}
	return nil
}

// needed reports whether a rule of the chains keeps all that is to go.
func (c *Conn) needed(p Pruning, chains []string) (bool, error) {
	if p.Unless == nil {
		return false, nil
	}
	for _, chain := range chains {
		if rules, err := c.Rules(p.Table, chain); err != nil || slices.ContainsFunc(rules, p.Unless) {
			return true, err
		}
	}
	return false, nil
}

// ruleOf reads a rule of a table of the family. A comparison takes the form: load something, perhaps mask it, compare it.
func ruleOf(f Family, r nftmsg.Rule) Rule {
	out := Rule{Comment: r.Comment, handle: r.Handle}
	var load any
	registers := map[uint32][]byte{}
	for _, raw := range r.Exprs {
		switch e := raw.Read().(type) {
		case nftmsg.Immediate:
			registers[e.Register] = e.Value
		case nftmsg.NAT:
			if addr, ok := netip.AddrFromSlice(registers[e.Addr]); ok && e.Type == unix.NFT_NAT_DNAT {
				out.DNAT = netip.AddrPortFrom(addr, port(registers[e.Port]))
			}
		case nftmsg.Cmp:
			if e.Op != unix.NFT_CMP_EQ || !compare(f, &out, load, e.Data) {
				out.Others++
			}
		case nftmsg.Verdict:
			out.Jump, out.Verdict = e.Chain, verdict(e)
		case nftmsg.Target:
			out.Verdict = e.Name
			if e.Name == "DNAT" {
				out.DNAT = xtablesDNAT(f, e.Info)
			}
		case nftmsg.Match:
			if e.Name == "comment" {
				out.Comment = netlink.Text(e.Info)
			} else {
				out.Others++
			}
		case nftmsg.Mask: // applies to the loaded value
		case nftmsg.Range:
			out.Others++
		case nftmsg.Raw:
			switch e.Name {
			case "bitwise": // the same
			case "reject":
				out.Verdict = e.Name
			case "lookup", "limit", "quota", "connlimit", "dynset":
				out.Others++
			default:
				load = e
			}
		default:
			load = e
		}
	}
	return out
}

// xtablesDNAT reads the lowest address and port of the target DNAT (struct nf_nat_ipv4_multi_range_compat and
// struct nf_nat_range in include/uapi/linux/netfilter/nf_nat.h, with what follows).
func xtablesDNAT(f Family, info []byte) netip.AddrPort {
	const flags, oldSize, addrs, ports = 4, 20, 32, 4 // bytes
	at, length, portAt := flags, addrLen6, flags+addrs
	if f == IPv4 {
		length = addrLen4
		if len(info) == alignTarget(oldSize) { // revision 0: how many ranges, then one
			at, portAt = 8, 16
		}
	}
	if len(info) < portAt+ports {
		return netip.AddrPort{}
	}
	a, _ := netip.AddrFromSlice(info[at : at+length])
	return netip.AddrPortFrom(a, port(info[portAt:]))
}

// alignTarget returns the size of a structure with its padding, as XT_ALIGN does.
func alignTarget(n int) int { return (n + 7) &^ 7 }

// verdict names those that a [Rule] tells.
func verdict(v nftmsg.Verdict) string {
	switch v.Code {
	case nftmsg.Accept:
		return "accept"
	case nftmsg.Drop:
		return "drop"
	case unix.NFT_RETURN:
		return "return"
	}
	return ""
}

// compare notes what a rule compares with data, unless that is something else.
func compare(f Family, r *Rule, load any, data []byte) bool {
	name := func() string { return netlink.Text(data) }
	switch load := load.(type) {
	case nftmsg.Meta:
		switch {
		case load.Key == unix.NFT_META_IIFNAME:
			r.IIFName = name()
		case load.Key == unix.NFT_META_OIFNAME:
			r.OIFName = name()
		case load.Key == unix.NFT_META_L4PROTO && len(data) == 1:
			r.Protocol = data[0]
			return false
		default:
			return false
		}
		return true
	case nftmsg.Payload:
		if load.Base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && load.Offset == 2 {
			r.Port = port(data)
			return false
		}
		return compareAddr(f, r, load, data)
	}
	return false
}

// port reads a port, 0 if it is none.
func port(data []byte) uint16 {
	if len(data) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(data)
}

// compareAddr notes an address. Of a network whose length is a multiple of 8 only the network part is loaded.
func compareAddr(f Family, r *Rule, load nftmsg.Payload, data []byte) bool {
	full, source, dest := 4, ip4().saddr, ip4().daddr
	if f == IPv6 || f == INet && len(data) == 16 {
		full, source, dest = 16, ip6().saddr, ip6().daddr
	}
	if f == Bridge || load.Base != source.Base || len(data) > full {
		return false
	}
	addr, _ := netip.AddrFromSlice(append(bytes.Clone(data), make([]byte, full-len(data))...))
	switch load.Offset {
	case source.Offset:
		r.Source = addr
	case dest.Offset:
		r.Dest = addr
	default:
		return false
	}
	return true
}
