package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/conformance"
)

// report is the content of the output.
type report struct {
	rows     []conformance.Row
	reasons  map[string]string // why an identifier has no test
	mentions []mention
}

// print writes the report. It returns true if every row has a test or a reason, and every
// identifier in a test has a row.
func (r report) print(w io.Writer, verbose bool) bool {
	tests, known := map[string][]mention{}, map[string]bool{}
	for _, m := range r.mentions {
		tests[m.id] = append(tests[m.id], m)
	}
	var tested, missing, reasoned int
	for _, row := range r.rows {
		known[row.ID] = true
		proof, reason := tests[row.ID], r.reasons[row.ID]
		switch {
		case proof != nil:
			tested++
		case reason != "":
			reasoned++
		default:
			missing++
			fmt.Fprintf(w, "%s has neither test nor reason: %s (%s)\n", row.ID, row.Title, row.Party)
		}
		if proof != nil && reason != "" {
			fmt.Fprintf(w, "%s has a test and needs no reason any more: %v\n", row.ID, proof[0])
		}
		if verbose {
			fmt.Fprintf(w, "%s %s\n%s", row.ID, row.Title, evidence(proof, reason))
		}
	}
	unknown := r.unknown(known, tests)
	for _, line := range unknown {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "%d rows: %d with a test, %d with a reason, %d with neither\n", len(r.rows), tested, reasoned, missing)
	return missing == 0 && len(unknown) == 0
}

// evidence returns one line for each test, or a line with the reason.
func evidence(proof []mention, reason string) string {
	var b strings.Builder
	for _, m := range proof {
		fmt.Fprintf(&b, "\t%v\n", m)
	}
	if proof == nil && reason != "" {
		fmt.Fprintf(&b, "\tno test: %s\n", reason)
	}
	return b.String()
}

// unknown lists identifiers that the catalogue does not contain.
func (r report) unknown(known map[string]bool, tests map[string][]mention) []string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(tests)) {
		if !known[id] {
			lines = append(lines, fmt.Sprintf("%s is in no catalogue: %v", id, tests[id][0]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.reasons)) {
		if !known[id] {
			lines = append(lines, fmt.Sprintf("%s is in no catalogue: untested.tsv", id))
		}
	}
	return lines
}
