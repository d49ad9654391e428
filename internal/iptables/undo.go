package iptables

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Undo holds what Revert needs to undo an edit.
type Undo struct {
	edit     Edit
	made     []string   // chains that did not exist
	refilled []string   // own chains with replaced rules
	dropped  []position // in the order of the table

	// Rules, by their words.
	common map[string]bool // rules of the edit
	added  map[string]bool // rules that did not exist
	kept   map[string]bool // rules that existed and stayed
}

// Revert undoes an edit, in one transaction. Chains and rules that other programs use by now stay.
// If none of the chains exists, Revert does nothing. The caller holds the lock of the namespace.
func (t Table) Revert(ctx context.Context, ns *netns.NS, u Undo) error {
	return t.commands().change(ctx, ns, t.Name, false, u.plan)
}

// plan returns the commands that undo the edit in a table.
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
		commands = append(commands,
			"-I "+r.Chain+" "+strconv.Itoa(place)+strings.TrimPrefix(p.rule, "-A "+r.Chain))
	}
	for _, chain := range u.made {
		if t.chains[chain] && (slices.Contains(u.edit.Own, chain) || !used) {
			commands = append(commands, "-X "+chain)
		}
	}
	return commands
}

// obsolete reports whether to remove a rule, by its words.
func (u Undo) obsolete(w string, r Rule, used bool) bool {
	switch {
	case u.common[w]:
		return u.added[w] && !used
	// The rule may be listed in other words than it was created with.
	case slices.Contains(u.edit.Own, r.Target):
		return !u.kept[w]
	}
	return u.added[w]
}

// used reports whether other programs need the shared chains: the chains existed before, or
// contain, or are the target of, rules that are not part of the edit.
func (u Undo) used(t table) (used bool) {
	shared := func(chain string) bool {
		return slices.Contains(u.made, chain) && !slices.Contains(u.edit.Own, chain)
	}
	if !slices.ContainsFunc(u.edit.Chains, shared) {
		return true
	}
	t.each(func(p position, r Rule) {
		mine := slices.Contains(u.edit.Own, r.Chain) || slices.Contains(u.edit.Own, r.Target)
		if w := words(p.rule); !mine && (shared(r.Chain) || shared(r.Target)) && !u.common[w] &&
			!u.added[w] {
			used = true
		}
	})
	return used
}
