package trial_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// run judges a case in two versions. The recordings lack a part of the cell, a part of the state and a
// limit.
func run(t *testing.T, rows []string, judge func(*trial.Judgment)) *report.Subject {
	t.Helper()
	play := func(context.Context, *trial.Trial) (*script.Recording, error) {
		state := &script.Snapshot{Host: &host.Host{Namespaces: []host.Namespace{
			{Missing: []host.Skipped{{What: "rules of IPsec", Reason: "operation not permitted"}}},
		}}}
		return &script.Recording{Skipped: []string{"/sys is empty"}, Unlimited: []string{"no limit"}, Start: state,
			Events: []script.Event{{After: state}}}, nil
	}
	var trials []*trial.Trial
	for _, v := range []string{"1.0.0", "1.1.0"} {
		trials = append(trials, &trial.Trial{Case: "del", Version: v, Rows: rows, Scenario: &script.Scenario{}, Judge: judge})
	}
	out := &report.Subject{Name: "veth"}
	if err := trial.Run(t.Context(), out, trials, trial.Options{Jobs: 1, Play: play}); err != nil {
		t.Fatal(err)
	}
	return out
}

func checks(s *report.Subject) (list []string) {
	for _, c := range s.Checks {
		list = append(list, fmt.Sprintf("%s %s %s %s", c.Row, c.Version, c.Outcome, c.Reason))
	}
	return list
}

// TestAlso checks that a defect that violates several rows is one finding, to which the checks of all of
// them refer.
func TestAlso(t *testing.T) {
	t.Parallel()
	s := run(t, []string{"PL-DEL-07", "EXE-15", "PL-DEL-01"}, func(j *trial.Judgment) {
		j.Fail(trial.Verdict{Row: "PL-DEL-07", Also: []string{"EXE-15"}, Title: "DEL prints", Every: true})
		j.Verdicts = append(j.Verdicts, trial.Verdict{Row: "EXE-15", Outcome: report.Pass, Every: true}) // of STATUS
	})
	want := []string{
		"EXE-15 1.0.0 fail ", "PL-DEL-07 1.0.0 fail ", "PL-DEL-01 1.0.0 skip depends on a failed check: DEL prints",
		"EXE-15 1.1.0 fail ", "PL-DEL-07 1.1.0 fail ", "PL-DEL-01 1.1.0 skip depends on a failed check: DEL prints",
	}
	if diff := cmp.Diff(want, checks(s)); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	if len(s.Findings) != 1 || s.Findings[0].Row != "PL-DEL-07" || !cmp.Equal(s.Findings[0].Related, []string{"EXE-15"}) {
		t.Errorf("findings: %+v", s.Findings)
	}
	for _, c := range s.Checks {
		if c.Outcome == report.Fail && c.Finding != s.Findings[0].ID {
			t.Errorf("%s names the finding %q", c.Row, c.Finding)
		}
	}
}

// TestSkipped checks that the report has the parts that a host lacks, with the rows that depend on them.
func TestSkipped(t *testing.T) {
	t.Parallel()
	s := run(t, []string{"PL-DEL-01", "LIF-11"}, func(*trial.Judgment) {})
	rows := []string{"LIF-11", "PL-DEL-01"}
	want := []report.Skipped{
		{Reason: "no limit"},
		{Reason: "/sys is empty", Rows: rows},
		{Reason: "cannot read rules of IPsec: operation not permitted", Rows: rows},
	}
	if diff := cmp.Diff(want, s.Skipped); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
