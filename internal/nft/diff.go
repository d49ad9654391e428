package nft

import (
	"bytes"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// changes turn one state of Tenon's tables into another, in one transaction.
type changes struct {
	builds []build
	sets   []change
}

// build creates a skeleton, or replaces one that is damaged or has another version.
type build struct {
	skeleton
	kept  map[string][]nftmsg.Element // elements of the sets that exist, which are replaced
	fresh map[string][]nftmsg.Element // elements of new sets
}

// change is the part of a transaction that changes the elements of one set.
type change struct {
	skeleton skeleton
	set      *set
	del, add []nftmsg.Element

	// switched lists the elements of add that existing references would already have kept if the
	// last request for this policy had not excluded them.
	switched []nftmsg.Element

	fill []chain // targets of a verdict map to create, or to fill again, before
	drop []chain // targets to delete afterwards, with their rules
}

func (ch change) empty() bool { return len(ch.del)+len(ch.add)+len(ch.fill) == 0 }

// diff returns the changes that make the elements of requests in one rule set exist and remove
// elements of other owners with the same subjects. If a requested subject has elements already, the
// changes also remove other elements of the same owners.
func diff(rs *RuleSet, requests []Request, have *state) (c changes) {
	s := rs.skeleton()
	inForce, wait := divide(s, rs, requests, have)
	w := wantOf(rs, s, inForce)
	for _, r := range wait {
		w.owners[r.Owner] = w.owners[r.Owner] || len(r.Elements) > 0
	}
	if have.status(w.skeleton) != current {
		c.builds = []build{rebuild(w.skeleton, have)}
	}
	inUse := w.compare(have)
	for _, set := range w.skeleton.sets {
		ch := change{skeleton: w.skeleton, set: set}
		if inUse && set.references == "" && !set.unowned {
			ch.del = w.obsolete(set, have.elements(set))
		}
		var targets []chain
		if in := w.sets[set.Name]; in != nil {
			ch.add, targets = in.lacking(), in.chains
			ch.del = append(ch.del, in.unwanted...)
		}
		if set.policy && len(ch.add) > 0 {
			ch.switched = referenced(ch.add, have.elements(w.skeleton.set(set.references)))
		}
		ch.updateChains(targets, have)
		c.sets = append(c.sets, ch)
	}
	if queued := func(r Request) bool { return len(r.Elements) > 0 }; inUse ||
		slices.ContainsFunc(wait, queued) {
		waiting := s.waiting()
		c.sets = append(c.sets, queue(waiting, requests, wait, have)...)
		c.sets = promote(s, c.sets, have)
		c.builds = append(c.builds, buildWaiting(waiting, c.sets, have)...)
	}
	countReferences(c.sets, have)
	c.sets = slices.DeleteFunc(c.sets, change.empty)
	return c
}

func rebuild(s skeleton, have *state) build {
	b := build{s, map[string][]nftmsg.Element{}, map[string][]nftmsg.Element{}}
	for _, set := range s.sets {
		all := have.contents(set)
		switch {
		case all.exists:
			b.kept[set.Name] = all.elements
		case set.like != nil:
			b.fresh[set.Name] = have.elements(set.like)
		}
	}
	return b
}

// removal returns the changes that remove each element of a rule set with a matching owner, and
// these elements. If first is given and has no owner that matches, removal returns nothing, which
// takes one lookup.
func removal(
	rs *RuleSet, match func(owner string) bool, first *Element, have *state,
) (c changes, removed []Held) {
	s := rs.skeleton()
	if first != nil {
		if x := have.lookup(s.set(first.set), first.raw.Key); x == nil || !match(x.Comment) {
			return changes{}, nil
		}
	}
	remove := func(s skeleton) {
		for _, set := range s.sets {
			if set.unowned {
				continue
			}
			ch := change{skeleton: s, set: set}
			for _, x := range have.elements(set) {
				if x.Comment != "" && match(x.Comment) {
					ch.del = append(ch.del, x)
					removed = append(removed, set.held(x))
				}
			}
			ch.updateChains(nil, have)
			c.sets = append(c.sets, ch)
		}
	}
	remove(s)
	if w := s.waiting(); len(w.sets) > 0 && have.status(w) != absent {
		remove(w)
	}
	c.sets = promote(s, c.sets, have)
	countReferences(c.sets, have)
	return c, removed
}

// lacking returns for each request the elements of a rule set that do not exist, or that exist and
// must not. No element exists in a rule set that is not in force.
func lacking(rs *RuleSet, requests []Request, have *state) [][]Held {
	s := rs.skeleton()
	inForce, _ := divide(s, rs, requests, have)
	w := wantOf(rs, s, inForce)
	if have.status(w.skeleton).inForce() {
		w.compare(have)
	}
	list := make([][]Held, len(requests))
	for i, r := range requests {
		for _, e := range r.Elements {
			if e.ruleSet != rs || w.satisfied(e, r.Owner, have) {
				continue
			}
			set := w.skeleton.set(e.set)
			held := set.held(set.owned(e, r.Owner))
			held.Unwanted = e.absent
			list[i] = append(list[i], held)
		}
	}
	return list
}

// want holds the elements that requests ask for in one rule set.
type want struct {
	skeleton skeleton
	owners   map[string]bool
	sets     map[string]*wanted // by the name of the set
}

// wanted holds the elements that requests ask for in one set. If two elements have the same key,
// the later one counts.
type wanted struct {
	set      *set
	elements []*wantedElement
	byKey    map[string]*wantedElement
	subjects map[string]bool  // the key prefixes that are the scopes of elements
	scopes   []int            // the lengths of these prefixes
	chains   []chain          // targets of the elements
	unwanted []nftmsg.Element // elements that exist and must not
}

// wantedElement is a wanted element, or the key of one that must not exist.
type wantedElement struct {
	nftmsg.Element
	absent bool
	exists bool
}

func wantOf(rs *RuleSet, s skeleton, requests []Request) *want {
	w := &want{skeleton: s, owners: map[string]bool{}, sets: map[string]*wanted{}}
	for _, r := range requests {
		for _, e := range r.Elements {
			if e.ruleSet == rs {
				w.owners[r.Owner] = true
				w.in(e.set).add(e, r.Owner)
			}
		}
	}
	return w
}

func (w *want) in(set string) *wanted {
	if w.sets[set] == nil {
		w.sets[set] = &wanted{
			set: w.skeleton.set(set), byKey: map[string]*wantedElement{},
			subjects: map[string]bool{},
		}
	}
	return w.sets[set]
}

func (in *wanted) add(e Element, owner string) {
	key := string(e.raw.Key)
	if in.byKey[key] == nil {
		in.byKey[key] = new(wantedElement)
		in.elements = append(in.elements, in.byKey[key])
	}
	*in.byKey[key] = wantedElement{Element: in.set.owned(e, owner), absent: e.absent}
	if !e.absent {
		in.subjects[key[:e.scope]] = true
		if !slices.Contains(in.scopes, e.scope) {
			in.scopes = append(in.scopes, e.scope)
		}
	}
	if e.chain != nil && !hasChain(in.chains, e.chain.Name) {
		in.chains = append(in.chains, *e.chain)
	}
}

// compare notes which of the wanted elements exist. It reports whether any element with an owner
// has a requested subject: only then must diff read all elements of the rule set.
func (w *want) compare(have *state) (inUse bool) {
	for _, in := range w.sets {
		for _, x := range in.near(have) {
			if known := in.byKey[string(x.Key)]; known != nil && known.absent {
				in.unwanted = append(in.unwanted, x)
			} else if in.hasSubject(x) {
				in.note(x)
				inUse = inUse || in.set.references == ""
			}
		}
	}
	return inUse
}

// few is the number of lookups of single elements that cost no more than reading a set.
const few = 32

// near returns the elements with the wanted keys, and perhaps others.
func (in *wanted) near(have *state) []nftmsg.Element {
	if len(in.elements) > few {
		return have.elements(in.set)
	}
	keys := make([]nftmsg.Element, len(in.elements))
	for i, e := range in.elements {
		keys[i] = e.Element
	}
	return have.lookupAll(in.set, keys)
}

// hasSubject reports whether the subject of x is one of the requested ones.
func (in *wanted) hasSubject(x nftmsg.Element) bool {
	return slices.ContainsFunc(in.scopes, func(n int) bool {
		return len(x.Key) >= n && in.subjects[string(x.Key[:n])]
	})
}

// note remembers that x exists, and reports whether it is wanted unchanged.
func (in *wanted) note(x nftmsg.Element) bool {
	known := in.byKey[string(x.Key)]
	if known == nil || !equal(known.Element, x) {
		return false
	}
	known.exists = true
	return true
}

// obsolete returns the unwanted elements of a set that have a requested subject or a requesting
// owner.
func (w *want) obsolete(set *set, elements []nftmsg.Element) (del []nftmsg.Element) {
	var related []*wanted
	for _, other := range w.sets {
		if other.set == set || set.subject != 0 && set.subject == other.set.subject {
			related = append(related, other)
		}
	}
	in := w.sets[set.Name]
	for _, x := range elements {
		if in != nil && in.note(x) {
			continue
		}
		sameSubject := func(other *wanted) bool { return other.hasSubject(x) }
		if w.owners[x.Comment] || slices.ContainsFunc(related, sameSubject) {
			del = append(del, x)
		}
	}
	return del
}

// lacking returns the wanted elements that do not exist.
func (in *wanted) lacking() (list []nftmsg.Element) {
	for _, e := range in.elements {
		if !e.exists && !e.absent {
			list = append(list, e.Element)
		}
	}
	return list
}

// satisfied reports whether an element exists, and its target, or is absent if it must be.
func (w *want) satisfied(e Element, owner string, have *state) bool {
	set, in := w.skeleton.set(e.set), w.sets[e.set]
	x := set.owned(e, owner)
	exists := false
	if in != nil {
		known := in.byKey[string(x.Key)]
		exists = known != nil && known.exists && equal(known.Element, x) || contains(in.unwanted, x)
	}
	if exists && e.chain != nil {
		exists = have.filled(*e.chain)
	}
	if !exists && w.skeleton.waits(e, owner, have) {
		exists = true
	}
	if !exists && e.shares != nil {
		exists = sharesPorts(w.skeleton, e, owner, have)
	}
	return exists != e.absent
}

// countReferences adds to the changes of a rule set the shared elements that lose their last
// reference, and leaves out shared elements that would have no reference.
func countReferences(list []change, have *state) {
	for i := range list {
		shared := &list[i]
		if shared.set.references == "" {
			continue
		}
		refs := list[slices.IndexFunc(list, func(ch change) bool {
			return ch.set.Name == shared.set.references
		})]
		if len(refs.del) == 0 && len(referenced(shared.add, refs.add)) == len(shared.add) {
			continue
		}
		left := slices.Clone(have.elements(refs.set))
		left = slices.DeleteFunc(left, func(x nftmsg.Element) bool { return contains(refs.del, x) })
		left = append(left, refs.add...)
		shared.add = referenced(shared.add, left)
		for _, x := range have.elements(shared.set) {
			if !isReferenced(x, left) && !contains(shared.del, x) {
				shared.del = append(shared.del, x)
			}
		}
	}
}

// isReferenced reports whether one of the references keeps x.
func isReferenced(x nftmsg.Element, references []nftmsg.Element) bool {
	return slices.ContainsFunc(references, func(r nftmsg.Element) bool {
		return bytes.HasPrefix(r.Key, x.Key)
	})
}

// referenced returns the elements that references keep.
func referenced(list, references []nftmsg.Element) (kept []nftmsg.Element) {
	for _, x := range list {
		if isReferenced(x, references) {
			kept = append(kept, x)
		}
	}
	return kept
}
