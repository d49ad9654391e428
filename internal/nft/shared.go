package nft

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// An address is unique only within a network: the networks of two tenants can use the same one. The
// rules compare addresses alone, so they treat all containers with an address alike. Its first
// owner holds it, with its options. Owners of other networks wait: their elements are in separate
// sets that no rule looks up. When the elements of the holder are removed, the elements of an owner
// that waits replace them in the same transaction.
//
// Within a network the former owner of an address no longer exists, and a new owner replaces it.

const (
	waitingVersion = "waiting 1"
	waitingSuffix  = "_waiting"

	// maxWaiting limits the elements in a set of owners that wait; see maxAddrs for the reason.
	maxWaiting = 1 << 12
)

// waiting returns the skeleton of the sets in which owners wait, one for each shared set. It has no
// chains, and is built for the first owner that waits.
func (s skeleton) waiting() skeleton {
	w := skeleton{version: waitingVersion, table: s.table, waitsFor: &s}
	for _, set := range s.sets {
		if set.shared {
			w.sets = append(w.sets, set.waiting())
		}
	}
	return w
}

// waiting returns the set in which owners wait for elements of s. A key has the fields of s, with
// both ends of a range, and a digest of the owner.
func (s *set) waiting() *set {
	key := slices.Clone(s.Key)
	if s.Interval {
		key = append(key, s.Key[1:]...)
	}
	return &set{
		Set: nftmsg.Set{Table: s.Table, Name: s.Name + waitingSuffix, Size: maxWaiting,
			Key: append(key, nftmsg.TypeIPv6Addr), Data: s.Data},
		waitsFor: s,
		text:     func(x nftmsg.Element) string { return s.text(s.awaited(x)) },
	}
}

// ticket returns the element with which an owner waits for x.
func (s *set) ticket(x nftmsg.Element) nftmsg.Element {
	key := x.Key
	if s.Interval {
		key = slices.Concat(key, lastKey(x)[len(s.subjectOf(x)):])
	}
	return nftmsg.Element{Key: slices.Concat(key, ownerDigest(x.Comment)), Value: x.Value,
		Comment: x.Comment}
}

// awaited returns the element for which an owner waits with a ticket.
func (s *set) awaited(ticket nftmsg.Element) nftmsg.Element {
	x := nftmsg.Element{Key: ticket.Key[:len(ticket.Key)-digestLen], Value: ticket.Value,
		Comment: ticket.Comment}
	if s.Interval {
		n := len(x.Key) / 3 // an address, and the first and the last one of a network
		x.Key, x.KeyEnd = x.Key[:2*n], slices.Concat(x.Key[:n], x.Key[2*n:])
	}
	return x
}

// subjectOf returns the first field of the key of an element of a shared set: an address.
func (s *set) subjectOf(x nftmsg.Element) string {
	if s.subject == nftmsg.TypeIPv6Addr {
		return string(x.Key[:addrLen6])
	}
	return string(x.Key[:addrLen4])
}

// digestLen is the length of a digest of an owner. Nftables has no type for it; an IPv6 address has
// the same length.
const digestLen = addrLen6

func ownerDigest(owner string) []byte {
	sum := sha256.Sum256([]byte(owner))
	return sum[:digestLen]
}

// replaces reports whether the owner of the request replaces another one that has the same subject.
func (r Request) replaces(owner string) bool {
	return owner == r.Owner || strings.HasPrefix(owner, r.Peers)
}

// divide separates the elements of requests in one rule set: inForce are to take effect, and wait
// have a subject that an owner of another network holds.
func divide(
	s skeleton, rs *RuleSet, requests []Request, have *state,
) (inForce, wait []Request) {
	holders := map[string]string{} // owners by subject
	for _, r := range requests {
		var now, later []Element
		for _, e := range r.Elements {
			if e.ruleSet != rs {
				continue
			}
			set := s.set(e.set)
			if !set.shared {
				now = append(now, e)
				continue
			}
			subject := set.subjectOf(e.raw)
			holder, known := holders[subject]
			if !known {
				if x := have.lookup(set, e.raw.Key); x != nil {
					holder = x.Comment
				}
			}
			if holder == "" || r.replaces(holder) {
				holder = r.Owner
				now = append(now, e)
			} else {
				later = append(later, e)
			}
			holders[subject] = holder
		}
		inForce = append(inForce, Request{Owner: r.Owner, Peers: r.Peers, Elements: now})
		wait = append(wait, Request{Owner: r.Owner, Peers: r.Peers, Elements: later})
	}
	return inForce, wait
}

// waits reports whether an owner waits for an element while another one holds its subject.
func (s skeleton) waits(e Element, owner string, have *state) bool {
	in := s.set(e.set)
	if !in.shared {
		return false
	}
	ticket, subject := in.ticket(in.owned(e, owner)), in.subjectOf(e.raw)
	if x := have.lookup(in.waiting(), ticket.Key); x == nil || !equal(*x, ticket) {
		return false
	}
	holds := func(other *set) bool {
		return other.shared && slices.ContainsFunc(have.elements(other),
			func(x nftmsg.Element) bool { return other.subjectOf(x) == subject })
	}
	return slices.ContainsFunc(s.sets, holds)
}

// queue returns the changes of the sets in which owners wait: they get the elements in wait, and lose
// all others of the owners of requests and of the owners that these replace.
func queue(w skeleton, requests, wait []Request, have *state) (list []change) {
	subjects := map[string][]Request{}
	for _, r := range requests {
		for _, e := range r.Elements {
			if set := w.waitsFor.find(e.set); set != nil && set.shared {
				subject := set.subjectOf(e.raw)
				subjects[subject] = append(subjects[subject], r)
			}
		}
	}
	for _, set := range w.sets {
		ch := change{skeleton: w, set: set}
		for _, r := range wait {
			for _, e := range r.Elements {
				if e.set == set.waitsFor.Name {
					ch.add = append(ch.add, set.waitsFor.ticket(set.owned(e, r.Owner)))
				}
			}
		}
		exist := have.elements(set)
		for _, x := range exist {
			replaced := func(r Request) bool { return r.replaces(x.Comment) }
			if !contains(ch.add, x) &&
				slices.ContainsFunc(subjects[set.waitsFor.subjectOf(x)], replaced) {
				ch.del = append(ch.del, x)
			}
		}
		ch.add = without(ch.add, exist)
		list = append(list, ch)
	}
	return list
}

// promote adds to the changes of a rule set, for each subject that loses its holder, the elements
// of one of the owners that wait for it.
func promote(s skeleton, list []change, have *state) []change {
	lost := map[string]bool{}
	for _, set := range s.sets {
		if set.shared {
			for _, x := range at(&list, s, set).del {
				lost[set.subjectOf(x)] = true
			}
		}
	}
	if len(lost) == 0 {
		return list
	}
	w := s.waiting()
	if have.status(w) == absent {
		return list
	}
	for _, set := range w.sets {
		for _, x := range at(&list, s, set.waitsFor).left(have) {
			delete(lost, set.waitsFor.subjectOf(x))
		}
	}
	next := map[string]string{} // owners by subject
	for _, set := range w.sets {
		for _, x := range at(&list, w, set).left(have) {
			subject := set.waitsFor.subjectOf(x)
			if owner, known := next[subject]; lost[subject] && (!known || x.Comment < owner) {
				next[subject] = x.Comment
			}
		}
	}
	for _, set := range w.sets {
		for _, x := range at(&list, w, set).left(have) {
			if next[set.waitsFor.subjectOf(x)] == x.Comment {
				at(&list, w, set).remove(x)
				held := at(&list, s, set.waitsFor)
				held.add = append(held.add, set.waitsFor.awaited(x))
			}
		}
	}
	return list
}

// at returns the change of a set in a list, which it extends if necessary.
func at(list *[]change, s skeleton, set *set) *change {
	i := slices.IndexFunc(*list, func(ch change) bool { return ch.set.id() == set.id() })
	if i < 0 {
		i = len(*list)
		*list = append(*list, change{skeleton: s, set: set})
	}
	return &(*list)[i]
}

// left returns the elements of a set after the change.
func (ch *change) left(have *state) []nftmsg.Element {
	return append(without(have.elements(ch.set), ch.del), ch.add...)
}

// remove adds the removal of an element that exists, or that the change adds, to the change.
func (ch *change) remove(x nftmsg.Element) {
	if i := slices.IndexFunc(ch.add, func(y nftmsg.Element) bool { return equal(x, y) }); i >= 0 {
		ch.add = slices.Delete(ch.add, i, i+1)
		return
	}
	ch.del = append(ch.del, x)
}

// buildWaiting returns the skeleton of the sets in which owners wait if changes add elements to
// them and it is not in place.
func buildWaiting(w skeleton, list []change, have *state) []build {
	adds := func(ch change) bool {
		return ch.set.waitsFor != nil && w.find(ch.set.Name) != nil && len(ch.add) > 0
	}
	if !slices.ContainsFunc(list, adds) || have.status(w) == current {
		return nil
	}
	return []build{rebuild(w, have)}
}
