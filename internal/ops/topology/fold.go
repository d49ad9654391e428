package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	shownEqual = 3 // equal branches that a fold leaves
	minFold    = 3 // branches in a fold
	minLift    = 5 // attachments with the same problem that one line reports
)

// arrange sorts the branches below one, and folds equal ones unless all is set.
func (b *Branch) arrange(all bool) {
	for _, c := range b.Children {
		c.arrange(all)
	}
	slices.SortStableFunc(b.Children, func(x, y *Branch) int {
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), cmp.Compare(x.health(), y.health()),
			natural(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	if !all {
		b.lift()
		b.fold()
	}
}

// rank sorts interfaces with containers before others, and these before containers.
func (b *Branch) rank() int {
	switch {
	case len(b.Children) > 0:
		return 0
	case b.Kind == OfBridge:
		return 1
	case b.Kind == OfContainer:
		return 2
	case b.Kind == OfNamespace:
		return 3
	}
	return 4
}

// health sorts branches with problems before others.
func (b *Branch) health() int {
	if len(b.Problems) > 0 {
		return 0
	}
	return 1
}

// fold replaces equal branches without problems by one. The first of them stay.
func (b *Branch) fold() {
	count := map[string]int{}
	for _, c := range b.Children {
		if c.foldable() {
			count[c.key()]++
		}
	}
	seen, folds := map[string]int{}, map[string]*Branch{}
	var kept []*Branch
	for _, c := range b.Children {
		key := c.key()
		if !c.foldable() || count[key] < shownEqual+minFold {
			kept = append(kept, c)
			continue
		}
		if seen[key]++; seen[key] <= shownEqual {
			kept = append(kept, c)
			continue
		}
		if folds[key] == nil {
			folds[key] = &Branch{ID: c.ID, Kind: OfFold, Hint: "tenon map --all"}
			if c.network != "" {
				folds[key].Hint = "tenon map --network " + Clean(c.network)
			}
			kept = append(kept, folds[key])
		}
		folds[key].Folded = append(folds[key].Folded, c)
		folds[key].Name = fmt.Sprintf("… %d more of the same shape", len(folds[key].Folded))
	}
	b.Children = kept
}

func (b *Branch) foldable() bool { return len(b.Problems) == 0 && len(b.Children) == 0 }

func (b *Branch) key() string { return string(b.Kind) + b.class }

// titles are the texts of problems that concern all attachments of an interface.
var titles = map[string]string{
	"masquerade.missing": "no masquerade", "attachment.namespace-gone": "namespace gone",
	"attachment.earlier-boot": "from before the last boot",
	"route.default-missing":   "no default route",
	"mtu.peer":                "MTU differs between the ends of the veth pairs", "interface.down": "interface down",
	"interface.no-carrier": "no carrier", "address.missing": "address missing",
	"address.duplicate": "duplicate addresses", "attachment.interface-gone": "interface missing",
}

// lift moves a problem that all attachments below a branch have to the branch.
func (b *Branch) lift() {
	var containers []*Branch
	for _, c := range b.Children {
		if c.Kind == OfContainer {
			containers = append(containers, c)
		}
	}
	if len(containers) < minLift {
		return
	}
	for _, first := range slices.Clone(containers[0].Problems) {
		has := func(p Problem) bool { return p.ID == first.ID }
		title, known := titles[first.ID]
		if !known || slices.ContainsFunc(containers,
			func(c *Branch) bool { return !slices.ContainsFunc(c.Problems, has) }) {
			continue
		}
		for _, c := range containers {
			c.Problems = slices.DeleteFunc(slices.Clone(c.Problems), has)
		}
		first.Text = fmt.Sprintf("%s: all %d attachments", title, len(containers))
		b.Problems = append(slices.Clone(b.Problems), first)
	}
}

// natural compares names with numbers in them: web2 comes before web10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == 0 || y == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
		if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
			return c
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns the number of digits at the beginning.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
