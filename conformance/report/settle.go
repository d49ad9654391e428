package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/conformance"
)

// Summary counts the checks of a subject or of all subjects. Each check is part of one count.
type Summary struct {
	Passed        int `json:"passed"` // with the checks where the row leaves a choice
	Failed        int `json:"failed"` // and counted by the profile
	Skipped       int `json:"skipped"`
	NotApplicable int `json:"notApplicable"`
	Waived        int `json:"waived"`
	Uncounted     int `json:"uncounted"` // failed, but not required by the profile
	Errors        int `json:"errors"`    // the judge could not finish
	// Unjudged are the skipped checks and errors that the profile requires.
	Unjudged int     `json:"unjudged"`
	Verdict  Verdict `json:"verdict"`
}

// Verdict is the outcome for a subject or for all.
type Verdict string

// The verdicts.
const (
	Passes     Verdict = "pass"
	Fails      Verdict = "fail"
	Incomplete Verdict = "incomplete" // no finding, but required checks were not made
)

// The exit statuses of the commands of the judge.
const (
	StatusPass       = 0
	StatusFail       = 1 // counted findings
	StatusUsage      = 2 // also unused and expired waivers
	StatusIncomplete = 3
)

// Settle applies a profile and waivers to the checks and findings, and computes the summaries. It
// replaces the outcome of an earlier call.
func (r *Report) Settle(p Profile, waivers []Waiver) error {
	list, err := conformance.Rows()
	if err != nil {
		return err
	}
	rows := map[string]conformance.Row{}
	for _, row := range list {
		rows[row.ID] = row
	}
	r.Profile = p
	for i := range r.Subjects {
		for j := range r.Subjects[i].Findings {
			r.Subjects[i].Findings[j].Waived = nil
		}
	}
	r.Problems, r.Unused = r.waive(waivers)
	r.Summary = Summary{}
	for i := range r.Subjects {
		s := &r.Subjects[i]
		s.settle(p, rows)
		r.Summary.add(s.Summary)
	}
	return nil
}

func (s *Subject) settle(p Profile, rows map[string]conformance.Row) {
	counts := p.judged(rows, s.Checks)
	for i := range s.Checks {
		s.Checks[i].Counts = counts(s.Checks[i])
	}
	findings := map[string]*Finding{}
	for i := range s.Findings {
		f := &s.Findings[i]
		f.Counts = slices.ContainsFunc(s.Checks, func(c Check) bool { return c.Finding == f.ID && c.Counts })
		findings[f.ID] = f
	}
	s.Summary, s.Missing = Summary{}, nil
	for _, c := range s.Checks {
		s.Summary.count(c, findings[c.Finding])
	}
	if v := p.version().String(); p.version() != 0 && !slices.Contains(s.Versions, v) {
		s.Missing = append(s.Missing, "it does not announce version "+v)
	}
	if n := s.Summary.Unjudged; n > 0 {
		s.Missing = append(s.Missing, fmt.Sprintf("%s %s not made", plural(n, "required check"), were(n)))
	}
	switch {
	case s.Note != "":
		s.Missing = append(s.Missing, s.Note)
	case len(s.Checks) == 0:
		s.Missing = append(s.Missing, "no check was made")
	}
	switch {
	case s.Summary.Failed > 0:
		s.Summary.Verdict = Fails
	case len(s.Missing) > 0:
		s.Summary.Verdict = Incomplete
	default:
		s.Summary.Verdict = Passes
	}
}

// count adds a check with its finding, which may be nil.
func (s *Summary) count(c Check, f *Finding) {
	switch c.Outcome {
	case Pass, Info:
		s.Passed++
	case NotApplicable:
		s.NotApplicable++
	case Fail:
		switch {
		case f != nil && f.Waived != nil:
			s.Waived++
		case c.Counts:
			s.Failed++
		default:
			s.Uncounted++
		}
	case Skip, Error:
		if c.Outcome == Skip {
			s.Skipped++
		} else {
			s.Errors++
		}
		if c.Counts {
			s.Unjudged++
		}
	}
}

// add adds the counts of a subject to the sum.
func (s *Summary) add(t Summary) {
	s.Passed += t.Passed
	s.Failed += t.Failed
	s.Skipped += t.Skipped
	s.NotApplicable += t.NotApplicable
	s.Waived += t.Waived
	s.Uncounted += t.Uncounted
	s.Errors += t.Errors
	s.Unjudged += t.Unjudged
	switch {
	case s.Verdict == Fails || t.Verdict == Fails:
		s.Verdict = Fails
	case s.Verdict == Incomplete || t.Verdict == Incomplete:
		s.Verdict = Incomplete
	default:
		s.Verdict = Passes
	}
}

// String returns the counts as text: always the first four, the others unless they are 0.
func (s Summary) String() string {
	parts := []string{
		fmt.Sprintf("%d passed", s.Passed), fmt.Sprintf("%d failed", s.Failed),
		fmt.Sprintf("%d skipped", s.Skipped), fmt.Sprintf("%d not applicable", s.NotApplicable),
	}
	for _, more := range []struct {
		n    int
		name string
	}{{s.Waived, "waived"}, {s.Uncounted, "failed but not counted"}, {s.Errors, "not finished"}} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", more.n, more.name))
		}
	}
	return strings.Join(parts, ", ")
}

// Status returns the exit status of a command that made the report.
func (r *Report) Status() int {
	switch {
	case r.Summary.Verdict == Fails:
		return StatusFail
	case len(r.Problems) > 0:
		return StatusUsage
	case r.Summary.Verdict == Incomplete || len(r.Subjects) == 0:
		return StatusIncomplete
	}
	return StatusPass
}

// Headline states the verdict and the counts in one line.
func (r *Report) Headline() string { return r.outcome() + ": " + r.Summary.String() }

// outcome states the verdict and the number of findings.
func (r *Report) outcome() string {
	verdict := string(r.Summary.Verdict)
	waived, counted := 0, 0
	for _, s := range r.Subjects {
		for _, f := range s.Findings {
			switch {
			case f.Waived != nil:
				waived++
			case f.Counts:
				counted++
			}
		}
	}
	var with []string
	if counted > 0 {
		with = append(with, plural(counted, "finding"))
	}
	if waived > 0 {
		with = append(with, plural(waived, "waived finding"))
	}
	if len(with) > 0 {
		verdict += " with " + strings.Join(with, " and ")
	}
	return r.title() + ": " + verdict
}

// title names the subjects and the profile.
func (r *Report) title() string {
	if len(r.Subjects) == 1 {
		return fmt.Sprintf("%s, %s", r.Subjects[0].Name, r.Profile)
	}
	return fmt.Sprintf("%d subjects, %s", len(r.Subjects), r.Profile)
}

// plural returns a number with a word in the right form.
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func were(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
