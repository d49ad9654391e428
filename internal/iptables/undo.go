package iptables

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Undo is what takes an edit back.
type Undo struct {
	edit     Edit
	made     []string   // chains that were not there
	refilled []string   // own chains whose rules were replaced
	dropped  []position // in the order of the table

	// Rules, by their words.
	common map[string]bool // of the edit
	added  map[string]bool // were not there
	kept   map[string]bool // were there and stayed
}

// Revert takes an edit back, in one transaction. What others have come to use stays. Without any of the chains there is
// nothing to take back. The caller holds the lock of the namespace.
func (t Table) Revert(ctx context.Context, ns *netns.NS, u Undo) error {
	return t.commands().change(ctx, ns, t.Name, false, u.plan)
}

// plan returns the commands that take the edit back in a table.
func (u Undo) plan(t table) (commands []string) {
	for _, chain := range u.refilled {
		if t.chains[chain] {
			commands = append(commands, "-F "+chain)
		}
	}
	used := u.used(t)
	length, left := map[string]int{}, map[string]bool{}
	t.each(func(p position, r Rule) {
		switch w := words(p.rule); {
		case slices.Contains(u.refilled, r.Chain):
		case u.obsolete(w, r, used):
			commands = append(commands, deletion(p.rule))
		default:
			length[r.Chain]++
			left[w] = true
		}
	})
	for _, p := range u.dropped {
		r, _ := parseRule(p.rule)
		if left[words(p.rule)] || !t.chains[r.Chain] {
			continue
		}
		place := min(p.at, length[r.Chain]+1)
		length[r.Chain]++
		commands = append(commands, "-I "+r.Chain+" "+strconv.Itoa(place)+strings.TrimPrefix(p.rule, "-A "+r.Chain))
	}
	for _, chain := range u.made {
		if t.chains[chain] && (slices.Contains(u.edit.Own, chain) || !used) {
			commands = append(commands, "-X "+chain)
		}
	}
	return commands
}

// obsolete reports whether a rule goes, by its words.
func (u Undo) obsolete(w string, r Rule, used bool) bool {
	switch {
	case u.common[w]:
		return u.added[w] && !used
	case slices.Contains(u.edit.Own, r.Target): // its words may be others than those it was made by
		return !u.kept[w]
	}
	return u.added[w]
}

// used reports whether others need the chains that are not the owner's alone: if they were there before, or rules besides
// those of the edit are in them or lead to them.
func (u Undo) used(t table) (used bool) {
	shared := func(chain string) bool {
		return slices.Contains(u.made, chain) && !slices.Contains(u.edit.Own, chain)
	}
	if !slices.ContainsFunc(u.edit.Chains, shared) {
		return true
	}
	t.each(func(p position, r Rule) {
		mine := slices.Contains(u.edit.Own, r.Chain) || slices.Contains(u.edit.Own, r.Target)
		if w := words(p.rule); !mine && (shared(r.Chain) || shared(r.Target)) && !u.common[w] && !u.added[w] {
			used = true
		}
	})
	return used
}
