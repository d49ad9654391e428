// Package judge decides whether plugins and runtimes obey the specification. It runs them as black
// boxes in namespaces of their own, and returns a report with a finding for each violation.
//
//	func TestMain(m *testing.M) {
//		judge.Main()
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		judge.Test(t, []string{"./my-plugin"}, judge.Options{Profile: report.Spec11})
//	}
//
// The judge needs Linux, and root or user namespaces.
package judge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Main must be called first in the main function of a program that uses the judge. The judge starts
// the program again for its scenarios; Main then does not return.
func Main() {
	if os.Args[0] == cell.Name {
		os.Exit(cell.Main())
	}
}

// Options change a run of [Plugins] or [Runtimes].
type Options struct {
	Version string         // of the program that runs the judge, for the report
	Profile report.Profile // empty: strict
	Waivers []report.Waiver
	Only    []string // names of scenarios or rows, else [ErrUnknownName]; empty: all
	Jobs    int      // scenarios at the same time; 0: as many as there are processors
	Faults  bool     // add faults at each system call that changes something (linux/amd64)
	// Progress is called when a scenario starts or ends.
	Progress func(Progress)
	// Judged is called with each subject that was judged.
	Judged func(*report.Subject)

	// Config is the path of a file that describes how to use a plugin: an object, or an array of them,
	// of which the first one of a role is judged in full. Empty: the built-in configurations, or trial
	// calls. Role is one of [Roles]; empty: all that fit.
	Config, Role string
}

// Roles returns the names of the roles of plugins.
func Roles() (names []string) {
	for _, r := range plugins.Roles() {
		names = append(names, string(r))
	}
	return names
}

// Progress is the state of a run.
type Progress struct {
	Subject     string
	Number, Of  int    // of the subject, from 1, and of all
	Done, Total int    // scenarios of the subject; 0 before they are known
	Current     string // name of a scenario that runs
}

// ErrUnknownName reports a name in [Options.Only] that neither a scenario nor a row has.
var ErrUnknownName = errors.New("no scenario and no row has this name")

// known returns an error that wraps ErrUnknownName unless Only contains names of rows and scenarios.
func (o *Options) known(scenario func(name string) bool) error {
	rows, err := conformance.Rows()
	if err != nil {
		return err
	}
	for _, name := range o.Only {
		if !scenario(name) && !slices.ContainsFunc(rows, func(r conformance.Row) bool { return r.ID == name }) {
			return fmt.Errorf("%q: %w", name, ErrUnknownName)
		}
	}
	return nil
}

// Plugins judges plugins, given by the paths of their programs.
func Plugins(ctx context.Context, paths []string, o Options) (*report.Report, error) {
	if err := o.known(plugins.Knows); err != nil {
		return nil, err
	}
	configs, err := o.configs()
	if err != nil {
		return nil, err
	}
	r := newReport(o)
	for i, path := range paths {
		s, err := o.subject(ctx, path, configs)
		if err != nil {
			return nil, err
		}
		s.Title = r.distinct(s.Name, s.Path)
		out, err := plugins.Judge(ctx, s, o.trial(s.Title, i+1, len(paths)))
		if err != nil {
			return nil, err
		}
		if err := r.add(out); err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// configs returns the configurations of the role in the file; nil stands for the built-in ones.
func (o *Options) configs() ([]plugins.Config, error) {
	if o.Config == "" {
		return nil, nil
	}
	list, err := plugins.ReadConfigs(o.Config)
	if err != nil || o.Role == "" {
		return list, err
	}
	list = slices.DeleteFunc(list, func(c plugins.Config) bool { return string(c.Role) != o.Role })
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no configuration of role %s", o.Config, o.Role)
	}
	return list, nil
}

// subject returns the plugin of a path.
func (o *Options) subject(ctx context.Context, path string, configs []plugins.Config) (*plugins.Subject, error) {
	s, err := plugins.NewSubject(ctx, path, configs...)
	if err != nil || len(configs) > 0 {
		return s, err
	}
	return s, s.Detect(ctx, plugins.Role(o.Role))
}

// trial returns the options of the trials of a subject.
func (o *Options) trial(name string, number, of int) trial.Options {
	t := trial.Options{Only: o.Only, Jobs: o.Jobs, Faults: o.Faults}
	if o.Progress != nil {
		t.Progress = func(done, total int, current string) {
			o.Progress(Progress{Subject: name, Number: number, Of: of, Done: done, Total: total, Current: current})
		}
	}
	return t
}
