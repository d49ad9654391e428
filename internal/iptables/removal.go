package iptables

import (
	"context"
	"slices"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Removal is what is to go from a table: rules of one chain, and chains with the last rule that leads to them.
type Removal struct {
	In     string          // the rules of this chain
	Target string          // that lead to this chain; "": any rules, and with each the chain it leads to
	Match  func(Rule) bool // and match; nil: all
	Also   []string        // chains that go with Target
	Unless func(Rule) bool // nothing goes while a rule of Target or Also matches, whose Chain it may not see; may be nil
}

// Matches reports whether a rule goes.
func (w Removal) Matches(r Rule) bool {
	return r.Chain == w.In && (w.Target == "" || w.Target == r.Target) && (w.Match == nil || w.Match(r))
}

// LegacyRemove removes from a table of the legacy kind, in one transaction. The caller holds the lock of the namespace.
func (t Table) LegacyRemove(ctx context.Context, ns *netns.NS, w Removal) error {
	return t.Family.legacyCommands().change(ctx, ns, t.Name, false, w.plan)
}

// plan returns the commands that remove what is to go.
func (w Removal) plan(t table) (commands []string) {
	chains := slices.Clone(w.Also)
	if w.Target != "" {
		chains = append(chains, w.Target)
	}
	used, keep := map[string]bool{}, false
	t.each(func(p position, r Rule) {
		keep = keep || w.Unless != nil && slices.Contains(chains, r.Chain) && w.Unless(r)
		switch {
		case !w.Matches(r):
			used[r.Target] = used[r.Target] || !slices.Contains(chains, r.Chain) // they may lead to each other
		default:
			commands = append(commands, deletion(p.rule))
			if w.Target == "" && t.chains[r.Target] && !slices.Contains(chains, r.Target) {
				chains = append(chains, r.Target)
			}
		}
	})
	if keep {
		return nil
	}
	if slices.ContainsFunc(chains, func(c string) bool { return used[c] }) && w.Target != "" {
		chains = nil // they go together
	}
	chains = slices.DeleteFunc(chains, func(c string) bool { return !t.chains[c] || used[c] })
	for _, chain := range chains {
		commands = append(commands, "-F "+chain)
	}
	for _, chain := range chains {
		commands = append(commands, "-X "+chain)
	}
	return commands
}
