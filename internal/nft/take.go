package nft

import (
	"bytes"
	"context"
	"fmt"
	"sort"
)

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
		return c.send(&p)
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
		if ok, err := c.inForce(concern.skeleton()); !ok {
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

// Missing returns what is neither there of a claim nor with kin, or is and must not be: nothing is in a concern whose rules somebody has flushed.
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
			ok, err := c.inForce(s)
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
					if !there && e.kin != nil {
						if there, err = c.second(s, e, claim.Tag); err != nil {
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

// second reports whether an entry that is not in its map is in the second one, or left to kin in both.
func (c *Conn) second(s skeleton, e Entry, tag string) (bool, error) {
	set, kin := s.set(e.set), 0
	p := portsOf(mappingOf(set, e.element).To.Addr())
	for _, name := range []string{e.set, p.inSecond(e).set} {
		x, err := c.element(s.set(name).Set, e.element.Key)
		if err != nil {
			return false, err
		}
		if x == nil || !mappingOf(set, *x).samePorts(mappingOf(set, e.element)) {
			continue
		}
		if x.Comment == tag {
			return bytes.Equal(x.Value, e.element.Value), nil
		}
		if e.kin(x.Comment) {
			kin++
		}
	}
	return kin == 2, nil
}
