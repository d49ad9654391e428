package nft

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// TakenError says that somebody has what an owner wants.
type TakenError struct {
	What   string     // the host port
	Holder string     // its tag
	To     netip.Addr // the address of the holder's container
}

func (e *TakenError) Error() string { return e.What + " is taken by " + e.Holder }

// taken looks for mappings of others that would get packets of one claim, or not get theirs any more. It returns the entries
// to be met: where kin of the owner have the same ports, in the second maps, and not at all where others of them are there too.
func taken(l *look, claims []Claim, i int) ([]Entry, error) {
	entries := claims[i].Entries
	for _, p := range []ports{ports4(), ports6()} {
		want := wanted(p, claims[i])
		if len(want.all) == 0 {
			continue
		}
		for _, earlier := range claims[:i] {
			if earlier.Tag == claims[i].Tag {
				continue
			}
			for _, e := range earlier.Entries {
				m, ok := p.mappingOf(e)
				if !ok {
					continue
				}
				if err := want.against(m, earlier.Tag, p.isSecond(e.set)); err != nil {
					return nil, err
				}
			}
		}
		for _, set := range p.maps() {
			there, err := l.near(p, set, want)
			if err != nil {
				return nil, err
			}
			second := p.isSecond(set.Name)
			for _, x := range there {
				m := mappingOf(set, x)
				if x.Comment == claims[i].Tag {
					want.keep(m, second)
				} else if err := want.against(m, x.Comment, second); err != nil {
					return nil, err
				}
			}
		}
		entries = p.placed(entries, want.places)
	}
	return entries, nil
}

// mappings are those of one claim, so that few have to be compared with another.
type mappings struct {
	all    []Mapping
	single map[portKey][]Mapping // by port
	ranges []Mapping
	kin    func(tag string) bool // whose mappings will do
	places map[Mapping]place     // of those of which there is something
}

// place is what there is of a mapping.
type place struct {
	kinFirst, kinSecond bool // kin have the same ports, in a first map, in a second one
	ownSecond           bool // the owner has them in a second one
}

type portKey struct {
	protocol byte
	port     uint16
}

func wanted(p ports, claim Claim) mappings {
	want := mappings{single: map[portKey][]Mapping{}, places: map[Mapping]place{}}
	for _, m := range mapped(p, claim) {
		want.add(m)
	}
	for _, e := range claim.Entries {
		if e.kin != nil {
			want.kin = e.kin
		}
	}
	return want
}

func (w *mappings) add(m Mapping) {
	w.all = append(w.all, m)
	if m.First != m.Last {
		w.ranges = append(w.ranges, m)
		return
	}
	key := portKey{m.Protocol, m.First}
	w.single[key] = append(w.single[key], m)
}

// candidates are those that a mapping can overlap.
func (w *mappings) candidates(m Mapping) []Mapping {
	if m.First != m.Last {
		return w.all
	}
	return slices.Concat(w.single[portKey{m.Protocol, m.First}], w.ranges)
}

func (w *mappings) overlapping(m Mapping) (o Mapping, ok bool) {
	for _, o := range w.candidates(m) {
		if o.Overlaps(m) {
			return o, true
		}
	}
	return Mapping{}, false
}

// mapped are the mappings of a claim.
func mapped(p ports, claim Claim) (list []Mapping) {
	for _, e := range claim.Entries {
		if m, ok := p.mappingOf(e); ok {
			list = append(list, m)
		}
	}
	return list
}

// mappingOf is what an entry maps; ok is false if that is nothing, or of the other family.
func (p ports) mappingOf(e Entry) (m Mapping, ok bool) {
	for _, s := range p.maps() {
		if s.Name == e.set {
			return mappingOf(s, e.element), true
		}
	}
	return Mapping{}, false
}

// placed returns entries in the maps where they are to be.
func (p ports) placed(entries []Entry, places map[Mapping]place) []Entry {
	if len(places) == 0 {
		return entries
	}
	var rest []Entry
	for _, e := range entries {
		m, ok := p.mappingOf(e)
		switch there := places[m]; {
		case ok && (there.ownSecond || there.kinFirst && !there.kinSecond):
			e = p.inSecond(e)
		case ok && there.kinFirst && there.kinSecond:
			continue
		}
		rest = append(rest, e)
	}
	return rest
}

// against returns the error if a mapping of somebody else is in the way.
func (w *mappings) against(m Mapping, holder string, second bool) error {
	for _, want := range w.candidates(m) {
		switch {
		case !want.Overlaps(m):
		case w.kin != nil && w.kin(holder) && want.samePorts(m):
			there := w.places[want]
			there.kinFirst, there.kinSecond = there.kinFirst || !second, there.kinSecond || second
			w.places[want] = there
		default:
			return &TakenError{What: "host port " + want.String(), Holder: holder, To: m.To.Addr()}
		}
	}
	return nil
}

// keep leaves what the owner has already where it is.
func (w *mappings) keep(m Mapping, second bool) {
	for _, want := range w.candidates(m) {
		if second && want.samePorts(m) {
			there := w.places[want]
			there.ownSecond = true
			w.places[want] = there
		}
	}
}

// near reads the elements of a map that can overlap what is wanted. A large map is not read whole for a few ports: that is
// the one of single ports without an address.
func (l *look) near(p ports, s *set, want mappings) ([]nftmsg.Element, error) {
	if s != p.first.single && s != p.second.single || len(want.ranges) > 0 || len(want.all) > few {
		return l.elements(s)
	}
	var keys []nftmsg.Element
	for _, m := range want.all {
		keys = append(keys, nftmsg.Element{Key: keyOf(netip.Addr{}, m.Protocol, m.First)})
	}
	return l.c.each(s, keys)
}
