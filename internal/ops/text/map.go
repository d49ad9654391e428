package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/topology"
)

const (
	mapName  = 34 // columns of a name with its lines
	mapFacts = 46 // columns of addresses

	narrowestColumn = 8 // of both
)

// Map prints a host as a tree. If w has a method Width that returns more than 0, lines fit that
// many columns.
func Map(w io.Writer, t *topology.Tree) error {
	d := &drawing{style: styleOf(w)}
	if terminal, ok := w.(interface{ Width() int }); ok {
		d.width = terminal.Width()
	}
	root := mapRow{name: t.Root.Name, facts: strings.Join(t.Root.Facts, ", "),
		problems: t.Root.Problems}
	uplinks := slices.Clone(t.Uplinks)
	if len(uplinks) > 0 && uplinks[0].Children == nil && uplinks[0].Problems == nil &&
		len(uplinks) == 1 {
		u := uplinks[0]
		root.facts = strings.Join(append([]string{u.Name}, u.Facts...), " ")
		if u.Note != "" {
			root.facts += " ── " + u.Note
		}
		uplinks = nil
	}
	root.free = true
	d.rows = append(d.rows, root)
	d.branches("", append(uplinks, t.Root.Children...))
	d.print(w)
	_, err := fmt.Fprintf(w, "\n %s%s\n", t.Summary, mapProblems(t))
	return err
}

// mapProblems counts the problems of a tree.
func mapProblems(t *topology.Tree) string {
	errors, warnings := 0, 0
	var visit func(b *topology.Branch)
	visit = func(b *topology.Branch) {
		for _, p := range b.Problems {
			if p.Severity == topology.Error {
				errors++
			} else {
				warnings++
			}
		}
		for _, c := range b.Children {
			visit(c)
		}
	}
	visit(t.Root)
	for _, u := range t.Uplinks {
		visit(u)
	}
	if errors+warnings == 0 {
		return "; no problems found"
	}
	return fmt.Sprintf("; %s, %s (tenon map --problems)",
		plural.Count(errors, "error"), plural.Count(warnings, "warning"))
}

// mapRow is a line of the tree.
type mapRow struct {
	lead, below string // the lines of the tree before the name, and before further lines of the row
	name        string
	facts       string
	note        string
	problems    []topology.Problem
	free        bool // the row does not widen columns
}

// drawing is a tree as lines.
type drawing struct {
	rows  []mapRow
	width int // 0: any
	style style
}

// branches adds the lines of branches.
func (d *drawing) branches(indent string, list []*topology.Branch) {
	for i, b := range list {
		lead, next := indent+"├─ ", indent+"│  "
		if i == len(list)-1 {
			lead, next = indent+"└─ ", indent+"   "
		}
		r := mapRow{lead: lead, below: next, name: b.Name, facts: strings.Join(b.Facts, ", "),
			note:     strings.Join(append(slices.Clone(b.Ports), nonEmpty(b.Note)...), ", "),
			problems: b.Problems}
		if b.Kind == topology.OfFold {
			r.name, r.free = b.Name+" ("+b.Hint+")", true
		}
		if len(b.Children) > 0 {
			r.below += "│  "
		}
		if b.Kind == topology.OfPort {
			r.free = true
		}
		d.rows = append(d.rows, r)
		d.branches(next, b.Children)
	}
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// print prints the rows in columns.
func (d *drawing) print(w io.Writer) {
	name, facts := 0, 0
	for _, r := range d.rows {
		if !r.free {
			name = max(name, topology.Columns(r.lead+r.name))
			facts = max(facts, topology.Columns(r.facts))
		}
	}
	name, facts = min(name, mapName), min(facts, mapFacts)
	if d.width > 0 {
		name, facts = min(name, max(d.width/3, narrowestColumn)), min(facts, max(d.width/3, narrowestColumn))
	}
	for _, r := range d.rows {
		d.row(w, r, name, facts)
	}
}

// row prints a row. Problems that do not fit follow on lines of their own.
func (d *drawing) row(w io.Writer, r mapRow, name, facts int) {
	line := " " + r.lead + r.name
	if !r.free {
		line = " " + pad(r.lead+topology.Cut(r.name, name-topology.Columns(r.lead)), name)
		if r.facts+r.note != "" || r.problems != nil {
			line += "  " + pad(topology.Cut(r.facts, facts), facts)
		}
	} else if r.facts != "" {
		line += "   " + r.facts
	}
	if r.note != "" {
		line += "  " + r.note
	}
	if r.note != "" || r.problems == nil {
		line = strings.TrimRight(line, " ")
	}
	line = d.cut(line, 0)
	columns := topology.Columns(line)
	for _, p := range r.problems {
		text := topology.Clean(p.Text)
		if columns += 4 + topology.Columns(text); d.width > 0 && columns > d.width {
			lead := " " + r.below + "  "
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line, columns = strings.TrimSuffix(lead, "  "), d.width
			text = d.cut(text, topology.Columns(lead)+2)
		}
		line += "  " + d.style.mark(severityMark(p.Severity)) + " " + text
	}
	fmt.Fprintln(w, line)
}

// cut cuts a text to the width of the terminal, less some columns.
func (d *drawing) cut(s string, less int) string {
	if d.width <= 0 {
		return s
	}
	return topology.Cut(s, max(1, d.width-less))
}

// severityMark returns the mark of a problem.
func severityMark(s topology.Severity) string {
	if s == topology.Error {
		return "✗"
	}
	return "!"
}

func pad(s string, columns int) string {
	return s + strings.Repeat(" ", max(0, columns-topology.Columns(s)))
}
