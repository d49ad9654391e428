package nft

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/kernel/nftmsg"
)

// TakenError says that somebody has what an owner wants.
type TakenError struct {
	What   string // what is wanted
	Holder string // the tag of who has it
}

func (e *TakenError) Error() string { return e.What + " is taken by " + e.Holder }

// taken looks for mappings of others that would get packets of one claim, or not get theirs any more. What kin of its owner have is
// not among the entries to be met.
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
			for _, m := range mapped(p, earlier) {
				if err := want.against(m, earlier.Tag); err != nil {
					return nil, err
				}
			}
		}
		for _, set := range p.maps() {
			there, err := l.near(p, set, want)
			if err != nil {
				return nil, err
			}
			for _, x := range there {
				if x.Comment == claims[i].Tag {
					continue
				}
				if err := want.against(mappingOf(set, x), x.Comment); err != nil {
					return nil, err
				}
			}
		}
		entries = p.without(entries, want.left)
	}
	return entries, nil
}

// mappings are those of one claim, so that few have to be compared with another.
type mappings struct {
	all    []Mapping
	single map[portKey][]Mapping // by port
	ranges []Mapping
	kin    func(tag string) bool // whose mappings will do
	left   []Mapping             // to kin
}

type portKey struct {
	protocol byte
	port     uint16
}

func wanted(p ports, claim Claim) mappings {
	want := mappings{single: map[portKey][]Mapping{}}
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

// without returns entries without those of mappings.
func (p ports) without(entries []Entry, left []Mapping) (rest []Entry) {
	if len(left) == 0 {
		return entries
	}
	for _, e := range entries {
		if m, ok := p.mappingOf(e); !ok || !slices.Contains(left, m) {
			rest = append(rest, e)
		}
	}
	return rest
}

// against returns the error if a mapping of somebody else is in the way.
func (w *mappings) against(m Mapping, holder string) error {
	for _, want := range w.candidates(m) {
		switch {
		case !want.Overlaps(m):
		case w.kin != nil && w.kin(holder) && want.samePorts(m):
			w.left = append(w.left, want)
		default:
			return &TakenError{What: "host port " + want.String(), Holder: holder}
		}
	}
	return nil
}

// near reads the elements of a map that can overlap what is wanted. A large map is not read whole for a few ports: that is
// the one of single ports without an address.
func (l *look) near(p ports, s *set, want mappings) ([]nftmsg.Element, error) {
	if s != p.single || len(want.ranges) > 0 || len(want.all) > few {
		return l.elements(s)
	}
	var keys []nftmsg.Element
	for _, m := range want.all {
		keys = append(keys, nftmsg.Element{Key: keyOf(netip.Addr{}, m.Protocol, m.First)})
	}
	return l.c.each(s, keys)
}
