package judge

import (
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/conformance/report"
)

// T is the part of [testing.T] that [Test] uses.
type T interface {
	Helper()
	Context() context.Context
	Log(args ...any)
	Error(args ...any)
	Fatal(args ...any)
}

// Test judges plugins in a test. Each finding that the profile counts is an error of the test, with the
// text for sh(1) that reproduces it. So is each wrong waiver, and each reason why the judge could not make
// required checks. The test needs a TestMain that calls [Main].
func Test(t T, paths []string, o Options) *report.Report {
	t.Helper()
	r, err := Plugins(t.Context(), paths, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Error(p)
	}
	for _, s := range r.Subjects {
		for _, f := range s.Findings {
			text := fmt.Sprintf("%s %s: %s: %s\nrule: %s (%s)\nscenario: %s\nexpected: %s\nactual: %s\nhint: %s",
				f.Row, f.Level, f.Subject, f.Title, f.Rule, f.Section, f.Scenario, f.Expected, f.Actual, f.Hint)
			switch {
			case f.Waived != nil:
				t.Log("waived: " + f.Waived.Reason + ": " + text)
			case f.Counts:
				t.Error(text + "\nreplay:\n" + f.Replay)
			default:
				t.Log("not counted: " + text)
			}
		}
		for _, text := range s.Missing {
			t.Error(fmt.Sprintf("%s cannot satisfy %s: %s", s.Name, r.Profile, text))
		}
		for _, text := range unjudged(s.Checks) {
			t.Error(fmt.Sprintf("%s: not judged: %s", s.Name, text))
		}
	}
	t.Log(r.Headline())
	return r
}

// unjudged returns the reasons why required checks were not made, each with its first scenario.
func unjudged(checks []report.Check) (list []string) {
	known := map[string]bool{}
	for _, c := range checks {
		if c.Counts && (c.Outcome == report.Skip || c.Outcome == report.Error) && !known[c.Reason] {
			known[c.Reason] = true
			list = append(list, fmt.Sprintf("scenario %s, row %s: %s", c.Scenario, c.Row, c.Reason))
		}
	}
	return list
}
