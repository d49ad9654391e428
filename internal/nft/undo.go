package nft

import "slices"

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
	return c.send(&p)
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
