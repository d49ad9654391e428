package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// Family is a family of tables.
type Family nftables.TableFamily

// The families.
const (
	INet   = Family(nftables.TableFamilyINet)
	IPv4   = Family(nftables.TableFamilyIPv4)
	IPv6   = Family(nftables.TableFamilyIPv6)
	Bridge = Family(nftables.TableFamilyBridge)
)

// String returns the family as nft(8) writes it.
func (f Family) String() string {
	switch f {
	case INet:
		return "inet"
	case IPv4:
		return "ip"
	case IPv6:
		return "ip6"
	case Bridge:
		return "bridge"
	}
	return fmt.Sprintf("family %d", byte(f))
}

// Table is a table that somebody else owns.
type Table struct {
	Family Family
	Name   string
}

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
	DNAT     netip.AddrPort // where it leads by destination NAT of nftables; not valid if it does not

	handle uint64
}

// Rules lists the rules of a chain. One that is not there has none.
func (c *Conn) Rules(t Table, chain string) ([]Rule, error) {
	list, err := c.c.GetRules(t.nft(), &nftables.Chain{Name: chain})
	if err != nil {
		return nil, fmt.Errorf("rules of nft chain %s %s %s: %w", t.Family, t.Name, chain, explain(err, lackingQuestion))
	}
	rules := make([]Rule, len(list))
	for i, r := range list {
		rules[i] = t.Family.rule(r)
	}
	return rules, nil
}

// HasChain reports whether a table has a chain.
func (c *Conn) HasChain(t Table, chain string) (bool, error) {
	_, err := c.chainUse(t.nft(), chain)
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
	base, err := c.c.ListChain(t.nft(), chain)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("nft chain %s %s %s: %w", t.Family, t.Name, chain, explain(err, lackingQuestion))
	}
	if base.Policy != nil && *base.Policy == nftables.ChainPolicyDrop {
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
	table := p.Table.nft()
	used := false
	for _, r := range rules {
		if !p.Match(r) {
			used = used || slices.Contains(chains, r.Jump)
			continue
		}
		rule := &nftables.Rule{Table: table, Chain: &nftables.Chain{Name: p.Base}, Handle: r.handle}
		_ = c.c.DelRule(rule) // Flush returns the error
	}
	if !used {
		for _, chain := range chains {
			c.c.FlushChain(&nftables.Chain{Table: table, Name: chain})
		}
		for _, chain := range chains {
			c.c.DelChain(&nftables.Chain{Table: table, Name: chain})
		}
	}
	if err := c.c.Flush(); err != nil {
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

func (t Table) nft() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamily(t.Family), Name: t.Name}
}

// rule reads a rule. A comparison takes the form: load something, perhaps mask it, compare it.
func (f Family) rule(r *nftables.Rule) Rule {
	out := Rule{Comment: comment(r.UserData), handle: r.Handle}
	var load expr.Any
	registers := map[uint32][]byte{}
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Immediate:
			registers[e.Register] = e.Data
		case *expr.NAT:
			if addr, ok := netip.AddrFromSlice(registers[e.RegAddrMin]); ok && e.Type == expr.NATTypeDestNAT {
				out.DNAT = netip.AddrPortFrom(addr, port(registers[e.RegProtoMin]))
			}
		case *expr.Meta, *expr.Payload, *expr.Ct, *expr.Fib:
			load = e
		case *expr.Cmp:
			if e.Op != expr.CmpOpEq || !f.compare(&out, load, e.Data) {
				out.Others++
			}
		case *expr.Lookup, *expr.Range, *expr.Limit:
			out.Others++
		case *expr.Verdict:
			out.Jump, out.Verdict = e.Chain, verdict(e.Kind)
		case *expr.Reject:
			out.Verdict = "reject"
		case *expr.Target:
			out.Verdict = e.Name
		case *expr.Match:
			if text, ok := e.Info.(*xt.Comment); ok {
				out.Comment = string(*text)
			} else {
				out.Others++
			}
		}
	}
	return out
}

// verdict names those that a [Rule] tells.
func verdict(kind expr.VerdictKind) string {
	switch kind {
	case expr.VerdictAccept:
		return "accept"
	case expr.VerdictDrop:
		return "drop"
	case expr.VerdictReturn:
		return "return"
	}
	return ""
}

// compare notes what a rule compares with data, unless that is something else.
func (f Family) compare(r *Rule, load expr.Any, data []byte) bool {
	name := func() string { return string(bytes.TrimRight(data, "\x00")) }
	switch load := load.(type) {
	case *expr.Meta:
		switch load.Key {
		case expr.MetaKeyIIFNAME:
			r.IIFName = name()
		case expr.MetaKeyOIFNAME:
			r.OIFName = name()
		case expr.MetaKeyL4PROTO:
			r.Protocol = data[0]
			return false
		default:
			return false
		}
		return true
	case *expr.Payload:
		if load.Base == expr.PayloadBaseTransportHeader && load.Offset == 2 {
			r.Port = port(data)
			return false
		}
		return f.compareAddr(r, load, data)
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
func (f Family) compareAddr(r *Rule, load *expr.Payload, data []byte) bool {
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

// comment returns the comment in the data that nft keeps with a rule: entries of type, length and value, of which a
// comment has type 0.
func comment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		value := data[2 : 2+int(data[1])]
		if data[0] == 0 {
			return string(bytes.TrimRight(value, "\x00"))
		}
		data = data[2+len(value):]
	}
	return ""
}
