package runtimes_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/runtimes"
	"github.com/tenon-cni/tenon/internal/judge/trial"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// asDriver is the first argument of the test binary as a driver of package network. The second one is
// the name of a defect, and the third one the verb.
const asDriver = "driver"

func TestMain(m *testing.M) {
	if os.Args[0] == cell.Name {
		os.Exit(cell.Main())
	}
	if len(os.Args) == 4 && os.Args[1] == asDriver {
		os.Exit(named(os.Args[2]).run(os.Args[3]))
	}
	os.Exit(m.Run())
}

// subject starts the driver without a defect for the first calls.
func subject(t *testing.T) *runtimes.Subject {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := runtimes.NewSubject(t.Context(), path, runtimes.Config{Arguments: []string{asDriver, defects[0].name}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judged judges package network with a defect.
func judged(t *testing.T, s runtimes.Subject, defect string, only ...string) *report.Subject {
	t.Helper()
	s.Arguments = []string{asDriver, defect}
	r, err := runtimes.Judge(t.Context(), &s, trial.Options{Only: only})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTenon judges package network, in which the judge must find nothing.
func TestTenon(t *testing.T) {
	t.Parallel()
	r := judged(t, *subject(t), defects[0].name)
	for _, f := range r.Findings {
		t.Errorf("%s", describe(f))
	}
	for _, c := range r.Checks {
		if c.Outcome == report.Skip || c.Outcome == report.Error {
			t.Errorf("%s in %s %s: %s: %s", c.Row, c.Scenario, c.Version, c.Outcome, c.Reason)
		}
	}
	t.Logf("versions %v, %d checks, %.1f s", r.Versions, len(r.Checks), r.Seconds)
}

func describe(f report.Finding) string {
	return fmt.Sprintf("%s in %s %v: %s\nexpected %s\nactual   %s", f.Row, f.Scenario, f.Versions, f.Title, f.Expected, f.Actual)
}

// TestDefects judges package network with a planted defect: the judge must report one of the rows of the
// defect, and no other row. It runs the scenarios for these rows; with -short, only the one that finds the
// defect.
func TestDefects(t *testing.T) {
	t.Parallel()
	s := subject(t)
	for _, d := range slices.Concat(defects[1:], lifeDefects, readDefects, lookupDefects) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			only := d.rows
			if d.slow {
				testnet.Long(t)
			}
			if testing.Short() {
				only = []string{d.scenario}
			}
			s := *s
			if testing.Short() && d.scenario == "add" {
				s.Versions = s.Versions[len(s.Versions)-1:]
			}
			r := judged(t, s, d.name, only...)
			if len(r.Findings) == 0 {
				t.Errorf("no finding; want one of %v", d.rows)
			}
			for _, f := range r.Findings {
				if !slices.Contains(d.rows, f.Row) {
					t.Errorf("%s\nwant only %v", describe(f), d.rows)
				}
			}
		})
	}
}
