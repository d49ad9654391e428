package nft

import (
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// inverse returns the changes that undo changes of elements, except where another owner has changed
// the same element since.
func inverse(done []change, have *state) (c changes) {
	all := done
	for len(done) > 0 {
		s := done[0].skeleton
		n := slices.IndexFunc(done, func(ch change) bool {
			return ch.skeleton.sets[0] != s.sets[0]
		})
		if n < 0 {
			n = len(done)
		}
		c.sets = append(c.sets, inverseOf(s, done[:n], have)...)
		done = done[n:]
	}
	for _, ch := range all {
		c.promoteUndone(ch, have)
	}
	return c
}

// promoteUndone adds the changes that follow from undoing the change of a set for owners that wait
// for its elements.
func (c *changes) promoteUndone(done change, have *state) {
	s := done.skeleton
	if s.waitsFor != nil {
		s = *s.waitsFor
		for _, x := range done.add { // it may wait no longer
			y := done.set.waitsFor.awaited(x)
			if now := have.lookup(done.set.waitsFor, y.Key); now != nil && equal(*now, y) {
				held := at(&c.sets, s, done.set.waitsFor)
				held.del = append(held.del, y)
			}
		}
	}
	c.sets = promote(s, c.sets, have)
	c.builds = append(c.builds, buildWaiting(s.waiting(), c.sets, have)...)
}

// inverseOf returns the changes that undo the changes of one skeleton.
func inverseOf(s skeleton, done []change, have *state) (list []change) {
	for _, set := range s.sets {
		back := change{skeleton: s, set: set}
		var targets []chain
		for _, ch := range done {
			if ch.set == set {
				back.revert(ch, have)
				targets = append(targets, ch.drop...)
			}
		}
		targets = slices.DeleteFunc(targets, func(t chain) bool {
			return !leadsTo(back.add, t.Name)
		})
		back.updateChains(targets, have)
		list = append(list, back)
	}
	countReferences(list, have)
	return list
}

// revert adds the inverse of done to ch. If an element that done added no longer exists unchanged,
// another owner has replaced or removed it; revert then does not restore its predecessor either.
func (ch *change) revert(done change, have *state) {
	added := done.add
	if done.set.references != "" { // countReferences removes the rest if no element references it
		added = done.switched
	}
	still := slices.DeleteFunc(have.lookupAll(done.set, added), func(x nftmsg.Element) bool {
		return !contains(added, x)
	})
	ch.del = append(ch.del, still...)
	for _, x := range done.del {
		now := have.lookup(done.set, x.Key)
		if now == nil && len(still) == len(added) || now != nil && contains(ch.del, *now) {
			ch.add = append(ch.add, x)
		}
	}
}

// leadsTo reports whether an element of a verdict map leads to a chain.
func leadsTo(list []nftmsg.Element, chain string) bool {
	return slices.ContainsFunc(list, func(x nftmsg.Element) bool { return chainOf(x) == chain })
}
