package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Edit is what somebody wants in a table. Rules have the form of iptables-save, where their options have an order of
// their own: "-A CHAIN …" is appended to the chain and "-I CHAIN …" put before its other rules, unless it is there
// already. Each rule must be in one of the chains named here, or lead to one: where there is no such chain, there is no
// such rule.
type Edit struct {
	// Chains are made where they are missing, and Common rules too. Others use them as well: they are taken back only if
	// this edit has made the chains and nobody uses them yet.
	Chains []string
	Common []string

	// Own chains have no rules but those of Rules, and no others lead to them: what an earlier edit has left goes.
	Own   []string
	Rules []string

	Drop func(Rule) bool // what goes besides, unless it is wanted; may be nil
}

// With returns an edit that makes another as well, after it.
func (e Edit) With(other Edit) Edit {
	drop := func(r Rule) bool { return e.Drop != nil && e.Drop(r) || other.Drop != nil && other.Drop(r) }
	return Edit{
		Chains: slices.Concat(e.Chains, other.Chains), Common: slices.Concat(e.Common, other.Common),
		Own: slices.Concat(e.Own, other.Own), Rules: slices.Concat(e.Rules, other.Rules), Drop: drop,
	}
}

func (e Edit) chains() []string { return slices.Concat(e.Chains, e.Own) }

func (e Edit) validate() error {
	for _, chain := range e.chains() {
		if chain == "" || strings.HasPrefix(chain, "-") || strings.ContainsAny(chain, " \"'\\!") || !printable(chain) {
			return fmt.Errorf("chain %q: no name of a chain", chain)
		}
	}
	for _, line := range slices.Concat(e.Common, e.Rules) {
		if !printable(line) {
			return fmt.Errorf("rule %q: not printable ASCII", line)
		}
		rule, ok := parseRule(appended(line))
		if !ok {
			return fmt.Errorf("rule %q: neither -A nor -I", line)
		}
		if len(rule.Comment) > MaxComment {
			return fmt.Errorf("rule %q: comment of more than %d bytes", line, MaxComment)
		}
		if names := e.chains(); !slices.Contains(names, rule.Chain) && !slices.Contains(names, rule.Target) {
			return fmt.Errorf("rule %q: has nothing to do with chains %s", line, strings.Join(names, " "))
		}
	}
	return nil
}

// appended returns a rule as iptables-save would write it.
func appended(line string) string {
	if rest, ok := strings.CutPrefix(line, "-I "); ok {
		return "-A " + rest
	}
	return line
}

func deletion(rule string) string { return "-D" + strings.TrimPrefix(appended(rule), "-A") }

// plan returns the commands that make the edit in a table.
func (e Edit) plan(t table) (commands []string, undo Undo) {
	undo = Undo{edit: e, common: map[string]bool{}, added: map[string]bool{}, kept: map[string]bool{}}
	for _, chain := range e.chains() {
		if !t.chains[chain] {
			undo.made = append(undo.made, chain)
			commands = append(commands, "-N "+chain)
		}
	}
	undo.refilled = e.outdated(t)
	for _, chain := range undo.refilled {
		if t.chains[chain] {
			commands = append(commands, "-F "+chain)
		}
	}
	wanted := map[string]bool{}
	for _, line := range e.Rules {
		wanted[words(appended(line))] = true
	}
	for _, line := range e.Common {
		undo.common[words(appended(line))] = true
	}
	t.each(func(p position, r Rule) {
		switch w := words(p.rule); {
		case slices.Contains(undo.refilled, r.Chain):
		case wanted[w] || undo.common[w] || !slices.Contains(e.Own, r.Target) && (e.Drop == nil || !e.Drop(r)):
			undo.kept[w] = true
			return
		default:
			commands = append(commands, deletion(p.rule))
		}
		undo.dropped = append(undo.dropped, p)
	})
	for _, line := range slices.Concat(e.Common, e.Rules) {
		if w := words(appended(line)); !undo.kept[w] && !undo.added[w] {
			undo.added[w] = true
			commands = append(commands, line)
		}
	}
	return commands, undo
}

// outdated lists the own chains that have other rules than those wanted, or in another order.
func (e Edit) outdated(t table) (chains []string) {
	have, want := byChain(t.rules), byChain(e.Rules)
	for _, chain := range e.Own {
		if !slices.Equal(have[chain], want[chain]) {
			chains = append(chains, chain)
		}
	}
	return chains
}

// byChain returns the words of the rules of each chain.
func byChain(lines []string) map[string][]string {
	by := map[string][]string{}
	for _, line := range lines {
		r, _ := parseRule(appended(line))
		by[r.Chain] = append(by[r.Chain], words(appended(line)))
	}
	return by
}

// Apply makes an edit, in one transaction. fresh says that none of its chains is there in either kind of iptables:
// otherwise what there is is read first, and only added to. The undo is valid on failure, too, since an edit that was
// called off can have been made all the same. The caller holds the lock of the namespace.
func (t Table) Apply(ctx context.Context, ns *netns.NS, e Edit, fresh bool) (undo Undo, err error) {
	if err := e.validate(); err != nil {
		return Undo{}, err
	}
	err = t.commands().change(ctx, ns, t.Name, fresh, func(now table) (commands []string) {
		commands, undo = e.plan(now)
		return commands
	})
	return undo, err
}
