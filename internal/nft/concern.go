package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// The tables that are ours, one of each family needed. In the rest of the ruleset nothing is changed but what the
// reference plugins have left.
var (
	table       = nftmsg.Table{Family: nftmsg.INet, Name: "tenon"}
	bridgeTable = nftmsg.Table{Family: nftmsg.Bridge, Name: "tenon"}
)

// Concern is a part of the ruleset with a purpose of its own, such as masquerading.
type Concern struct {
	name     string
	skeleton func() skeleton // not a value, which every process would make when it starts

	// conflict says why a claim cannot be met beside what there is, or else which of its entries are to be met; nil if nothing can
	// stand in the way. Those before it in the list will be met, if they can. The lock is held.
	conflict func(l *look, claims []Claim, i int) ([]Entry, error)
}

// String returns what the concern is about.
func (c *Concern) String() string { return c.name }

// skeleton is what a concern needs in a table before it can have elements. It is made at first use and then only looked
// at: adding a base chain again, or deleting anything, costs 15 ms.
type skeleton struct {
	version string // comment of the first set; changes with anything below
	table   nftmsg.Table
	sets    []*set
	chains  []chain // a chain comes after those that it jumps to
}

// set is a set or a map, whose elements have an owner each.
type set struct {
	nftmsg.Set

	// users names the set that keeps the elements of this one, which then have no owner: each is there as long as an
	// element of users begins with its key.
	users string

	// policy says that of those elements that others keep the last claim decides which are there: see [absent].
	policy bool

	// subject is what the scopes of entries are, if other sets of the concern have the same: who takes over what an entry
	// is about takes it over in all of them.
	subject nftmsg.Type

	text func(nftmsg.Element) string // what an element says, for people
}

type chain struct {
	nftmsg.Chain
	rules [][]nftmsg.Expr
}

// set returns the set of that name, which must be one of the skeleton.
func (s skeleton) set(name string) *set {
	for _, set := range s.sets {
		if set.Name == name {
			return set
		}
	}
	panic("nft: no set " + name)
}

// intact reports whether the skeleton is there, in this version and undamaged. Who flushes a table leaves its sets and
// takes the rules.
func (c *Conn) intact(s skeleton) (bool, error) {
	if ok, err := c.marked(s); !ok {
		return false, err
	}
	for _, chain := range s.chains {
		if ok, err := c.whole(s, chain); !ok {
			return false, err
		}
	}
	return true, nil
}

// inForce reports whether the elements of the skeleton's sets take effect: it is intact, or of another
// version with rules in each chain. The next Put replaces such a skeleton and keeps the elements.
func (c *Conn) inForce(s skeleton) (bool, error) {
	ok, err := c.intact(s)
	if ok || err != nil {
		return ok, err
	}
	if comment, err := c.mark(s); comment == "" || comment == s.version {
		return false, err
	}
	for _, ch := range s.chains {
		rules, err := c.messages.Rules(s.table, ch.Name)
		if err != nil {
			return false, fmt.Errorf("rules of nft chain %s: %w", ch.Name, err)
		}
		if len(rules) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// whole reports whether a chain of the skeleton has its rules.
func (c *Conn) whole(s skeleton, ch chain) (bool, error) {
	state, err := c.messages.Chain(s.table, ch.Name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("nft chain %s: %w", ch.Name, explain(err, lackingQuestion))
	}
	if want := len(ch.rules) + s.leadingTo(ch.Name); state.Use <= want {
		return state.Use == want, nil
	}
	return c.filled(ch) // chains that are not of the skeleton lead to it too
}

// leadingTo returns how many rules lead to a chain.
func (s skeleton) leadingTo(name string) (n int) {
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

// marked reports whether the skeleton was made in this version.
func (c *Conn) marked(s skeleton) (bool, error) {
	comment, err := c.mark(s)
	return comment == s.version, err
}

// mark returns the version in which the skeleton was made, "" if it is not there.
func (c *Conn) mark(s skeleton) (string, error) {
	comment, err := c.messages.SetComment(s.sets[0].Set)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("nft set %s: %w", s.sets[0].Name, explain(err, lackingQuestion))
	}
	return comment, nil
}

// Built reports whether what a concern needs has been made here: then the kernel can do it.
func (c *Conn) Built(concern *Concern) (bool, error) { return c.marked(concern.skeleton()) }

// plan is a transaction in the making: questions are asked first, then everything is sent at once.
type plan struct{ nftmsg.Transaction }

// send makes the transaction. Nothing is sent if there is nothing to do.
func (c *Conn) send(p *plan) error {
	err := c.messages.Commit(&p.Transaction)
	if errors.Is(err, unix.ENFILE) {
		return fmt.Errorf("a set of the nftables table tenon is full: %w", err)
	}
	return explain(err, lackingBuild)
}

// ensure plans the skeleton unless it is there in this version. What there is of another version, or of a damaged one, is
// replaced; the elements stay.
func (c *Conn) ensure(p *plan, s skeleton) error {
	ok, err := c.intact(s)
	if ok || err != nil {
		return err
	}
	kept := make(map[string][]nftmsg.Element, len(s.sets))
	for _, set := range s.sets {
		elements, err := c.messages.Elements(set.Set)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("elements of nft set %s: %w", set.Name, err)
		}
		kept[set.Name] = elements
	}
	p.build(s, kept)
	return nil
}

// Build makes what a concern needs before it can have entries.
func (c *Conn) Build(ctx context.Context, concern *Concern) error {
	err := c.tried(ctx, func() error {
		var p plan
		if err := c.ensure(&p, concern.skeleton()); err != nil {
			return err
		}
		return c.send(&p)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", concern, err)
	}
	return nil
}

// build makes the skeleton. kept has the elements of the sets that are there, also if they have none.
func (p *plan) build(s skeleton, kept map[string][]nftmsg.Element) {
	p.AddTable(s.table)
	for _, chain := range s.chains {
		p.AddChain(chain.Chain)
		p.FlushChain(chain.Chain)
	}
	for _, set := range s.sets {
		if _, there := kept[set.Name]; there {
			p.DeleteSet(set.Set)
		}
	}
	for i, set := range s.sets {
		made := set.Set
		if i == 0 {
			made.Comment = s.version
		}
		p.AddSet(made)
		p.AddElements(set.Set, kept[set.Name])
	}
	for _, chain := range s.chains {
		for _, rule := range chain.rules {
			p.AddRule(chain.Chain, rule)
		}
	}
}
