package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// MaxComment is the length in bytes of the longest comment of an element.
const MaxComment = 128

// Entry is an element that an owner wants in a set of a concern.
type Entry struct {
	concern *Concern
	set     string
	element nftables.SetElement // without comment
	scope   int                 // so many bytes of the key say what it is about: what others have about the same is replaced
	chain   *chain              // where the element leads, in a verdict map: there as long as an element leads to it, or nil
}

func newEntry(concern *Concern, set *set, x nftables.SetElement, scope int) Entry {
	return Entry{concern: concern, set: set.Name, element: x, scope: scope}
}

// absent is the scope of an entry that must not be there, in a set that is a policy.
const absent = -1

// Claim is everything that an owner wants. The elements carry Tag as comment, 1 to [MaxComment] bytes.
type Claim struct {
	Tag     string
	Entries []Entry
}

// Held is an element that is there.
type Held struct {
	Set     string // its name
	Key     []byte
	KeyEnd  []byte // the last key of a range, nil if it is no range
	Value   []byte // in a map
	Comment string // names the owner, "" if it is kept by elements of another set
	Text    string // what it says, for people

	Unwanted bool // in the answer of [Conn.Missing]: it is there and must not be
}

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
		return c.send(p)
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
	var errs []error
	for i, claim := range claims {
		var err error
		for _, concern := range concerns(claim.Entries) {
			if concern.conflict != nil {
				err = errors.Join(err, concern.conflict(c, claims, i))
			}
		}
		if errs = append(errs, err); err == nil {
			met = append(met, claim)
		}
	}
	return met, errors.Join(errs...)
}

func entriesOf(claims []Claim) (all []Entry) {
	for _, claim := range claims {
		all = append(all, claim.Entries...)
	}
	return all
}

// concerns lists the concerns of entries, each once.
func concerns(entries []Entry) (list []*Concern) {
	for _, e := range entries {
		if !slices.Contains(list, e.concern) {
			list = append(list, e.concern)
		}
	}
	return list
}

// change is what a transaction does to one set.
type change struct {
	skeleton skeleton
	set      *set
	del, add []nftables.SetElement
	turned   []nftables.SetElement // of add: what others would have kept before, had the policy been the same

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
		p.add(func(c *Conn) {
			c.fill(ch.fill)
			_ = c.c.SetDeleteElements(ch.set.Set, ch.del) // Flush returns the error
			_ = c.c.SetAddElements(ch.set.Set, ch.add)    // Flush returns the error
			c.drop(ch.drop)
		})
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
func (c *Conn) turned(s skeleton, ch change) ([]nftables.SetElement, error) {
	if !ch.set.policy || len(ch.add) == 0 {
		return nil, nil
	}
	users, err := c.elements(s.set(ch.set.users).Set)
	return slices.DeleteFunc(slices.Clone(ch.add), func(x nftables.SetElement) bool { return !keptBy(users, x) }), err
}

// keptBy reports whether one of the users keeps x.
func keptBy(users []nftables.SetElement, x nftables.SetElement) bool {
	return slices.ContainsFunc(users, func(u nftables.SetElement) bool { return bytes.HasPrefix(u.Key, x.Key) })
}

// wishes are the elements that are wanted of a concern.
type wishes struct {
	tags map[string]bool // who wants them
	sets map[string]*wished
}

// wished are those of one set.
type wished struct {
	elements []nftables.SetElement
	index    map[string]int  // of elements, by key
	about    map[string]bool // what they are about, see [Entry]
	scopes   []int           // the lengths of these
	there    map[string]bool // the keys of elements that are there already
	absent   map[string]bool // the keys of elements that must not be there
	unwanted []nftables.SetElement
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
		var there []nftables.SetElement
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
func (c *Conn) each(set *set, others []nftables.SetElement) (there []nftables.SetElement, err error) {
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

func (in *wished) hasAbout(x nftables.SetElement) bool {
	return slices.ContainsFunc(in.scopes, func(n int) bool { return len(x.Key) >= n && in.about[string(x.Key[:n])] })
}

// note remembers x if it is what is wished.
func (in *wished) note(x nftables.SetElement) (same bool) {
	i, ok := in.index[string(x.Key)]
	same = ok && equal(in.elements[i], x)
	if same {
		in.there[string(x.Key)] = true
	}
	return same
}

// has reports whether x, which is wished, was found.
func (in *wished) has(x nftables.SetElement) bool {
	return contains(in.unwanted, x) || in.there[string(x.Key)] && equal(in.elements[in.index[string(x.Key)]], x)
}

// superfluous returns what has to go from a set: what is about the same as something wished, and what those who wish have
// besides.
func (w wishes) superfluous(s skeleton, set *set, there []nftables.SetElement) (del []nftables.SetElement) {
	in := w.sets[set.Name]
	var alike []*wished
	for name, other := range w.sets {
		if name == set.Name || set.subject != "" && set.subject == s.set(name).subject {
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
func (in *wished) missing() []nftables.SetElement {
	return slices.DeleteFunc(slices.Clone(in.elements), func(x nftables.SetElement) bool {
		return in.there[string(x.Key)] || in.absent[string(x.Key)]
	})
}

// orphans adds to changes of a concern the elements that nothing keeps afterwards, and leaves out those that nothing would.
func (c *Conn) orphans(s skeleton, changes []change) error {
	for i := range changes {
		kept := &changes[i]
		if kept.set.users == "" {
			continue
		}
		users := changes[slices.IndexFunc(changes, func(ch change) bool { return ch.set.Name == kept.set.users })]
		lonely := func(x nftables.SetElement) bool { return !keptBy(users.add, x) }
		if len(users.del) == 0 && !slices.ContainsFunc(kept.add, lonely) {
			continue
		}
		left, err := c.elements(users.set.Set)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(x nftables.SetElement) bool { return contains(users.del, x) })
		left = append(left, users.add...)
		kept.add = slices.DeleteFunc(kept.add, func(x nftables.SetElement) bool { return !keptBy(left, x) })
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

func contains(list []nftables.SetElement, x nftables.SetElement) bool {
	return slices.ContainsFunc(list, func(y nftables.SetElement) bool { return equal(x, y) })
}

// revert takes changes back, but for what somebody else has changed since.
func (c *Conn) revert(changes []change) error {
	var p plan
	for _, group := range bySkeleton(changes) {
		s := group[0].skeleton
		back := make([]change, len(s.sets))
		for i, set := range s.sets {
			back[i] = change{skeleton: s, set: set}
			for _, ch := range group {
				if ch.set == set {
					if err := c.inverse(ch, &back[i]); err != nil {
						return err
					}
				}
			}
		}
		for i := range back {
			if err := c.lead(&back[i], dropped(group, back[i])); err != nil {
				return err
			}
		}
		if err := c.orphans(s, back); err != nil {
			return err
		}
		p.change(back)
	}
	return c.send(p)
}

// bySkeleton keeps changes of the same skeleton together.
func bySkeleton(changes []change) (groups [][]change) {
	for _, ch := range changes {
		i := slices.IndexFunc(groups, func(g []change) bool { return g[0].skeleton.sets[0] == ch.skeleton.sets[0] })
		if i < 0 {
			groups, i = append(groups, nil), len(groups)
		}
		groups[i] = append(groups[i], ch)
	}
	return groups
}

// inverse adds to back what takes ch back. What was added is gone, or somebody else's, if it is not there any more: then
// nothing comes back in its place either.
func (c *Conn) inverse(ch change, back *change) error {
	added := ch.add
	if ch.set.users != "" { // what others have not come to need will be an orphan
		added = ch.turned
	}
	free := true
	for _, x := range added {
		now, err := c.element(ch.set.Set, x.Key)
		if err != nil {
			return err
		}
		if now != nil && equal(*now, x) {
			back.del = append(back.del, x)
		} else {
			free = false
		}
	}
	for _, x := range ch.del {
		now, err := c.element(ch.set.Set, x.Key)
		if err != nil {
			return err
		}
		gone := now != nil && contains(back.del, *now)
		if gone || now == nil && (free || len(added) == 0) {
			back.add = append(back.add, x)
		}
	}
	return nil
}

// Take removes what has a comment that matches, in one transaction, and returns it. Nothing is sent if there is nothing.
// Where first is given, nothing is looked for unless that is there: one small question instead of many.
func (c *Conn) Take(ctx context.Context, concern *Concern, match func(comment string) bool, first *Entry) (taken []Held, err error) {
	err = c.tried(ctx, func() error {
		taken = nil
		s := concern.skeleton()
		if first != nil {
			if x, err := c.element(s.set(first.set).Set, first.element.Key); x == nil || !match(x.Comment) {
				return err
			}
		}
		changes := make([]change, len(s.sets))
		for i, set := range s.sets {
			changes[i] = change{skeleton: s, set: set}
			elements, err := c.elements(set.Set)
			if err != nil {
				return err
			}
			for _, x := range elements {
				if x.Comment != "" && match(x.Comment) {
					changes[i].del = append(changes[i].del, x)
					taken = append(taken, set.held(x))
				}
			}
			if err := c.lead(&changes[i], nil); err != nil {
				return err
			}
		}
		if err := c.orphans(s, changes); err != nil {
			return err
		}
		var p plan
		p.change(changes)
		return c.send(p)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", concern, err)
	}
	return taken, nil
}

// List returns all elements of a concern, set by set. Where somebody has flushed the rules there are none: nothing looks at
// them.
func (c *Conn) List(ctx context.Context, concern *Concern) (list []Held, err error) {
	err = c.locked(ctx, func() error {
		if ok, err := c.intact(concern.skeleton()); !ok {
			return err
		}
		list, err = c.Owned(concern)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", concern, err)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Text < list[j].Text })
	return list, nil
}

// Owned returns all elements of a concern, also where somebody has flushed the rules. It takes no lock, so that it can be
// asked by who has it.
func (c *Conn) Owned(concern *Concern) (list []Held, err error) {
	for _, set := range concern.skeleton().sets {
		elements, err := c.elements(set.Set)
		if err != nil {
			return nil, err
		}
		for _, x := range elements {
			list = append(list, set.held(x))
		}
	}
	return list, nil
}

// Missing returns what is not there of a claim, or is and must not be: nothing is in a concern whose rules somebody has flushed.
func (c *Conn) Missing(ctx context.Context, claim Claim) ([]Held, error) {
	missing, err := c.MissingOfEach(ctx, claim)
	if err != nil {
		return nil, err
	}
	return missing[0], nil
}

// MissingOfEach is Missing for many claims.
func (c *Conn) MissingOfEach(ctx context.Context, claims ...Claim) (missing [][]Held, err error) {
	missing = make([][]Held, len(claims))
	err = c.locked(ctx, func() error {
		for _, concern := range concerns(entriesOf(claims)) {
			s := concern.skeleton()
			w := wishesOf(s, concern, claims)
			ok, err := c.intact(s)
			if ok {
				_, err = c.lookAt(s, w)
			}
			if err != nil {
				return err
			}
			for i, claim := range claims {
				for _, e := range claim.Entries {
					if e.concern != concern {
						continue
					}
					set := s.set(e.set)
					want, unwanted := set.owned(e, claim.Tag), e.scope == absent
					there := w.sets[e.set].has(want)
					if there && e.chain != nil {
						if there, err = c.filled(*e.chain); err != nil {
							return err
						}
					}
					if there == unwanted {
						held := set.held(want)
						held.Unwanted = unwanted
						missing[i] = append(missing[i], held)
					}
				}
			}
		}
		return nil
	})
	return missing, err
}

// owned is the element of an entry as its owner has it.
func (s *set) owned(e Entry, tag string) nftables.SetElement {
	x := e.element
	if s.users == "" {
		x.Comment = tag
	}
	return x
}

// held is an element as others see it.
func (s *set) held(x nftables.SetElement) Held {
	return Held{Set: s.Name, Key: x.Key, KeyEnd: x.KeyEnd, Value: x.Val, Comment: x.Comment, Text: s.text(x)}
}

func checkComment(comment string) error {
	if comment == "" || len(comment) > MaxComment || strings.ContainsRune(comment, 0) {
		return fmt.Errorf("comment %q: not 1 to %d bytes without NUL", comment, MaxComment)
	}
	return nil
}

// elements lists a set; one that is not there has none.
func (c *Conn) elements(set *nftables.Set) ([]nftables.SetElement, error) {
	es, err := c.c.GetSetElements(set)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("elements of nft set %s: %w", set.Name, explain(err, lackingQuestion))
	}
	decodeVerdicts(set, es)
	return es, nil
}

// element reads the element that has a key, alone or in its range; nil if there is none.
func (c *Conn) element(set *nftables.Set, key []byte) (*nftables.SetElement, error) {
	es, err := c.c.FindSetElements(set, []nftables.SetElement{{Key: key}})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("element of nft set %s: %w", set.Name, explain(err, lackingQuestion))
	case len(es) != 1:
		return nil, fmt.Errorf("element of nft set %s: %d answers", set.Name, len(es))
	}
	decodeVerdicts(set, es)
	return &es[0], nil
}

// equal compares elements. The end of a range of one is not always told.
func equal(a, b nftables.SetElement) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(lastKey(a), lastKey(b)) && bytes.Equal(a.Val, b.Val) && chainOf(a) == chainOf(b) &&
		a.Comment == b.Comment
}

// lastKey returns the last key of an element, which is its only one unless it is a range.
func lastKey(x nftables.SetElement) []byte {
	if x.KeyEnd == nil {
		return x.Key
	}
	return x.KeyEnd
}
