package iptables

import (
	"context"
	"slices"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Removal selects rules of one chain of a table, and the chains that become unused, for removal.
type Removal struct {
	In     string          // remove rules of this chain
	Target string          // that lead to this chain; "": any, each with its target chain
	Match  func(Rule) bool // and that match; nil: all
	Also   []string        // chains to remove together with Target
	// Unless prevents the removal if it matches a rule of Target or Also. It must not depend on the
	// rule's Chain, and may be nil.
	Unless func(Rule) bool
}

// Matches reports whether the removal includes a rule.
func (w Removal) Matches(r Rule) bool {
	return r.Chain == w.In && (w.Target == "" || w.Target == r.Target) &&
		(w.Match == nil || w.Match(r))
}

// LegacyRemove removes rules and chains from a table of the legacy variant, in one transaction. The
// caller holds the lock of the namespace.
func (t Table) LegacyRemove(ctx context.Context, ns *netns.NS, w Removal) error {
	return t.Family.legacyCommands().change(ctx, ns, t.Name, false, w.plan)
}

// plan returns the commands of the removal.
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
			// The chains may lead to each other.
			used[r.Target] = used[r.Target] || !slices.Contains(chains, r.Chain)
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
		chains = nil // all of them are removed, or none
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
