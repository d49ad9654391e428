package trial

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// Judgment derives verdicts from a recording.
type Judgment struct {
	*script.Recording
	Verdicts []Verdict
	// Stopped explains why the rows of the case without a verdict are skipped. If it is empty, the
	// title of the last finding does.
	Stopped string
	// Claimed are the names of calls with an output that the case judges itself. Checks that hold for every
	// recording leave them out.
	Claimed []string
}

// Claim leaves calls out of the checks that hold for every recording.
func (j *Judgment) Claim(calls ...string) { j.Claimed = append(j.Claimed, calls...) }

// Verdict is the outcome for one row.
type Verdict struct {
	Row      string
	Outcome  report.Outcome
	Severity report.Severity
	Title    string // of the finding: "the second DEL fails"
	Expected string
	Actual   string
	Hint     string
	Reason   string // of an outcome other than pass and fail
	// Also are further rows that the same defect violates. Their checks fail with the same finding.
	Also []string
	// Every is set for a check that holds for every recording. The report has one check for each role
	// and version then, and one finding with the first scenario that has the defect.
	Every bool
}

// Pass records that the observation agrees with a row.
func (j *Judgment) Pass(row string) {
	j.Verdicts = append(j.Verdicts, Verdict{Row: row, Outcome: report.Pass})
}

// Fail records a finding.
func (j *Judgment) Fail(v Verdict) {
	v.Outcome = report.Fail
	j.Verdicts = append(j.Verdicts, v)
}

// Expect records a pass of the row and of the further rows if ok, else the finding.
func (j *Judgment) Expect(ok bool, v Verdict) bool {
	if !ok {
		j.Fail(v)
		return false
	}
	j.Pass(v.Row)
	for _, row := range v.Also {
		j.Pass(row)
	}
	return true
}

// Info records the choice of the subject where a row leaves one.
func (j *Judgment) Info(row, choice string) {
	j.Verdicts = append(j.Verdicts, Verdict{Row: row, Outcome: report.Info, Reason: choice})
}

// NotApplicable records that a row does not concern the subject.
func (j *Judgment) NotApplicable(row, reason string) {
	j.Verdicts = append(j.Verdicts, Verdict{Row: row, Outcome: report.NotApplicable, Reason: reason})
}

// Skip records that the host cannot judge a row.
func (j *Judgment) Skip(row, reason string) {
	j.Verdicts = append(j.Verdicts, Verdict{Row: row, Outcome: report.Skip, Reason: reason})
}

// Succeeded records that a call must have succeeded, and reports whether it did. The verdict has the
// row, severity, title and hint.
func (j *Judgment) Succeeded(call string, v Verdict) bool {
	r, _ := j.Call(call)
	v.Expected, v.Actual = "exit status 0", Describe(r)
	return j.Expect(r.Failed == "" && r.Status == 0, v)
}

// Requires reports whether a call succeeded that the following checks depend on. If not, the rows
// without a verdict are skipped.
func (j *Judgment) Requires(call string) bool {
	r, found := j.Call(call)
	switch {
	case !found:
		j.Stopped = "no call " + call
	case r.Failed != "" || r.Status != 0:
		j.Stopped = fmt.Sprintf("call %s: %s", call, Describe(r))
	default:
		return true
	}
	return false
}

// complete adds a verdict for each row that the case left without one.
func (j *Judgment) complete(rows []string) {
	reason := j.Stopped
	for _, v := range j.Verdicts {
		if v.Outcome == report.Fail && j.Stopped == "" && (reason == "" || !v.Every) {
			reason = "depends on a failed check: " + v.Title
		}
	}
	for _, row := range rows {
		if !slices.ContainsFunc(j.Verdicts, func(v Verdict) bool { return v.Row == row || slices.Contains(v.Also, row) }) {
			j.Skip(row, cmp.Or(reason, "no observation"))
		}
	}
}

// Describe states how a call ended.
func Describe(r script.Result) string {
	switch {
	case r.Failed != "":
		return "the program does not start: " + r.Failed
	case r.Flooded:
		return "killed because it printed more than 1 MiB"
	case r.Late:
		return fmt.Sprintf("killed after %s without an answer", r.Took.Round(100*1e6))
	case r.Signal != 0:
		return fmt.Sprintf("ended by signal %d", r.Signal)
	}
	text := fmt.Sprintf("exit status %d", r.Status)
	if r.Status != 0 {
		if e, err := cni.DecodeError(r.Stdout); err == nil {
			return fmt.Sprintf("%s, code %d: %s", text, e.Code, e.Msg)
		}
	}
	if len(r.Stdout) > 0 {
		text += fmt.Sprintf(", output %.300q", r.Stdout)
	}
	if len(r.Stderr) > 0 && r.Status != 0 {
		text += fmt.Sprintf(", standard error %.300q", r.Stderr)
	}
	return text
}
