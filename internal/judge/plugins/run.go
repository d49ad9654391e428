package plugins

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Judge runs all cases that concern a subject and returns what they found.
func Judge(ctx context.Context, s *Subject, o trial.Options) (*report.Subject, error) {
	out, err := s.Report()
	if err != nil {
		return nil, err
	}
	trials, err := Plan(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if o.Jobs == 0 {
		for _, c := range s.Configs {
			o.Jobs = max(o.Jobs, c.Jobs)
		}
	}
	return out, trial.Run(ctx, out, trials, o)
}

// Report returns the report about the subject without checks.
func (s *Subject) Report() (*report.Subject, error) {
	out := &report.Subject{Name: cmp.Or(s.Title, s.Name), Path: s.Path, Digest: s.Digest}
	for _, c := range s.Configs {
		if !slices.Contains(out.Roles, string(c.Role)) {
			out.Roles = append(out.Roles, string(c.Role))
		}
	}
	for _, v := range s.Versions {
		out.Versions = append(out.Versions, v.String())
	}
	for i := range s.Configs {
		text, err := json.Marshal(s.Configs[i])
		if err != nil {
			return nil, err
		}
		out.Configs = append(out.Configs, text)
	}
	out.Note = s.Unknown
	return out, nil
}

// Reported returns the subject of a report. It runs nothing.
func Reported(r *report.Subject) (*Subject, error) {
	s := &Subject{Name: filepath.Base(r.Path), Title: r.Name, Path: r.Path, Digest: r.Digest, Unknown: r.Note}
	for _, text := range r.Versions {
		v, err := cni.ParseVersion(text)
		if err != nil {
			return nil, err
		}
		s.Versions = append(s.Versions, v)
	}
	for _, text := range r.Configs {
		var c Config
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", r.Name, err)
		}
		s.Configs = append(s.Configs, c)
	}
	return s, nil
}

// Plan returns the trials for a subject. It runs the scenarios that test which features of the host
// the configurations need.
func Plan(ctx context.Context, s *Subject, o trial.Options) (trials []*trial.Trial, err error) {
	if o.Play == nil {
		o.Play = trial.Play
	}
	if s.Unknown != "" {
		return unknownRole(o), nil
	}
	seen := map[Role]bool{}
	for i := range s.Configs {
		config := &s.Configs[i]
		of, err := planConfig(ctx, s, config, seen[config.Role], o)
		if err != nil {
			return nil, err
		}
		seen[config.Role] = true
		trials = append(trials, of...)
	}
	if !o.Faults {
		return trials, nil
	}
	disturbed, err := planFaults(ctx, s, o)
	return append(trials, disturbed...), err
}

// unknownRole returns trials that are skipped, because the judge does not know how to use the plugin.
func unknownRole(o trial.Options) (trials []*trial.Trial) {
	for _, c := range cases() {
		if c.Like == nil && trial.Chosen(o.Only, c.Name, c.Rows) {
			trials = append(trials, &trial.Trial{Case: c.Name, Rows: c.Rows,
				Scenario: &script.Scenario{}, Lacks: "role unknown; describe the plugin in a file for --config"})
		}
	}
	return trials
}

// planConfig returns the trials for one configuration. A variant is not the first one of its role.
func planConfig(ctx context.Context, s *Subject, config *Config, variant bool, o trial.Options) (trials []*trial.Trial, err error) {
	lacks, err := s.lacks(ctx, config, o.Play)
	if err != nil {
		return nil, err
	}
	for _, c := range cases() {
		name, rows := c.Name, c.rows(config)
		if variant {
			name += "/" + config.Name
		}
		if variant && !c.Variants || !trial.Chosen(o.Only, name, rows) && !trial.Chosen(o.Only, c.Name, nil) {
			continue
		}
		versions := c.versions(s, config)
		without := lacks
		if without == "" && c.Needs != "" && len(versions) > 0 {
			needs := Config{Name: name, Role: config.Role, Needs: c.Needs}
			if without, err = s.lacks(ctx, &needs, o.Play); err != nil {
				return nil, err
			}
		}
		for _, v := range versions {
			setup := &Setup{Subject: s, Config: config, Role: config.Role, Version: v, Lacks: without}
			t := &trial.Trial{Case: name, Role: string(config.Role), Version: v.String(), Rows: rows,
				Judge: func(j *trial.Judgment) { (&Judgment{Judgment: j, Setup: setup}).judge(c) }}
			t.Scenario, t.Reason = c.Script(setup)
			if setup.containers > 0 {
				t.Lacks = without
			}
			trials = append(trials, t)
		}
	}
	return trials, nil
}

// versions returns the versions in which a case runs.
func (c *Case) versions(s *Subject, config *Config) (list []cni.Version) {
	oldest, _ := cni.ParseVersion(config.Oldest) // 0 if there is none
	for _, v := range s.Versions {
		if c.applies(config, v) && v >= oldest {
			list = append(list, v)
		}
	}
	if c.Once && len(list) > 1 {
		list = []cni.Version{slices.Max(list)}
	}
	return list
}
