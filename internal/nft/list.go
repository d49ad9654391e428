package nft

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// List returns all elements of a rule set, sorted by their description. It returns none if the
// rules were flushed: the elements are then not in force.
func (c *Conn) List(ctx context.Context, rs *RuleSet) (list []Held, err error) {
	err = c.locked(ctx, func() error {
		status, err := c.status(rs.skeleton())
		if err == nil && status.inForce() {
			list, err = c.Owned(rs)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rs, err)
	}
	slices.SortStableFunc(list, func(a, b Held) int { return strings.Compare(a.Text, b.Text) })
	return list, nil
}

// Owned returns all elements of a rule set, also if the rules were flushed, except the pools of a
// cluster, which no attachment owns. It takes no lock, so a caller that holds the lock can use it.
func (c *Conn) Owned(rs *RuleSet) (list []Held, err error) {
	s := rs.skeleton()
	for _, set := range slices.Concat(s.sets, s.waiting().sets) {
		if set.unowned {
			continue
		}
		all, err := c.contents(set)
		if err != nil {
			return nil, err
		}
		for _, x := range all.elements {
			list = append(list, set.held(x))
		}
	}
	return list, nil
}

// Missing returns for each request the elements that do not exist, or that exist and must not. No
// element exists in a rule set after a flush of its rules. A mapping of the same ports by an
// owner that shares them counts as existing.
func (c *Conn) Missing(ctx context.Context, requests ...Request) (missing [][]Held, err error) {
	err = c.locked(ctx, func() error {
		have := c.state()
		missing = missingIn(have, requests)
		return have.err
	})
	return missing, err
}

func missingIn(have *state, requests []Request) [][]Held {
	missing := make([][]Held, len(requests))
	for _, rs := range ruleSetsOf(requests...) {
		for i, list := range lacking(rs, requests, have) {
			missing[i] = append(missing[i], list...)
		}
	}
	return missing
}

// All returns the elements of Tenon's tables that have an owner, by the name of their rule set. It
// includes the [AddressRules] of all programs. It takes no lock.
func (c *Conn) All() (map[string][]Held, error) {
	all, err := c.addressElements()
	if err != nil {
		return nil, err
	}
	for _, rs := range allRuleSets() {
		list, err := c.Owned(rs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rs, err)
		}
		list = slices.DeleteFunc(list, func(h Held) bool { return h.Comment == "" })
		if len(list) > 0 {
			all[rs.name] = list
		}
	}
	return all, nil
}

// Tables returns the tables of Tenon that exist.
func (c *Conn) Tables() (tables []Table, err error) {
	for _, t := range []Table{table, bridgeTable} {
		exists, err := c.messages.HasTable(t)
		if err != nil {
			return nil, explain(err, lackingQuestion)
		}
		if exists {
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// Erase removes Tenon's tables with all elements, in one transaction, and returns them. If allowed
// reports false for the owner of any element, Erase changes nothing and returns these elements.
func (c *Conn) Erase(
	ctx context.Context, allowed func(owner string) bool,
) (tables []Table, refused []Held, err error) {
	err = c.retry(ctx, func() (err error) {
		tables = nil
		if refused, err = c.ownedByForeign(allowed); err != nil || refused != nil {
			return err
		}
		if tables, err = c.Tables(); err != nil {
			return err
		}
		var t nftmsg.Transaction
		for _, table := range tables {
			t.DeleteTable(table)
		}
		return c.commit(&t)
	})
	return tables, refused, err
}

// ownedByForeign returns the elements with an owner that is not allowed.
func (c *Conn) ownedByForeign(allowed func(owner string) bool) (list []Held, err error) {
	all, err := c.All()
	for _, held := range all {
		for _, h := range held {
			if !allowed(h.Comment) {
				list = append(list, h)
			}
		}
	}
	return list, err
}

// HeldIn returns the elements of a rule set in a ruleset that was read before.
func HeldIn(all *nftmsg.Ruleset, rs *RuleSet) (list []Held) {
	skeleton := rs.skeleton()
	for _, set := range slices.Concat(skeleton.sets, skeleton.waiting().sets) {
		for _, s := range all.Sets {
			if s.Table != set.Table || s.Name != set.Name {
				continue
			}
			for _, x := range s.Elements {
				list = append(list, set.held(x))
			}
		}
	}
	return list
}
