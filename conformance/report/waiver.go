package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/conformance"
)

// Waiver accepts a known finding.
type Waiver struct {
	Row      string `json:"row"`
	Subject  string `json:"subject"`
	Scenario string `json:"scenario,omitzero"` // "*" or empty: every scenario
	Reason   string `json:"reason"`
	Until    string `json:"until,omitzero"` // last day, "2027-03-01"
}

// ReadWaivers reads a file with an object with the key waivers, an array of waivers. Unknown keys,
// missing reasons and unknown rows are errors.
func ReadWaivers(path string) ([]Waiver, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Waivers []Waiver `json:"waivers"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	rows, err := conformance.Rows()
	if err != nil {
		return nil, err
	}
	for i, w := range file.Waivers {
		if err := w.validate(rows); err != nil {
			return nil, fmt.Errorf("%s: waiver %d: %w", path, i+1, err)
		}
	}
	return file.Waivers, nil
}

func (w Waiver) validate(rows []conformance.Row) error {
	switch {
	case w.Row == "" || w.Subject == "" || w.Reason == "":
		return errors.New("row, subject and reason are required")
	case !slices.ContainsFunc(rows, func(r conformance.Row) bool { return r.ID == w.Row }):
		return fmt.Errorf("unknown row %q", w.Row)
	case w.Until == "":
		return nil
	}
	if _, err := time.Parse(time.DateOnly, w.Until); err != nil {
		return fmt.Errorf("until %q is not a date like 2027-03-01", w.Until)
	}
	return nil
}

func (w Waiver) everywhere() bool { return w.Scenario == "" || w.Scenario == "*" }

// concerns reports whether a waiver is about a scenario of a row of a subject.
func (w Waiver) concerns(subject, row, scenario string) bool {
	return w.Subject == subject && w.Row == row && (w.everywhere() || w.Scenario == scenario)
}

// covers reports whether a waiver accepts a finding. Critical ones need the name of the scenario.
func (w Waiver) covers(f *Finding) bool {
	return w.concerns(f.Subject, f.Row, f.Scenario) && (f.Severity != Critical || !w.everywhere())
}

// String names the waiver.
func (w Waiver) String() string { return fmt.Sprintf("waiver for %s of %s", w.Row, w.Subject) }

// waive marks the findings that waivers accept, and returns the problems of the waivers: expired
// ones accept nothing, and each must match a finding. unused are waivers about checks that were not
// made, which may be right.
func (r *Report) waive(waivers []Waiver) (problems []string, unused []Waiver) {
	for _, w := range waivers { // a check without a scenario is about all of them
		if w.Until != "" && r.Started.UTC().Format(time.DateOnly) > w.Until {
			problems = append(problems, fmt.Sprintf("%s expired on %s: %s", w, w.Until, w.Reason))
			continue
		}
		made, used, critical := false, false, false
		for i := range r.Subjects {
			s := &r.Subjects[i]
			for j := range s.Findings {
				f := &s.Findings[j]
				if w.covers(f) {
					f.Waived, used = &w, true
				} else if w.concerns(f.Subject, f.Row, f.Scenario) {
					critical = true
				}
			}
			made = made || slices.ContainsFunc(s.Checks, func(c Check) bool {
				return slices.Contains([]Outcome{Pass, Fail, Info}, c.Outcome) && w.concerns(s.Name, c.Row, cmp.Or(c.Scenario, w.Scenario))
			})
		}
		switch {
		case used:
		case critical:
			problems = append(problems, w.String()+" must name the scenario, because the finding is critical")
		case made:
			problems = append(problems, w.String()+" matches no finding; remove it")
		default:
			unused = append(unused, w)
		}
	}
	return problems, unused
}

// unusedNote explains why a waiver was not used.
func (r *Report) unusedNote(w Waiver) string {
	i := slices.IndexFunc(r.Subjects, func(s Subject) bool { return s.Name == w.Subject })
	if i < 0 {
		return fmt.Sprintf("%s is not used: %s was not judged", w, w.Subject)
	}
	if !w.everywhere() && slices.ContainsFunc(r.Subjects[i].Checks, func(c Check) bool { return c.Row == w.Row }) {
		return fmt.Sprintf("%s is not used: the row was not judged in the scenario %s", w, w.Scenario)
	}
	return fmt.Sprintf("%s is not used: the row was not judged", w)
}
