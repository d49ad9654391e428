package nft

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// ConflictError reports that another owner holds an element that cannot be shared.
type ConflictError struct {
	What   string     // the host port
	Holder string     // the owner of the element
	To     netip.Addr // the address of the holder's container
}

func (e *ConflictError) Error() string { return e.What + " is already in use by " + e.Holder }

// resolve leaves out the requests that conflict with elements of other owners, and returns the
// conflicts.
func resolve(requests []Request, have *state) (granted []Request, conflicts []error) {
	requests = slices.Clone(requests)
	for i, r := range requests {
		var conflict error
		for _, rs := range ruleSetsOf(r) {
			if rs.resolve != nil && conflict == nil {
				requests[i].Elements, conflict = rs.resolve(have, requests, i)
			}
		}
		if conflict == nil {
			granted = append(granted, requests[i])
		} else {
			requests[i].Elements = nil
			conflicts = append(conflicts, conflict)
		}
	}
	return granted, conflicts
}

// resolvePorts compares the mappings of requests[i] with mappings of other owners. It returns an
// error if a packet could match both. A mapping of the same ports by an owner that shares them is
// no conflict: the element then goes to the second maps, or is left out if those have one too.
func resolvePorts(have *state, requests []Request, i int) ([]Element, error) {
	elements := requests[i].Elements
	for _, p := range []ports{ports4(), ports6()} {
		want := wantedPorts(p, requests[i])
		if len(want.all) == 0 {
			continue
		}
		err := want.compareRequests(p, requests[:i])
		if err == nil {
			err = want.compareHave(p, have)
		}
		if err != nil {
			return nil, err
		}
		elements = p.placed(elements, want.places)
	}
	return elements, nil
}

// portRequest holds the mappings of one request in one family.
type portRequest struct {
	mappings
	owner  string
	shares func(owner string) bool // see Element
	places map[Mapping]place       // of mappings with ports that already have an element
}

// place reports which maps have an element for the ports of a mapping.
type place struct {
	// An owner that shares the ports has them in a first or a second map.
	sharedFirst, sharedSecond bool
	ownSecond                 bool // the owner itself has them in a second map
}

func wantedPorts(p ports, r Request) *portRequest {
	want := &portRequest{owner: r.Owner, places: map[Mapping]place{}}
	for _, e := range r.Elements {
		if m, ok := p.mappingOf(e); ok {
			want.add(m)
		}
		if e.shares != nil {
			want.shares = e.shares
		}
	}
	return want
}

// compareRequests compares the mappings with earlier requests of the same transaction.
func (w *portRequest) compareRequests(p ports, earlier []Request) error {
	for _, r := range earlier {
		for _, e := range r.Elements {
			m, ok := p.mappingOf(e)
			if !ok || r.Owner == w.owner {
				continue
			}
			if err := w.compareWith(m, r.Owner, p.isSecond(e.set)); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareHave compares the mappings with existing ones.
func (w *portRequest) compareHave(p ports, have *state) error {
	for _, set := range p.maps {
		second := p.isSecond(set.Name)
		for _, x := range w.near(p, set, have) {
			if err := w.compareWith(mappingOf(set, x), x.Comment, second); err != nil {
				return err
			}
		}
	}
	return nil
}

// near returns the elements of a map that the mappings can overlap. For a few ports it looks up
// single elements of the maps that can be large: single ports without an address.
func (w *portRequest) near(p ports, s *set, have *state) []nftmsg.Element {
	if len(s.Key) != 2 || s.Interval || len(w.ranges) > 0 || len(w.all) > few {
		return have.elements(s)
	}
	keys := make([]nftmsg.Element, len(w.all))
	for i, m := range w.all {
		keys[i] = nftmsg.Element{Key: keyOf(netip.Addr{}, m.Protocol, m.First)}
	}
	return have.lookupAll(s, keys)
}

// compareWith returns an error if a mapping of another owner conflicts with the request. Otherwise
// it notes the maps that have an element for the same ports; the owner's own element stays in its
// map.
func (w *portRequest) compareWith(m Mapping, holder string, second bool) error {
	for _, want := range w.candidates(m) {
		there, same := w.places[want], want.samePorts(m)
		switch {
		case holder == w.owner && same && second:
			there.ownSecond = true
		case holder == w.owner || !want.Overlaps(m):
			continue
		case !same || w.shares == nil || !w.shares(holder):
			return &ConflictError{What: "host port " + want.String(), Holder: holder,
				To: m.To.Addr()}
		case second:
			there.sharedSecond = true
		default:
			there.sharedFirst = true
		}
		w.places[want] = there
	}
	return nil
}

// placed returns elements in the maps that places assign to them.
func (p ports) placed(elements []Element, places map[Mapping]place) []Element {
	if len(places) == 0 {
		return elements
	}
	var list []Element
	for _, e := range elements {
		m, ok := p.mappingOf(e)
		switch there := places[m]; {
		case ok && (there.ownSecond || there.sharedFirst && !there.sharedSecond):
			e = p.inSecond(e)
		case ok && there.sharedFirst && there.sharedSecond:
			continue
		}
		list = append(list, e)
	}
	return list
}

// mappingOf returns the mapping of an element; ok is false if it has none, or if its mapping is of
// the other family.
func (p ports) mappingOf(e Element) (m Mapping, ok bool) {
	if i := p.mapIndex(e.set); i >= 0 {
		return mappingOf(p.maps[i], e.raw), true
	}
	return Mapping{}, false
}

// sharesPorts reports whether an element that its map lacks is in the second map, or whether owners
// that share its ports have elements in both.
func sharesPorts(s skeleton, e Element, owner string, have *state) bool {
	set, shared := s.set(e.set), 0
	want := mappingOf(set, e.raw)
	for _, name := range []string{e.set, portsOf(want.To.Addr()).inSecond(e).set} {
		x := have.lookup(s.set(name), e.raw.Key)
		if x == nil || !mappingOf(set, *x).samePorts(want) {
			continue
		}
		if x.Comment == owner {
			return bytes.Equal(x.Value, e.raw.Value)
		}
		if e.shares(x.Comment) {
			shared++
		}
	}
	return shared == 2
}

// mappings is a list of mappings, indexed to compare a new one with few of them.
type mappings struct {
	all    []Mapping
	single map[portKey][]Mapping // by port
	ranges []Mapping
}

type portKey struct {
	protocol byte
	port     uint16
}

func (l *mappings) add(m Mapping) {
	l.all = append(l.all, m)
	if m.First != m.Last {
		l.ranges = append(l.ranges, m)
		return
	}
	if l.single == nil {
		l.single = map[portKey][]Mapping{}
	}
	key := portKey{m.Protocol, m.First}
	l.single[key] = append(l.single[key], m)
}

// candidates returns the mappings that m can overlap.
func (l *mappings) candidates(m Mapping) []Mapping {
	if m.First != m.Last {
		return l.all
	}
	return slices.Concat(l.single[portKey{m.Protocol, m.First}], l.ranges)
}

func (l *mappings) overlapping(m Mapping) (o Mapping, ok bool) {
	for _, o := range l.candidates(m) {
		if o.Overlaps(m) {
			return o, true
		}
	}
	return Mapping{}, false
}
