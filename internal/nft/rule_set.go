package nft

import (
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// The tables of Tenon, one for each family needed. In other tables the package only removes rules
// that upstream plugins have left: see [Conn.Prune].
var (
	table       = nftmsg.Table{Family: nftmsg.INet, Name: "tenon"}
	bridgeTable = nftmsg.Table{Family: nftmsg.Bridge, Name: "tenon"}
)

// RuleSet is a part of Tenon's tables with one purpose, such as masquerading: sets and maps of
// elements with owners, and fixed chains that look them up.
type RuleSet struct {
	name     string
	skeleton func() skeleton // a function, so that a process does not build each one when it starts

	// resolve returns the elements to apply for requests[i], or an error that names the owner of a
	// conflicting element. It is nil if elements of this rule set never conflict. The elements of
	// requests[:i] count as applied.
	resolve func(have *state, requests []Request, i int) ([]Element, error)
}

// String returns the name of the rule set.
func (rs *RuleSet) String() string { return rs.name }

// allRuleSets returns every rule set of Tenon's tables.
func allRuleSets() []*RuleSet {
	return []*RuleSet{Masquerading, Dropping, Filtering, PortIsolation, Guarding, Publishing,
		Holding}
}

// skeleton is the fixed part of a rule set. The first request builds it and later ones only compare
// it: adding a base chain again, or deleting anything, costs 15 ms.
type skeleton struct {
	version string // comment of the first set; changes with anything below
	table   nftmsg.Table
	sets    []*set
	chains  []chain // a chain comes after the chains that it jumps to
	replace bool    // versions differ in the hooks of chains, which cannot change

	waitsFor *skeleton // the rule set for which the owners of the elements wait, or nil
}

// set is a set or a map. An element has one owner, or exists while elements of another set refer to
// it.
type set struct {
	nftmsg.Set

	// references names the set that references the elements of this one: an element exists while an
	// element of references begins with its key. It then has no owner.
	references string

	// policy marks a set with references in which the last request decides whether an element
	// exists: see Element.absent.
	policy bool

	// subject is the type of an element's scope if other sets of the rule set have scopes of the
	// same type: an owner that takes over a scope takes it over in all of them.
	subject nftmsg.Type

	// shared marks a set with elements that owners of several networks can want at the same time. A
	// key begins with an address, of the type subject. See shared.go.
	shared bool

	// waitsFor is the shared set for which the owners of the elements wait, or nil.
	waitsFor *set

	// unowned marks a set with elements that no attachment owns: requests neither add nor remove
	// them, and a rebuilt skeleton keeps them.
	unowned bool

	// like is a set of another rule set with the same elements, or nil. A new set copies them.
	like *set

	text func(nftmsg.Element) string // describes an element for users
}

type chain struct {
	nftmsg.Chain
	rules [][]nftmsg.Expr
}

// set returns the set of that name, which must be part of the skeleton.
func (s skeleton) set(name string) *set {
	if set := s.find(name); set != nil {
		return set
	}
	panic("nft: no set " + name)
}

// find returns the set of that name, or nil.
func (s skeleton) find(name string) *set {
	for _, set := range s.sets {
		if set.Name == name {
			return set
		}
	}
	return nil
}

// jumpsTo returns the number of rules of the skeleton that jump or go to a chain.
func (s skeleton) jumpsTo(name string) (n int) {
	for _, ch := range s.chains {
		for _, rule := range ch.rules {
			for _, e := range rule {
				if v, ok := e.(nftmsg.Verdict); ok && v.Chain == name {
					n++
				}
			}
		}
	}
	return n
}

// Built reports whether the skeleton of a rule set exists in its current version, which proves that
// the kernel supports it.
func (c *Conn) Built(rs *RuleSet) (bool, error) {
	s := rs.skeleton()
	version, err := c.version(s)
	return version == s.version, err
}

// Build creates the skeleton of a rule set, unless it exists.
func (c *Conn) Build(ctx context.Context, rs *RuleSet) error {
	err := c.transact(ctx, func(have *state) (changes, error) { return diff(rs, nil, have), nil })
	if err != nil {
		return fmt.Errorf("%s: %w", rs, err)
	}
	return nil
}
