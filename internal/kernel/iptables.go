package kernel

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
	"github.com/tenon-cni/tenon/internal/nft"
)

var (
	// ErrNoIPTables reports that iptables is not installed, or not in PATH.
	ErrNoIPTables = iptables.ErrNoTool
	// ErrNoIPTablesRule reports that a rule of iptables does not exist.
	ErrNoIPTablesRule = iptables.ErrMissing
)

// Family is IPv4 or IPv6.
type Family = iptables.Family

// The families.
const (
	IPv4 = iptables.IPv4
	IPv6 = iptables.IPv6
)

// MaxIPTablesComment is the maximum length in bytes of a comment in an iptables rule.
const MaxIPTablesComment = iptables.MaxComment

// Rules and tables of iptables.
type (
	IPTablesRule       = iptables.Rule
	IPTablesTable      = iptables.Table
	IPTablesEdit       = iptables.Edit
	IPTablesRemoval    = iptables.Removal
	IPTablesMasquerade = iptables.Masquerade
)

// QuoteIPTables returns a word in the syntax of iptables rules, in quotes if necessary.
func QuoteIPTables(word string) string { return iptables.Quote(word) }

// IPTablesAvailable returns nil if iptables is installed for these families, or for both if none is
// given. Otherwise it returns an error that wraps [ErrNoIPTables].
func IPTablesAvailable(families ...Family) error { return iptables.Available(families...) }

// IPTablesDrops reports whether the host forwards only packets of a family that rules of iptables
// accept. It returns true for a legacy filter table, because reading that would need a process.
func (s Rules) IPTablesDrops(f Family) (bool, error) {
	t := iptables.Table{Family: f, Name: "filter"}
	if legacy, err := t.HasLegacy(s.space.NS); legacy || err != nil {
		return legacy, err
	}
	drops, err := ask(s, func(c *nft.Conn) (bool, error) { return c.Drops(nftTable(t), "FORWARD") })
	return drops, UnlessNoNFT(err)
}

// IPTables selects rules in tables of iptables and ip6tables, to list or remove them.
type IPTables struct {
	Table string // "nat", "filter"
	iptables.Removal
}

var bothFamilies = []Family{IPv4, IPv6}

// nftTable returns the nftables table in which iptables-nft keeps a table.
func nftTable(t iptables.Table) Table {
	return Table{Family: tableFamily(t.Family), Name: t.Name}
}

func tableFamily(f Family) nft.Family { return [...]nft.Family{nft.IPv4, nft.IPv6}[f] }

func ruleOf(chain string, r Rule) IPTablesRule {
	target := r.Jump
	if target == "" {
		target = strings.ToUpper(r.Verdict)
	}
	return IPTablesRule{
		Chain: chain, Target: target, Comment: r.Comment, Source: r.Source, Dest: r.Dest,
		In: r.IIFName, Out: r.OIFName, Others: r.Others,
	}
}

// RemoveIPTables removes rules and chains from the tables of both families. Rollback does not
// restore them. If there are no legacy tables, it starts no process.
func (s Rules) RemoveIPTables(what IPTables) error {
	return s.space.tx.Do(strings.TrimSpace("remove from iptables "+what.In+" "+what.Target), func() error {
		var errs []error
		for _, f := range bothFamilies {
			t := iptables.Table{Family: f, Name: what.Table}
			errs = append(errs, s.space.removeNFT(t, what), s.space.removeLegacy(t, what))
		}
		return errors.Join(errs...)
	}, nil)
}

func (s *Space) removeNFT(t iptables.Table, what IPTables) error {
	c, err := s.rules()
	if err != nil {
		return UnlessNoNFT(err)
	}
	targets := []string{what.Target}
	if what.Target == "" {
		if targets, err = s.targets(t, what); err != nil {
			return err
		}
	}
	var errs []error
	for _, target := range targets {
		p := nft.Pruning{
			Table: nftTable(t), Base: what.In,
			Match: func(r Rule) bool { return r.Jump == target && what.Matches(ruleOf(what.In, r)) },
		}
		if target != "" {
			p.Chains = append([]string{target}, what.Also...)
		}
		if what.Unless != nil {
			p.Unless = func(r Rule) bool { return what.Unless(ruleOf("", r)) }
		}
		errs = append(errs, UnlessNoNFT(c.Prune(s.tx.ctx, p)))
	}
	return errors.Join(errs...)
}

// targets lists the chains to which matching rules jump, and last "" if a matching rule jumps to
// none.
func (s *Space) targets(t iptables.Table, what IPTables) (chains []string, err error) {
	rules, err := s.Rules.Of(nftTable(t), what.In)
	others := false
	for _, r := range rules {
		switch {
		case !what.Matches(ruleOf(what.In, r)):
		case r.Jump == "":
			others = true
		case !slices.Contains(chains, r.Jump):
			chains = append(chains, r.Jump)
		}
	}
	if others {
		chains = append(chains, "")
	}
	return chains, UnlessNoNFT(err)
}

func (s *Space) removeLegacy(t iptables.Table, what IPTables) error {
	if ok, err := s.hasLegacy(t, what); !ok {
		return err
	}
	unlock, err := s.NS.Lock(s.tx.ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = t.LegacyRemove(s.tx.ctx, s.NS, what.Removal)
	if errors.Is(err, ErrNoIPTables) { // without the tool there are no rules
		return nil
	}
	return err
}

// hasLegacy reports whether a legacy table may contain rules to be removed. Only a nat table can be
// read without starting a process.
func (s *Space) hasLegacy(t iptables.Table, what IPTables) (bool, error) {
	if t.Name != "nat" {
		return t.HasLegacy(s.NS)
	}
	_, there, err := s.legacyMatches(t.Family, what)
	return there, err
}

// legacyMatches returns the matching rules of a legacy nat table. there reports whether such a rule
// or the chain of what.Target exists.
func (s *Space) legacyMatches(f Family, what IPTables) (rules []IPTablesRule, there bool, err error) {
	tables := hostnat.Open(s.NS, f, nil)
	defer tables.Close()
	if what.Target != "" {
		if _, there, err = tables.LegacyRules(what.Target); err != nil {
			return nil, false, err
		}
	}
	list, _, err := tables.LegacyRules(what.In)
	for _, r := range list {
		if rule := natRuleOf(what.In, r); what.Matches(rule) {
			rules = append(rules, rule)
		}
	}
	return rules, there || len(rules) > 0, err
}

// natRuleOf converts a rule of a nat table.
func natRuleOf(chain string, r hostnat.Rule) IPTablesRule {
	out := IPTablesRule{Chain: chain, Target: cmp.Or(r.Chain, r.Target), Comment: r.Comment, Others: len(r.Others)}
	if r.Source.IsValid() && !r.Source.Not {
		out.Source = r.Source.Addr()
	}
	if r.Dest.IsValid() && !r.Dest.Not {
		out.Dest = r.Dest.Addr()
	}
	return out
}

// OfIPTables lists matching rules of the nat tables of both families.
func (s Rules) OfIPTables(what IPTables) (rules []IPTablesRule, err error) {
	for _, f := range bothFamilies {
		newer, err := s.space.nftRules(iptables.Table{Family: f, Name: "nat"}, what)
		if err != nil {
			return nil, err
		}
		legacy, _, err := s.space.legacyMatches(f, what)
		if err != nil {
			return nil, err
		}
		rules = append(append(rules, newer...), legacy...)
	}
	return rules, nil
}

// nftRules lists matching rules, none if the chain of what.Target does not exist.
func (s *Space) nftRules(t iptables.Table, what IPTables) (rules []IPTablesRule, err error) {
	if what.Target != "" {
		if ok, err := s.Rules.HasChain(nftTable(t), what.Target); !ok {
			return nil, UnlessNoNFT(err)
		}
	}
	list, err := s.Rules.Of(nftTable(t), what.In)
	for _, r := range list {
		if rule := ruleOf(what.In, r); what.Matches(rule) {
			rules = append(rules, rule)
		}
	}
	return rules, UnlessNoNFT(err)
}
