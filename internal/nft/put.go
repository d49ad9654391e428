package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Put meets claims in one transaction: their elements are there afterwards, and nothing of another owner about the same.
// What the owner has in the concern beside them goes if anything was found about the same. A claim that conflicts with what
// others have is left out, and the error says with whom. undo gives back what was changed, unless somebody else has taken
// it over since; it is nil if no claim was met.
func (c *Conn) Put(ctx context.Context, claims ...Claim) (undo func(context.Context) error, err error) {
	for _, claim := range claims {
		if err := checkComment(claim.Tag); err != nil {
			return nil, err
		}
	}
	var met []Claim
	var changes []change
	var refused error
	err = c.tried(ctx, func() error {
		if met, refused = c.meetable(claims); len(met) == 0 {
			return nil
		}
		var p plan
		var err error
		if changes, err = c.planClaims(&p, met); err != nil {
			return err
		}
		return c.send(&p)
	})
	if err != nil || len(met) == 0 {
		return nil, errors.Join(refused, err)
	}
	return func(ctx context.Context) error {
		return c.tried(ctx, func() error { return c.revert(changes) })
	}, refused
}

// meetable leaves out the claims that conflict with what others have.
func (c *Conn) meetable(claims []Claim) (met []Claim, err error) {
	l := &look{c: c, whole: map[string][]nftmsg.Element{}}
	claims = append([]Claim(nil), claims...)
	var errs []error
	for i, claim := range claims {
		var err error
		for _, concern := range concerns(claim.Entries) {
			if concern.conflict != nil && err == nil {
				claims[i].Entries, err = concern.conflict(l, claims, i)
			}
		}
		if errs = append(errs, err); err == nil {
			met = append(met, claims[i])
		}
	}
	return met, errors.Join(errs...)
}

// look is what is there for all claims of a transaction: a set that is read whole is read once.
type look struct {
	c     *Conn
	whole map[string][]nftmsg.Element // by the name of the set
}

func (l *look) elements(s *set) (list []nftmsg.Element, err error) {
	list, known := l.whole[s.Name]
	if !known {
		if list, err = l.c.elements(s.Set); err == nil {
			l.whole[s.Name] = list
		}
	}
	return list, err
}

// change is what a transaction does to one set.
type change struct {
	skeleton skeleton
	set      *set
	del, add []nftmsg.Element
	turned   []nftmsg.Element // of add: what others would have kept before, had the policy been the same

	// In a verdict map, the chains that elements lead to: to make, or to fill again, before and to remove afterwards.
	fill, drop []chain
}

func (ch change) empty() bool { return len(ch.del)+len(ch.add)+len(ch.fill) == 0 }

// planClaims plans skeletons and elements.
func (c *Conn) planClaims(p *plan, claims []Claim) ([]change, error) {
	var changes []change
	for _, concern := range concerns(entriesOf(claims)) {
		s := concern.skeleton()
		if err := c.ensure(p, s); err != nil {
			return nil, fmt.Errorf("%s: %w", concern, err)
		}
		list, err := c.compare(s, concern, claims)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", concern, err)
		}
		changes = append(changes, list...)
	}
	changes = slices.DeleteFunc(changes, change.empty)
	p.change(changes)
	return changes, nil
}

// change plans changes of elements.
func (p *plan) change(changes []change) {
	for _, ch := range changes {
		if ch.empty() {
			continue
		}
		p.fill(ch.fill)
		p.DeleteElements(ch.set.Set, ch.del)
		p.AddElements(ch.set.Set, ch.add)
		p.drop(ch.drop)
	}
}

// compare returns what has to change in a concern for claims to be met. Its sets, which can be large, are read whole only if
// there is anything about what is claimed.
func (c *Conn) compare(s skeleton, concern *Concern, claims []Claim) ([]change, error) {
	w := wishesOf(s, concern, claims)
	found, err := c.lookAt(s, w)
	if err != nil {
		return nil, err
	}
	changes := make([]change, len(s.sets))
	for i, set := range s.sets {
		changes[i] = change{skeleton: s, set: set}
		if found && set.users == "" {
			there, err := c.elements(set.Set)
			if err != nil {
				return nil, err
			}
			changes[i].del = w.superfluous(s, set, there)
		}
		wished := w.sets[set.Name]
		if wished != nil {
			changes[i].add = wished.missing()
			changes[i].del = append(changes[i].del, wished.unwanted...)
		}
		if changes[i].turned, err = c.turned(s, changes[i]); err != nil {
			return nil, err
		}
		if err := c.lead(&changes[i], wished.leads()); err != nil {
			return nil, err
		}
	}
	return changes, c.orphans(s, changes)
}

// turned returns what a change adds to a policy that others have already.
func (c *Conn) turned(s skeleton, ch change) ([]nftmsg.Element, error) {
	if !ch.set.policy || len(ch.add) == 0 {
		return nil, nil
	}
	users, err := c.elements(s.set(ch.set.users).Set)
	return slices.DeleteFunc(slices.Clone(ch.add), func(x nftmsg.Element) bool { return !keptBy(users, x) }), err
}

// keptBy reports whether one of the users keeps x.
func keptBy(users []nftmsg.Element, x nftmsg.Element) bool {
	return slices.ContainsFunc(users, func(u nftmsg.Element) bool { return bytes.HasPrefix(u.Key, x.Key) })
}

// orphans adds to changes of a concern the elements that nothing keeps afterwards, and leaves out those that nothing would.
func (c *Conn) orphans(s skeleton, changes []change) error {
	for i := range changes {
		kept := &changes[i]
		if kept.set.users == "" {
			continue
		}
		users := changes[slices.IndexFunc(changes, func(ch change) bool { return ch.set.Name == kept.set.users })]
		lonely := func(x nftmsg.Element) bool { return !keptBy(users.add, x) }
		if len(users.del) == 0 && !slices.ContainsFunc(kept.add, lonely) {
			continue
		}
		left, err := c.elements(users.set.Set)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(x nftmsg.Element) bool { return contains(users.del, x) })
		left = append(left, users.add...)
		kept.add = slices.DeleteFunc(kept.add, func(x nftmsg.Element) bool { return !keptBy(left, x) })
		all, err := c.elements(kept.set.Set)
		if err != nil {
			return err
		}
		for _, x := range all {
			if !keptBy(left, x) && !contains(kept.del, x) {
				kept.del = append(kept.del, x)
			}
		}
	}
	return nil
}
