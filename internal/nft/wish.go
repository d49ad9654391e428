package nft

import (
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// wishes are the elements that are wanted of a concern.
type wishes struct {
	tags map[string]bool // who wants them
	sets map[string]*wished
}

// wished are those of one set.
type wished struct {
	elements []nftmsg.Element
	index    map[string]int  // of elements, by key
	about    map[string]bool // what they are about, see [Entry]
	scopes   []int           // the lengths of these
	there    map[string]bool // the keys of elements that are there already
	absent   map[string]bool // the keys of elements that must not be there
	unwanted []nftmsg.Element
	chains   []chain // where the elements lead
}

func wishesOf(s skeleton, concern *Concern, claims []Claim) wishes {
	w := wishes{tags: map[string]bool{}, sets: map[string]*wished{}}
	for _, claim := range claims {
		for _, e := range claim.Entries {
			if e.concern == concern {
				w.add(s, e, claim.Tag)
			}
		}
	}
	return w
}

func (w *wishes) add(s skeleton, e Entry, tag string) {
	w.tags[tag] = true
	in := w.sets[e.set]
	if in == nil {
		in = &wished{index: map[string]int{}, about: map[string]bool{}, there: map[string]bool{}, absent: map[string]bool{}}
		w.sets[e.set] = in
	}
	x := s.set(e.set).owned(e, tag)
	if in.absent[string(x.Key)] = e.scope == absent; e.scope != absent {
		in.about[string(x.Key[:e.scope])] = true
		if !slices.Contains(in.scopes, e.scope) {
			in.scopes = append(in.scopes, e.scope)
		}
	}
	if e.chain != nil {
		in.chains = withChain(in.chains, *e.chain)
	}
	if i, twice := in.index[string(x.Key)]; twice { // the last one counts
		in.elements[i] = x
		return
	}
	in.index[string(x.Key)] = len(in.elements)
	in.elements = append(in.elements, x)
}

// few is how many questions about single elements cost no more than reading a set.
const few = 32

// lookAt finds out which of the wished elements are there, and reports whether there is anything about what is wished.
// What is kept by others does not count.
func (c *Conn) lookAt(s skeleton, w wishes) (found bool, err error) {
	for name, in := range w.sets {
		set := s.set(name)
		var there []nftmsg.Element
		if len(in.elements) > few {
			there, err = c.elements(set.Set)
		} else {
			there, err = c.each(set, in.elements)
		}
		if err != nil {
			return false, err
		}
		for _, x := range there {
			if in.absent[string(x.Key)] {
				in.unwanted = append(in.unwanted, x)
			} else if in.hasAbout(x) {
				found = found || set.users == ""
				in.note(x)
			}
		}
	}
	return found, nil
}

// each reads the elements that have the keys of others.
func (c *Conn) each(set *set, others []nftmsg.Element) (there []nftmsg.Element, err error) {
	for _, o := range others {
		x, err := c.element(set.Set, o.Key)
		if err != nil {
			return nil, err
		}
		if x != nil {
			there = append(there, *x)
		}
	}
	return there, nil
}

func (in *wished) hasAbout(x nftmsg.Element) bool {
	return slices.ContainsFunc(in.scopes, func(n int) bool { return len(x.Key) >= n && in.about[string(x.Key[:n])] })
}

// note remembers x if it is what is wished.
func (in *wished) note(x nftmsg.Element) (same bool) {
	i, ok := in.index[string(x.Key)]
	same = ok && equal(in.elements[i], x)
	if same {
		in.there[string(x.Key)] = true
	}
	return same
}

// has reports whether x, which is wished, was found.
func (in *wished) has(x nftmsg.Element) bool {
	return contains(in.unwanted, x) || in.there[string(x.Key)] && equal(in.elements[in.index[string(x.Key)]], x)
}

// superfluous returns what has to go from a set: what is about the same as something wished, and what those who wish have
// besides.
func (w wishes) superfluous(s skeleton, set *set, there []nftmsg.Element) (del []nftmsg.Element) {
	in := w.sets[set.Name]
	var alike []*wished
	for name, other := range w.sets {
		if name == set.Name || set.subject != 0 && set.subject == s.set(name).subject {
			alike = append(alike, other)
		}
	}
	for _, x := range there {
		if in != nil && in.note(x) {
			continue
		}
		if w.tags[x.Comment] || slices.ContainsFunc(alike, func(other *wished) bool { return other.hasAbout(x) }) {
			del = append(del, x)
		}
	}
	return del
}

// missing returns the elements that are not there yet.
func (in *wished) missing() []nftmsg.Element {
	return slices.DeleteFunc(slices.Clone(in.elements), func(x nftmsg.Element) bool {
		return in.there[string(x.Key)] || in.absent[string(x.Key)]
	})
}
