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

// taken looks for mappings of others that would get packets of one claim, or not get theirs any more.
func taken(l *look, claims []Claim, i int) error {
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
					return err
				}
			}
		}
		for _, set := range p.maps() {
			there, err := l.near(p, set, want)
			if err != nil {
				return err
			}
			for _, x := range there {
				if x.Comment == claims[i].Tag {
					continue
				}
				if err := want.against(mappingOf(set, x), x.Comment); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// mappings are those of one claim, so that few have to be compared with another.
type mappings struct {
	all    []Mapping
	single map[portKey][]Mapping // by port
	ranges []Mapping
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
	maps := p.maps()
	for _, e := range claim.Entries {
		if i := slices.IndexFunc(maps, func(s *set) bool { return s.Name == e.set }); i >= 0 {
			list = append(list, mappingOf(maps[i], e.element))
		}
	}
	return list
}

// against returns the error if a mapping of somebody else is in the way.
func (w *mappings) against(m Mapping, holder string) error {
	if want, ok := w.overlapping(m); ok {
		return &TakenError{What: "host port " + want.String(), Holder: holder}
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
