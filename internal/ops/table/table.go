// Package table writes tables for people.
package table

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

const (
	gap       = 2 // spaces between columns
	narrowest = 8 // columns of text to which [Write] shrinks a cell, unless its heading is wider
)

// Write writes rows in columns. The first row is the heading; empty cells become "-".
//
// If w has a method Width that returns more than 0, Write breaks the text of the widest columns
// into several lines, so that the table fits that many columns.
func Write(w io.Writer, rows [][]string) error {
	limits := limitsFor(w, rows)
	t := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	for _, row := range rows {
		cells := make([][]string, len(row))
		lines := 1
		for i, cell := range row {
			cells[i] = []string{cmp.Or(cell, "-")}
			if limits != nil {
				cells[i] = breakCell(cells[i][0], limits[i])
			}
			lines = max(lines, len(cells[i]))
		}
		for n := range lines {
			line := make([]string, len(cells))
			for i, c := range cells {
				if n < len(c) {
					line[i] = c[n]
				}
			}
			fmt.Fprintln(t, strings.Join(line, "\t"))
		}
	}
	return t.Flush()
}

// limitsFor returns the widths of the columns in which a table fits w, or nil if it fits as it is.
func limitsFor(w io.Writer, rows [][]string) []int {
	terminal, ok := w.(interface{ Width() int })
	if !ok || len(rows) == 0 || terminal.Width() <= 0 {
		return nil
	}
	widths := make([]int, len(rows[0]))
	total := gap * (len(widths) - 1)
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i]
	}
	excess := total - terminal.Width()
	if excess <= 0 {
		return nil
	}
	for ; excess > 0; excess-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= max(narrowest, utf8.RuneCountInString(rows[0][widest])) {
			break
		}
		widths[widest]--
	}
	return widths
}

// breakCell breaks a text into lines of at most width columns: after a space if possible, otherwise
// after a mark such as a comma, otherwise within a word.
func breakCell(s string, width int) []string {
	var lines []string
	runes := []rune(s)
	for len(runes) > width {
		end := cmp.Or(lastBreak(runes[:width+1], " "), lastBreak(runes[:width], ",/:-"), width)
		lines = append(lines, strings.TrimSpace(string(runes[:end])))
		runes = []rune(strings.TrimLeft(string(runes[end:]), " "))
	}
	return append(lines, string(runes))
}

// lastBreak returns the number of runes up to the last of some marks, or 0 if less than a third of
// the line would be left.
func lastBreak(line []rune, marks string) int {
	for i := len(line); i > len(line)/3; i-- {
		if strings.ContainsRune(marks, line[i-1]) {
			return i
		}
	}
	return 0
}
