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

const (
	INet   = nftmsg.INet
	IPv4   = nftmsg.IPv4
	IPv6   = nftmsg.IPv6
	Bridge = nftmsg.Bridge
)

// Table is a table of any program.
type Table = nftmsg.Table

// Rule is the part of a rule that identifies its owner and its effect. A field is zero if the rule
// lacks the comparison or the action.
type Rule struct {
	Comment string     // of nft or of iptables
	Jump    string     // the chain that it jumps or goes to
	Source  netip.Addr // compared with the source; of a network, its network part
	Dest    netip.Addr // the same of the destination
	IIFName string     // compared with the name of the incoming interface
	OIFName string     // the same of the outgoing interface
	Verdict string     // "accept", "drop", "reject", "return", or the name of a target of iptables
	Others  int        // the number of conditions without a field here

	Protocol byte           // compared with the transport protocol; counted in Others
	Port     uint16         // the same of the destination port
	DNAT     netip.AddrPort // the target of destination NAT

	handle uint64
}

// Handle returns the number of the rule in its table.
func (r Rule) Handle() uint64 { return r.handle }

// Rules lists the rules of a chain, none if it does not exist.
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

// Describe returns the owner and the effect of a rule of a listed ruleset.
func Describe(r nftmsg.ListedRule) Rule {
	return ruleOf(r.Table.Family, nftmsg.Rule{Handle: r.Handle, Comment: r.Comment, Exprs: r.Exprs})
}

// RawRules lists the rules of a chain with all their expressions, none if it does not exist.
func (c *Conn) RawRules(t Table, chain string) ([]nftmsg.Rule, error) {
	list, err := c.messages.Rules(t, chain)
	if err != nil {
		return nil, fmt.Errorf("rules of nft chain %s %s %s: %w", t.Family, t.Name, chain,
			explain(err, lackingQuestion))
	}
	return list, nil
}

// HasTable reports whether a table exists.
func (c *Conn) HasTable(t Table) (bool, error) {
	ok, err := c.messages.HasTable(t)
	if err != nil {
		return false, fmt.Errorf("nft table %s %s: %w", t.Family, t.Name,
			explain(err, lackingQuestion))
	}
	return ok, nil
}

// HasChain reports whether a table has a chain.
func (c *Conn) HasChain(t Table, chain string) (bool, error) {
	_, ok, err := c.chain(t, chain)
	return ok, err
}

// longestChain is the length of the longest name of a chain (NFT_NAME_MAXLEN of nf_tables.h, less the
// NUL). The kernel refuses a question about a longer one with ERANGE.
const longestChain = 255

func (c *Conn) chain(t Table, chain string) (state nftmsg.ChainState, exists bool, err error) {
	if len(chain) > longestChain {
		return state, false, nil
	}
	state, err = c.messages.Chain(t, chain)
	if errors.Is(err, unix.ENOENT) {
		return state, false, nil
	}
	if err != nil {
		err = fmt.Errorf("nft chain %s %s %s: %w", t.Family, t.Name, chain,
			explain(err, lackingQuestion))
	}
	return state, err == nil, err
}

// Drops reports whether a base chain drops each packet that none of its rules accepts, by its
// policy or by a last rule without conditions. A chain that does not exist drops no packet.
func (c *Conn) Drops(t Table, chain string) (bool, error) {
	base, exists, err := c.chain(t, chain)
	if !exists || base.Drops {
		return exists, err
	}
	rules, err := c.Rules(t, chain)
	if err != nil || len(rules) == 0 {
		return false, err
	}
	last := rules[len(rules)-1]
	last.Comment, last.handle = "", 0
	return last == Rule{Verdict: "drop"} || last == Rule{Verdict: "reject"} ||
		last == Rule{Verdict: "REJECT"}, nil
}

// Pruning selects rules and chains to remove from the table of another program.
type Pruning struct {
	Table Table
	Base  string          // remove rules of this chain
	Match func(Rule) bool // selects the rules to remove
	// Prune also removes Chains unless a remaining rule of Base jumps to one of them. If Chains is
	// not empty and the first one does not exist, Prune does nothing and does not even read the
	// rules of Base.
	Chains []string
	Unless func(Rule) bool // Prune does nothing while a rule of Chains matches; may be nil
}

// Prune removes rules and chains in one transaction.
func (c *Conn) Prune(ctx context.Context, p Pruning) error {
	return c.retry(ctx, func() error { return c.prune(p) })
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
	for _, r := range rules {
		if p.Match(r) {
			t.DeleteRule(nftmsg.Chain{Table: p.Table, Name: p.Base}, r.handle)
		} else if slices.Contains(chains, r.Jump) {
			chains = nil // in use
		}
	}
	for _, chain := range chains {
		t.FlushChain(nftmsg.Chain{Table: p.Table, Name: chain})
	}
	for _, chain := range chains {
		t.DeleteChain(nftmsg.Chain{Table: p.Table, Name: chain})
	}
	if err := c.messages.Commit(&t); err != nil {
		return fmt.Errorf("remove from nft table %s %s: %w", p.Table.Family, p.Table.Name, err)
	}
	return nil
}

// needed reports whether a rule of the chains matches Unless.
func (c *Conn) needed(p Pruning, chains []string) (bool, error) {
	if p.Unless == nil {
		return false, nil
	}
	for _, chain := range chains {
		if rules, err := c.Rules(p.Table, chain); err != nil ||
			slices.ContainsFunc(rules, p.Unless) {
			return true, err
		}
	}
	return false, nil
}

// ruleOf decodes a rule of a table of the family. A comparison has the form: load a value, perhaps
// mask it, compare it.
func ruleOf(f Family, r nftmsg.Rule) Rule {
	verdicts := map[int32]string{nftmsg.Accept: "accept", nftmsg.Drop: "drop",
		unix.NFT_RETURN: "return"}
	out := Rule{Comment: r.Comment, handle: r.Handle}
	var load any
	for _, raw := range r.Exprs {
		switch e := raw.Read().(type) {
		case nftmsg.Immediate: // an operand of another expression
		case nftmsg.NAT:
			out.DNAT, _ = nftmsg.Destination(f, r.Exprs)
		case nftmsg.Cmp:
			if e.Op != unix.NFT_CMP_EQ || !compare(f, &out, load, e.Data) {
				out.Others++
			}
		case nftmsg.Verdict:
			out.Jump, out.Verdict = e.Chain, verdicts[e.Code]
		case nftmsg.Target:
			out.Verdict = e.Name
			out.DNAT, _ = nftmsg.Destination(f, r.Exprs)
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
			case "bitwise": // with more than a mask
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

// XTablesDNAT decodes the lowest address and port of the target DNAT, of both variants of iptables. The
// result is invalid if the target keeps the address.
func XTablesDNAT(f Family, info []byte) netip.AddrPort {
	to, ok := nftmsg.NATRange(f, info)
	if !ok || !to.Addr().IsValid() {
		return netip.AddrPort{}
	}
	return to
}

// compare sets the field of r that load names, and reports whether it is a field that Others does
// not count.
func compare(f Family, r *Rule, load any, data []byte) bool {
	switch load := load.(type) {
	case nftmsg.Meta:
		switch load.Key {
		case unix.NFT_META_IIFNAME:
			r.IIFName = netlink.Text(data)
			return true
		case unix.NFT_META_OIFNAME:
			r.OIFName = netlink.Text(data)
			return true
		case unix.NFT_META_L4PROTO:
			if len(data) == 1 {
				r.Protocol = data[0]
			}
		}
	case nftmsg.Payload:
		if load.Base != unix.NFT_PAYLOAD_TRANSPORT_HEADER || load.Offset != 2 {
			return compareAddr(f, r, load, data)
		}
		r.Port = port(data)
	}
	return false
}

// port decodes a port, 0 if data is too short.
func port(data []byte) uint16 {
	if len(data) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(data)
}

// compareAddr sets an address of r. If a prefix length is a multiple of 8, the rule loads only the
// network part.
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
