package trial

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// Trial is a case for one role and version of a subject.
type Trial struct {
	Case    string // its name
	Role    string
	Version string   // of the specification; empty if it concerns none
	Rows    []string // that the case judges, if it runs
	// Scenario is nil if the case does not apply to the subject; Reason explains it.
	Scenario *script.Scenario
	Reason   string
	// Lacks is a feature that the host lacks and the scenario needs; it is then skipped.
	Lacks string
	// Judge adds the verdicts. It looks only at the recording.
	Judge func(*Judgment)

	recording *script.Recording
	took      time.Duration
	err       error
}

// Chosen reports whether a case belongs to a selection of names of cases and rows. An empty one
// selects all.
func Chosen(only []string, name string, rows []string) bool {
	return len(only) == 0 || slices.Contains(only, name) ||
		slices.ContainsFunc(rows, func(row string) bool { return slices.Contains(only, row) })
}

// Options change a run. The zero value runs each scenario in a cell.
type Options struct {
	Only []string // names of cases or rows; empty: all
	Jobs int      // scenarios at the same time; 0: as many as there are processors
	// Faults adds trials of plugins with faults at each system call that changes something.
	Faults bool
	Play   Player // nil: [Play]
	// Progress is called when a scenario starts or ends, with the number of finished
	// scenarios and the name of a case that runs, if any.
	Progress func(done, total int, current string)
}

// Player returns the recording of a trial that has a scenario. Several goroutines call it at the same
// time.
type Player func(context.Context, *Trial) (*script.Recording, error)

// Play is the Player that runs scenarios in cells.
func Play(ctx context.Context, t *Trial) (*script.Recording, error) { return cell.Run(ctx, t.Scenario) }

// Run runs trials, and adds their checks and findings to the report about the subject.
func Run(ctx context.Context, out *report.Subject, trials []*Trial, o Options) error {
	rows, err := catalog()
	if err != nil {
		return err
	}
	begin := time.Now()
	runAll(ctx, trials, o)
	out.Checks, out.Findings = []report.Check{}, []report.Finding{}
	m := merger{rows: rows, out: out, findings: map[string]int{}, every: map[string]int{},
		found: map[string]int{}}
	for _, t := range trials {
		m.add(t)
	}
	slices.SortStableFunc(out.Findings, func(a, b report.Finding) int { return cmp.Compare(a.Row, b.Row) })
	out.Seconds = time.Since(begin).Seconds()
	return ctx.Err()
}

func catalog() (map[string]conformance.Row, error) {
	list, err := conformance.Rows()
	rows := map[string]conformance.Row{}
	for _, r := range list {
		rows[r.ID] = r
	}
	return rows, err
}

// runAll runs the scenarios, several at a time.
func runAll(ctx context.Context, trials []*Trial, o Options) {
	if o.Play == nil {
		o.Play = Play
	}
	queue := make(chan *Trial)
	p := progress{total: len(trials), report: o.Progress}
	var workers sync.WaitGroup
	for range cmp.Or(o.Jobs, runtime.NumCPU()) {
		workers.Go(func() {
			for t := range queue {
				p.begin(t.Case)
				begin := time.Now()
				if t.Scenario != nil && t.Lacks == "" {
					t.Scenario.Name = t.Case
					t.recording, t.err = o.Play(ctx, t)
				}
				t.took = time.Since(begin)
				p.end(t.Case)
			}
		})
	}
	for _, t := range trials {
		queue <- t
	}
	close(queue)
	workers.Wait()
}

// progress counts finished trials and knows the ones that run.
type progress struct {
	mu          sync.Mutex
	done, total int
	running     []string
	report      func(done, total int, current string)
}

func (p *progress) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, name)
	p.tell()
}

func (p *progress) end(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.running, name)
	p.running = slices.Delete(p.running, i, i+1)
	p.done++
	p.tell()
}

func (p *progress) tell() {
	current := ""
	if len(p.running) > 0 {
		current = p.running[0] // the longest
	}
	if p.report != nil {
		p.report(p.done, p.total, current)
	}
}

// merger adds the verdicts of trials to a report. Findings of several versions become one.
type merger struct {
	rows     map[string]conformance.Row
	out      *report.Subject
	findings map[string]int // index by ID
	every    map[string]int // index of the check for all recordings, by row, role and version
	found    map[string]int // index of the finding in any recording, by row
}

func (m *merger) add(t *Trial) {
	m.addSkipped(t)
	v := t.verdicts()
	for _, verdict := range v {
		row := m.rows[verdict.Row]
		if v, err := cni.ParseVersion(t.Version); err == nil && t.Version != "" && !row.Holds(v) {
			verdict.Outcome, verdict.Reason = report.NotApplicable, "not a requirement of version "+t.Version
		}
		c := report.Check{
			Row: row.ID, Level: row.Level, Title: row.Title, Scenario: t.Case, Role: t.Role,
			Version: t.Version, Outcome: verdict.Outcome, Reason: verdict.Reason,
			Seconds: t.took.Seconds() / float64(len(v)),
		}
		if verdict.Outcome == report.Fail {
			c.Finding = m.finding(t, row, verdict)
			for _, also := range verdict.Also {
				row := m.rows[also]
				second := c
				second.Row, second.Level, second.Title, second.Seconds = row.ID, row.Level, row.Title, 0
				m.addCheck(second, verdict.Every)
			}
		}
		m.addCheck(c, verdict.Every)
	}
}

func (m *merger) addCheck(c report.Check, every bool) {
	if every {
		m.addEvery(c)
		return
	}
	m.out.Checks = append(m.out.Checks, c)
}

// addSkipped adds what the host lacked in a trial, with the rows that the trial judges.
func (m *merger) addSkipped(t *Trial) {
	if t.recording == nil {
		return
	}
	add := func(reason string, rows []string) {
		i := slices.IndexFunc(m.out.Skipped, func(s report.Skipped) bool { return s.Reason == reason })
		if i < 0 {
			i = len(m.out.Skipped)
			m.out.Skipped = append(m.out.Skipped, report.Skipped{Reason: reason})
		}
		all := append(m.out.Skipped[i].Rows, rows...)
		slices.Sort(all)
		m.out.Skipped[i].Rows = slices.Compact(all)
	}
	for _, reason := range t.recording.Unlimited {
		add(reason, nil)
	}
	for _, reason := range t.recording.Lacks() {
		add(reason, t.Rows)
	}
}

// addEvery adds a check that holds for every recording. One failure decides about all recordings of a
// role and version.
func (m *merger) addEvery(c report.Check) {
	key := strings.Join([]string{c.Row, c.Role, c.Version}, " ")
	i, known := m.every[key]
	switch {
	case !known:
		m.every[key] = len(m.out.Checks)
		if c.Outcome != report.Fail {
			c.Scenario = ""
		}
		m.out.Checks = append(m.out.Checks, c)
	case c.Outcome == report.Fail && m.out.Checks[i].Outcome != report.Fail:
		m.out.Checks[i] = c
	}
}

// verdicts returns the verdicts of a trial. A trial that did not run has the same for all its rows.
func (t *Trial) verdicts() []Verdict {
	all := func(o report.Outcome, reason string) (list []Verdict) {
		for _, row := range t.Rows {
			list = append(list, Verdict{Row: row, Outcome: o, Reason: reason})
		}
		return list
	}
	switch {
	case t.Scenario == nil:
		return all(report.NotApplicable, t.Reason)
	case t.Lacks != "":
		return all(report.Skip, t.Lacks)
	case t.err != nil:
		return all(report.Error, t.err.Error())
	case t.recording.Broken != "":
		return all(report.Error, t.recording.Broken)
	}
	judgment := &Judgment{Recording: t.recording}
	t.Judge(judgment)
	judgment.complete(t.Rows)
	return judgment.Verdicts
}

// finding adds a finding and returns its ID.
func (m *merger) finding(t *Trial, row conformance.Row, v Verdict) string {
	id := report.FindingID(row.ID, m.out.Name, t.Case)
	i, known := m.findings[id]
	if v.Every && !known {
		i, known = m.found[row.ID]
	}
	if known {
		f := &m.out.Findings[i]
		if !slices.Contains(f.Versions, t.Version) {
			f.Versions = append(f.Versions, t.Version)
		}
		if f.Scenario != t.Case && !slices.Contains(f.Further, t.Case) {
			f.Further = append(f.Further, t.Case)
		}
		return f.ID
	}
	m.findings[id] = len(m.out.Findings)
	if v.Every {
		m.found[row.ID] = len(m.out.Findings)
	}
	m.out.Findings = append(m.out.Findings, report.Finding{
		ID: id, Row: row.ID, Level: row.Level, Severity: v.Severity, Title: v.Title, Subject: m.out.Name,
		Scenario: t.Case, Role: t.Role, Versions: []string{t.Version},
		Related: v.Also, Rule: row.Rule, Section: row.Section, Disputed: m.rows[row.Disputed].Rule,
		Expected: v.Expected, Actual: v.Actual, Hint: v.Hint, Replay: t.Scenario.Shell(),
	})
	return id
}
