package judge

import (
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/conformance/report"
)

// TestUnjudged checks that each reason is named once, and only for checks that count.
func TestUnjudged(t *testing.T) {
	t.Parallel()
	check := func(row, reason string, counts bool, o report.Outcome) report.Check {
		return report.Check{Row: row, Scenario: "life", Outcome: o, Reason: reason, Counts: counts}
	}
	got := unjudged([]report.Check{
		check("PL-GC-01", "", true, report.Pass),
		check("PL-DEL-01", "no daemon", true, report.Skip),
		check("PL-DEL-02", "no daemon", true, report.Skip),
		check("PL-DEL-03", "no memory", true, report.Error),
		check("SEC-05", "no tool", false, report.Skip),
	})
	want := []string{"scenario life, row PL-DEL-01: no daemon", "scenario life, row PL-DEL-03: no memory"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
