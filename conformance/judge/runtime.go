package judge

import (
	"context"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/runtimes"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Driver starts a runtime for [Runtimes]. docs/conformance.md describes its protocol.
type Driver struct {
	Path      string   // of the program
	Arguments []string // before the verb
	// Programs are paths of further programs that the driver needs. They are in its PATH, under the
	// base names of the paths.
	Programs []string
}

// Runtimes judges runtimes. Of the options, it ignores Config, Role and Faults.
func Runtimes(ctx context.Context, drivers []Driver, o Options) (*report.Report, error) {
	if err := o.known(runtimes.Knows); err != nil {
		return nil, err
	}
	r := newReport(o)
	for i, d := range drivers {
		s, err := d.subject(ctx)
		if err != nil {
			return nil, err
		}
		s.Title = r.distinct(s.Name, s.Path)
		out, err := runtimes.Judge(ctx, s, o.trial(s.Title, i+1, len(drivers)))
		if err != nil {
			return nil, err
		}
		if err := r.add(out); err != nil {
			return nil, err
		}
	}
	return r.finish()
}

func (d Driver) subject(ctx context.Context) (*runtimes.Subject, error) {
	return runtimes.NewSubject(ctx, d.Path, runtimes.Config{Arguments: d.Arguments, Programs: d.Programs})
}

// ListRuntimes returns the scenarios that [Runtimes] would run with the same arguments. It asks the
// drivers for their verbs and versions.
func ListRuntimes(ctx context.Context, drivers []Driver, o Options) ([]Case, error) {
	if err := o.known(runtimes.Knows); err != nil {
		return nil, err
	}
	list := []Case{}
	for _, d := range drivers {
		s, err := d.subject(ctx)
		if err != nil {
			return nil, err
		}
		list = listed(list, s.Name, runtimes.Plan(s, trial.Options{Only: o.Only}))
	}
	return list, nil
}

// RuntimeScenarios returns all scenarios for runtimes.
func RuntimeScenarios() []Scenario { return scenarios(runtimes.Cases()) }

// replayRuntime judges the subject of a report again.
func replayRuntime(ctx context.Context, s *report.Subject, o trial.Options) (*report.Subject, error) {
	subject, err := runtimes.Reported(s)
	if err != nil {
		return nil, err
	}
	if subject.Digest, err = trial.Digest(s.Path); err != nil {
		return nil, err
	}
	return runtimes.Judge(ctx, subject, o)
}
