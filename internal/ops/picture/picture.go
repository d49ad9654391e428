// Package picture draws the map of a host (package topology) as SVG, as a page of HTML that
// contains all it needs, and as a Mermaid flowchart. Equal maps give equal bytes. Names of
// containers and interfaces can contain any character; every format escapes them.
package picture

import (
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// kinds of lines in a card.
const (
	lineName    = "name"
	lineFact    = "fact"
	lineNote    = "note"
	linePort    = "port"
	lineError   = "error"
	lineWarning = "warning"
)

// line is a line of text in a card.
type line struct{ class, text string }

// maxLines is the number of facts or ports that a card shows.
const maxLines = 4

// linesOf returns the text of a card, cut to a number of columns.
func linesOf(b *topology.Branch, columns int) (list []line) {
	add := func(class, text string) {
		list = append(list, line{class, topology.Cut(text, columns)})
	}
	several := func(class string, texts []string) {
		for i, text := range texts {
			if i == maxLines-1 && len(texts) > maxLines {
				add(class, more(len(texts)-i))
				return
			}
			add(class, text)
		}
	}
	if b.Folded != nil {
		return []line{{lineName, b.Name}}
	}
	add(lineName, b.Name)
	several(lineFact, b.Facts)
	var ports []string
	for _, text := range b.Ports {
		ports = append(ports, wrap(text, columns)...)
	}
	several(linePort, ports)
	for part := range strings.SplitSeq(b.Note, ", ") {
		for _, text := range wrap(part, columns) {
			add(lineNote, text)
		}
	}
	for _, p := range b.Problems {
		class, mark := lineWarning, "! "
		if p.Severity == topology.Error {
			class, mark = lineError, "✗ "
		}
		for i, text := range wrap(topology.Clean(p.Text), columns-2) {
			if i > 0 {
				mark = "  "
			}
			add(class, mark+text)
		}
	}
	return list
}

// wrap breaks a text between words.
func wrap(text string, columns int) (lines []string) {
	current := ""
	for _, word := range strings.Fields(text) {
		if current != "" && topology.Columns(current)+1+topology.Columns(word) > columns {
			lines = append(lines, current)
			current = ""
		}
		if current != "" {
			current += " "
		}
		current += word
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}

// class returns the classes of a card: its shape, and the worst of its problems.
func class(b *topology.Branch) string {
	c := string(b.Kind)
	if strings.Contains(b.Note, "not Tenon's") {
		c += " foreign"
	}
	worst := ""
	for _, p := range b.Problems {
		if p.Severity == topology.Error || worst == "" {
			worst = string(p.Severity)
		}
	}
	if worst != "" {
		c += " has-" + worst
	}
	return c
}

// numbersOf returns the position of each node in the map, by ID: names in attributes would have to
// survive the escaping of several formats.
func numbersOf(m *topology.Map) map[string]int {
	numbers := make(map[string]int, len(m.Nodes))
	for i, n := range m.Nodes {
		numbers[n.ID] = i
	}
	return numbers
}
