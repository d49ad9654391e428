// Package doctor checks everything on a host that can break the networking of containers, on one
// snapshot of the host (package host), its network configurations and its IPAM stores. It changes
// nothing; only [Finding.Apply] does, for the fixes that are safe.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Severity says how bad a finding is.
type Severity string

// The severities, from the lowest to the highest.
const (
	Info    Severity = "info"    // nothing to do
	Warning Severity = "warning" // will break, or leaves something behind
	Error   Severity = "error"   // containers cannot be attached, or their traffic stops
)

// Finding is a problem with its cause and its fix.
type Finding struct {
	ID       string     `json:"id"` // "firewall.forward-drop"; scripts depend on it
	Severity Severity   `json:"severity"`
	Title    string     `json:"title"`             // one sentence: the object, its state, the harm
	Text     string     `json:"text,omitzero"`     // the cause, where the title does not say it
	Affects  []string   `json:"affects,omitzero"`  // networks, or containers if only some suffer
	Owner    string     `json:"owner,omitzero"`    // the program with the object: docker, firewalld, …
	Evidence []Evidence `json:"evidence,omitzero"` // reproducible with standard commands
	Fix      []Fix      `json:"fix,omitzero"`

	Check string `json:"check"` // the ID of the check, set by [Run]

	// Objects are the attachments and interfaces that have the problem, as IDs of nodes of
	// [topology.Map]; none if the problem is one of the whole host or of a network.
	Objects []string `json:"-"`
}

// Evidence is the output of a standard command that shows the problem.
type Evidence struct {
	Command string `json:"command"`
	Text    string `json:"text"` // the telling line
}

// Fix is a way to repair a problem.
type Fix struct {
	Command string `json:"command"`         // for a shell, or what to do
	Effect  string `json:"effect,omitzero"` // side effects
	// Safe reports that the fix restores objects of Tenon, or removes something that is proven to
	// have no owner. Only safe fixes have Apply.
	Safe bool `json:"safe"`
	// Apply makes the fix, after a second look at the host. It is nil unless the fix is safe.
	Apply func(ctx context.Context) error `json:"-"`
}

// Check looks for problems of one kind.
type Check struct {
	ID    string // "firewall.forward"; the part before the dot is the group
	Title string // a phrase: "rules that drop forwarded packets of containers"
	// Run returns the findings. An error made by [Skip] marks the check as skipped. Any other error
	// marks it as failed. Run must obey ctx, because a hung check must not stop the others.
	Run func(ctx context.Context, s *State) ([]Finding, error)
}

// Group is the part of the ID before the dot.
func (c Check) Group() string {
	group, _, _ := strings.Cut(c.ID, ".")
	return group
}

// Status is the outcome of a check.
type Status string

// The outcomes. [Passed] means that the check found nothing worse than information.
const (
	Passed   Status = "passed"
	Warned   Status = "warning"
	Failed   Status = "error"
	Skipped  Status = "skipped"  // could not run: no permission, or not used on this host
	TimedOut Status = "deadline" // ran longer than [Deadline]
	Crashed  Status = "crashed"
)

// Result is the outcome of a check.
type Result struct {
	ID      string  `json:"id"`
	Status  Status  `json:"status"`
	Reason  string  `json:"reason,omitzero"` // of all outcomes after [Failed]
	Unused  bool    `json:"unused,omitzero"` // skipped, because this host does not use it
	Seconds float64 `json:"seconds"`

	findings []Finding
}

// Deadline limits each check.
const Deadline = 1500 * time.Millisecond

// skipped is an error that explains why a check cannot run.
type skipped struct {
	reason string
	unused bool
}

func (s skipped) Error() string { return s.reason }

// Skip returns an error for [Check.Run] that marks the check as skipped.
func Skip(format string, args ...any) error { return skipped{fmt.Sprintf(format, args...), false} }

// NotUsed returns an error for [Check.Run] that marks the check as skipped because this host does
// not use the examined objects. The report is complete without it.
func NotUsed() error { return skipped{"not used", true} }

// Report is what doctor found.
type Report struct {
	Version     int            `json:"version"` // of this format: 1
	Time        time.Time      `json:"time"`
	Host        string         `json:"host"`
	Kernel      string         `json:"kernel"`
	Attachments int            `json:"attachments"`
	Networks    int            `json:"networks"` // configured ones and others with attachments
	Seconds     float64        `json:"seconds"`  // with reading the state
	Complete    bool           `json:"complete"` // all checks ran
	Skipped     []SkippedCheck `json:"skipped"`  // or not finished
	Checks      []Result       `json:"checks"`
	Findings    []Finding      `json:"findings"` // the worst first
}

// SkippedCheck is a check without an outcome.
type SkippedCheck struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Worst returns the severity of the worst finding, [Info] if there is none.
func (r *Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return Info
	}
	return r.Findings[0].Severity
}

// Run runs checks side by side. It calls done, which may be nil, after each check, one call at a
// time. A check that crashes or exceeds [Deadline] is a line in the report, not the end of the run.
func Run(ctx context.Context, s *State, checks []Check, done func(Result)) *Report {
	results := make([]Result, len(checks))
	var running sync.WaitGroup
	var one sync.Mutex
	for i, c := range checks {
		running.Go(func() {
			r := c.run(ctx, s)
			one.Lock()
			defer one.Unlock()
			results[i] = r
			if done != nil {
				done(r)
			}
		})
	}
	running.Wait()
	r := &Report{Version: 1, Time: s.Host.Time, Host: s.Host.Name, Kernel: s.Host.Kernel,
		Attachments: len(s.Records), Networks: len(s.Networks), Complete: true, Checks: results,
		Findings: []Finding{}, Skipped: []SkippedCheck{}}
	for _, result := range results {
		if result.Reason != "" {
			r.Complete = r.Complete && result.Unused
			r.Skipped = append(r.Skipped, SkippedCheck{result.ID, result.Reason})
		}
		for _, f := range result.findings {
			f.Check = result.ID
			r.Findings = append(r.Findings, f)
		}
	}
	slices.SortStableFunc(
		r.Findings,
		func(a, b Finding) int { return rank(b.Severity) - rank(a.Severity) },
	)
	return r
}

// run runs a check until it ends or the deadline passes.
func (c Check) run(ctx context.Context, s *State) Result {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	start := time.Now()
	ended := make(chan Result, 1)
	go func() { ended <- c.attempt(ctx, s) }()
	r := Result{Status: TimedOut, Reason: fmt.Sprintf("not finished after %v", Deadline)}
	select {
	case r = <-ended:
	case <-ctx.Done():
	}
	r.ID, r.Seconds = c.ID, time.Since(start).Seconds()
	return r
}

func (c Check) attempt(ctx context.Context, s *State) (r Result) {
	defer func() {
		if cause := recover(); cause != nil {
			r = Result{Status: Crashed, Reason: fmt.Sprint(cause)}
		}
	}()
	findings, err := c.Run(ctx, s)
	var skip skipped
	switch {
	case errors.As(err, &skip):
		return Result{Status: Skipped, Reason: skip.reason, Unused: skip.unused, findings: findings}
	case err != nil:
		return Result{Status: Crashed, Reason: err.Error(), findings: findings}
	}
	r = Result{Status: Passed, findings: findings}
	for _, f := range findings {
		switch {
		case f.Severity == Error:
			r.Status = Failed
		case f.Severity == Warning && r.Status == Passed:
			r.Status = Warned
		}
	}
	return r
}

func rank(s Severity) int { return slices.Index([]Severity{Info, Warning, Error}, s) }
