package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Edit describes changes of a table. Rules have the form of iptables-save, which has its own order
// of options: "-A CHAIN …" appends a rule to the chain and "-I CHAIN …" inserts it before the other
// rules, unless it exists already. Each rule must be in one of the chains named here, or lead to
// one; if none of these chains exists, none of the rules can.
type Edit struct {
	// Chains and Common rules are created if they are missing. Other programs use them as well:
	// undo removes them only if this edit created the chains and no other program uses them yet.
	Chains []string
	Common []string

	// Own chains contain only rules of Rules, and only rules of this edit lead to them: other
	// rules, left by an earlier edit, are removed.
	Own   []string
	Rules []string

	Drop func(Rule) bool // further rules to remove unless they are wanted; may be nil
}

// With returns an edit that makes the changes of e and then the changes of other.
func (e Edit) With(other Edit) Edit {
	drop := func(r Rule) bool {
		return e.Drop != nil && e.Drop(r) || other.Drop != nil && other.Drop(r)
	}
	return Edit{
		Chains: slices.Concat(e.Chains, other.Chains),
		Common: slices.Concat(e.Common, other.Common),
		Own:    slices.Concat(e.Own, other.Own),
		Rules:  slices.Concat(e.Rules, other.Rules),
		Drop:   drop,
	}
}

func (e Edit) chains() []string { return slices.Concat(e.Chains, e.Own) }

func (e Edit) validate() error {
	for _, chain := range e.chains() {
		if chain == "" || strings.HasPrefix(chain, "-") || strings.ContainsAny(chain, " \"'\\!") ||
			!printable(chain) {
			return fmt.Errorf("chain %q: invalid name", chain)
		}
	}
	for _, line := range slices.Concat(e.Common, e.Rules) {
		if !printable(line) {
			return fmt.Errorf("rule %q is not printable ASCII", line)
		}
		rule, ok := parseRule(appended(line))
		if !ok {
			return fmt.Errorf("rule %q begins neither with -A nor with -I", line)
		}
		if len(rule.Comment) > MaxComment {
			return fmt.Errorf("rule %q has a comment of more than %d bytes", line, MaxComment)
		}
		if names := e.chains(); !slices.Contains(names, rule.Chain) &&
			!slices.Contains(names, rule.Target) {
			return fmt.Errorf("rule %q neither is in nor leads to chain %s", line,
				strings.Join(names, " "))
		}
	}
	return nil
}

// appended returns a rule in the form of iptables-save.
func appended(line string) string {
	if rest, ok := strings.CutPrefix(line, "-I "); ok {
		return "-A " + rest
	}
	return line
}

func deletion(rule string) string { return "-D" + strings.TrimPrefix(appended(rule), "-A") }

// plan returns the commands that apply the edit to a table.
func (e Edit) plan(t table) (commands []string, undo Undo) {
	undo = Undo{edit: e, common: map[string]bool{}, added: map[string]bool{},
		kept: map[string]bool{}}
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
		case wanted[w] || undo.common[w] || !slices.Contains(e.Own, r.Target) &&
			(e.Drop == nil || !e.Drop(r)):
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

// outdated lists the own chains in which the rules, or their order, differ from the wanted ones.
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

// Apply makes an edit, in one transaction. fresh means that none of its chains exists in either
// variant of iptables; otherwise Apply reads the table first and adds only missing rules. The undo
// is valid on failure, too, because an interrupted iptables-restore may have committed. The caller
// holds the lock of the namespace.
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
