package runtimes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Role is the role of all runtimes in reports.
const Role = "runtime"

// Verb is the argument of a driver.
type Verb string

// The verbs.
const (
	Add    Verb = "add"
	Check  Verb = "check"
	Del    Verb = "del"
	GC     Verb = "gc"
	Status Verb = "status"
)

// lacking is the exit status of a driver that lacks a verb.
const lacking = 3

// Config describes how to start a driver. It is part of the report, for a replay.
type Config struct {
	Arguments []string `json:"arguments,omitzero"` // before the verb
	Programs  []string `json:"programs,omitzero"`  // further programs of the driver, found in its PATH
	Lacks     []Verb   `json:"lacks,omitzero"`     // verbs that the driver does not have
}

// Subject is a runtime under judgment.
type Subject struct {
	Name     string // base name of the driver
	Title    string // name in reports; empty: Name
	Path     string // of the driver
	Digest   string // SHA-256 of the driver
	Versions []cni.Version
	Config
}

// NewSubject starts a driver to find out its verbs, and the versions in which its ADD succeeds. If there
// are none, the subject is judged in the newest version.
func NewSubject(ctx context.Context, path string, c Config) (*Subject, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s := &Subject{Name: filepath.Base(path), Path: path, Config: c}
	if s.Digest, err = trial.Digest(path); err != nil {
		return nil, err
	}
	return s, s.probe(ctx)
}

// judgedVersions are the versions with lists of plugins.
func judgedVersions() []cni.Version {
	return slices.DeleteFunc(cni.Versions(), func(v cni.Version) bool { return v < cni.V030 })
}

// probe sets the versions and the verbs that the driver lacks.
func (s *Subject) probe(ctx context.Context) error {
	versions := judgedVersions()
	setup := &Setup{Subject: s, Version: versions[len(versions)-1]}
	setup.answer(first, cni.Add, inVersion())
	var steps []script.Step
	for _, v := range versions {
		of := &Setup{Subject: s, Version: v}
		setup.network(v.String(), of.list(v.String(), first))
		steps = append(steps, step(setup.call(v.String(), Add, network(v.String()), container(v.String()))))
	}
	newest := setup.Version.String()
	for _, verb := range []Verb{Check, Status, GC, Del} {
		steps = append(steps, step(setup.call(string(verb), verb, network(newest), container(newest))))
	}
	r, err := cell.Run(ctx, setup.scenario(steps...))
	if err != nil {
		return err
	}
	if r.Broken != "" {
		return fmt.Errorf("first calls of the driver: %s", r.Broken)
	}
	for _, v := range versions {
		if c, _ := r.Call(v.String()); c.Failed == "" && c.Status == 0 {
			s.Versions = append(s.Versions, v)
		}
		if c, _ := r.Call(v.String()); c.Status == lacking && !slices.Contains(s.Lacks, Add) {
			s.Lacks = append(s.Lacks, Add)
		}
	}
	for _, verb := range []Verb{Check, Status, GC, Del} {
		if c, _ := r.Call(string(verb)); c.Status == lacking {
			s.Lacks = append(s.Lacks, verb)
		}
	}
	if s.Versions == nil {
		s.Versions = versions[len(versions)-1:]
	}
	return nil
}

// Report returns the report about the subject without checks.
func (s *Subject) Report() (*report.Subject, error) {
	out := &report.Subject{Name: cmp.Or(s.Title, s.Name), Path: s.Path, Digest: s.Digest, Roles: []string{Role}}
	for _, v := range s.Versions {
		out.Versions = append(out.Versions, v.String())
	}
	text, err := json.Marshal(s.Config)
	out.Configs = []json.RawMessage{text}
	return out, err
}

// Reported returns the subject of a report. It runs nothing.
func Reported(r *report.Subject) (*Subject, error) {
	s := &Subject{Name: filepath.Base(r.Path), Title: r.Name, Path: r.Path, Digest: r.Digest}
	for _, text := range r.Versions {
		v, err := cni.ParseVersion(text)
		if err != nil {
			return nil, err
		}
		s.Versions = append(s.Versions, v)
	}
	for _, text := range r.Configs {
		if err := json.Unmarshal(text, &s.Config); err != nil {
			return nil, fmt.Errorf("driver of %s: %w", r.Name, err)
		}
	}
	return s, nil
}
