package judge_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/runtimes"
)

// TestJudged compares the table of the catalog with the cases of the judge. Each row is judged on
// plugins, on runtimes, or on both, or the table explains why it cannot be.
func TestJudged(t *testing.T) {
	t.Parallel()
	const path = "../judged.tsv"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) != 3 {
			t.Fatalf("%s: %d columns in %q", path, len(columns), line)
		}
		table[columns[0]] = columns[1:]
	}
	delete(table, "id")
	rows, err := conformance.Rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		var on []string
		if slices.Contains(plugins.Rows(), r.ID) {
			on = append(on, "plugins")
		}
		if slices.Contains(runtimes.Rows(), r.ID) {
			on = append(on, "runtimes")
		}
		want := strings.Join(on, ",")
		switch entry, known := table[r.ID]; {
		case !known:
			t.Errorf("%s lacks the row; want the line %q", path, fmt.Sprintf("%s\t%s\t", r.ID, want))
		case entry[0] != want:
			t.Errorf("%s: %s is judged on %q, the cases judge it on %q", path, r.ID, entry[0], want)
		case (entry[1] == "") != (want != ""):
			t.Errorf("%s: %s needs either cases that judge it or a reason; reason %q", path, r.ID, entry[1])
		}
		delete(table, r.ID)
	}
	for id := range table {
		t.Errorf("%s contains the unknown row %s", path, id)
	}
	known := func(id string) bool {
		return slices.ContainsFunc(rows, func(r conformance.Row) bool { return r.ID == id })
	}
	for _, id := range append(plugins.Rows(), runtimes.Rows()...) {
		if !known(id) {
			t.Errorf("a case judges the unknown row %s", id)
		}
	}
}
