package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/lint"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/network/config"
)

// ConfigFile is a file in the configuration directory.
type ConfigFile struct {
	Path       string     `json:"path"`
	Use        config.Use `json:"use"`
	Name       string     `json:"name,omitzero"`    // of the network
	Default    bool       `json:"default,omitzero"` // runtimes use it if no network is named
	Candidate  bool       `json:"candidate,omitzero"`
	ShadowedBy string     `json:"shadowedBy,omitzero"`
	Error      string     `json:"error,omitzero"`
}

// Mistake is a finding of package lint.
type Mistake struct {
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"`
	File     string   `json:"file"`
	Line     int      `json:"line,omitzero"`
	Network  string   `json:"network,omitzero"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitzero"`
}

type readConfig struct {
	files    []ConfigFile
	mistakes []Mistake
}

// readConfig reads the configuration directory with all its mistakes.
func (s *State) readConfig(ctx context.Context) (r readConfig, err error) {
	if s.Options.NetDir == "" {
		return r, nil
	}
	catalog, err := lint.Read(s.Options.NetDir)
	if err != nil {
		return r, err
	}
	for _, f := range catalog.Files {
		c := ConfigFile{Path: f.Path, Use: f.Use, Name: f.Name, Default: f.Default,
			ShadowedBy: f.ShadowedBy,
			Candidate:  f.Kind == config.ListFile || f.Kind == config.SingleFile}
		if f.Err != nil {
			c.Error = f.Err.Error()
		}
		r.files = append(r.files, c)
	}
	severities := map[lint.Severity]Severity{
		lint.Info: Info, lint.Warning: Warning, lint.Error: Error,
	}
	for _, f := range lint.Check(catalog, s.versions(ctx)) {
		r.mistakes = append(r.mistakes, Mistake{severities[f.Severity], f.Rule, f.File, f.Line,
			f.Network, f.Message, f.Hint})
	}
	return r, nil
}

// versions returns a function that asks plugins for their versions, nil if that is not possible.
func (s *State) versions(ctx context.Context) lint.Ask {
	if s.Options.Client == nil {
		return nil
	}
	return func(typ string) ([]string, error) {
		reply, err := s.Options.Client.Versions(ctx, typ)
		return reply.Supported, err
	}
}

func configChecks() []Check {
	return []Check{
		{ID: "config.files", Title: "network configurations that runtimes cannot use",
			Run: checkFiles},
		{ID: "config.names", Title: "network names that several files define", Run: checkNames},
		{ID: "config.mistakes", Title: "mistakes in network configurations", Run: checkMistakes},
	}
}

// checkFiles finds files that cannot be used, and directories without a usable file.
func checkFiles(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partConfig); err != nil {
		return nil, err
	}
	for _, f := range s.CNI.Files {
		if f.Use == config.Broken && f.Candidate {
			list = append(list, s.brokenFile(f))
		}
	}
	usable := slices.ContainsFunc(
		s.CNI.Files,
		func(f ConfigFile) bool { return f.Use == config.Chosen },
	)
	if s.Options.NetDir != "" && !usable && list == nil {
		list = append(list, s.noNetwork())
	}
	return list, nil
}

func (s *State) brokenFile(f ConfigFile) Finding {
	place, message := filepath.Base(f.Path), strings.TrimPrefix(f.Error, f.Path+": ")
	for _, m := range s.CNI.Mistakes {
		if m.File == f.Path && m.Severity == Error {
			if message = m.Message; m.Line > 0 {
				place = fmt.Sprintf("%s line %d", place, m.Line)
			}
			break
		}
	}
	out := Finding{ID: "config.broken", Severity: Error,
		Title:    fmt.Sprintf("%s: %s", place, message),
		Evidence: []Evidence{{"tenon net lint", fmt.Sprintf("%s: %s", f.Path, message)}},
		Fix: []Fix{{Command: "rm " + f.Path},
			{Command: "edit " + f.Path + ": tenon net lint shows each mistake"}}}
	if f.Name != "" {
		out.Affects = []string{f.Name}
	}
	next := s.after(f)
	switch {
	case next == "":
		out.Text = "No other file defines a network, so runtimes report that no network is ready."
	case f.Default:
		out.Title += "; it sorts before " + filepath.Base(next)
		out.Text = fmt.Sprintf(
			"Runtimes that take the first file report that no network is ready; "+
				"the others ignore it and use %s.",
			filepath.Base(next),
		)
	default:
		out.Text = fmt.Sprintf(
			"Runtimes use %s by default; the networks of this file do not exist.",
			filepath.Base(s.first()),
		)
	}
	return out
}

// after returns the path of the first usable network that sorts after a file, "" if there is none.
func (s *State) after(f ConfigFile) string {
	for _, x := range s.CNI.Files {
		if x.Candidate && x.Use == config.Chosen && (x.Path > f.Path || !f.Default) {
			return x.Path
		}
	}
	return ""
}

// first returns the path of the default network.
func (s *State) first() string {
	for _, x := range s.CNI.Files {
		if x.Default {
			return x.Path
		}
	}
	return ""
}

func (s *State) noNetwork() Finding {
	f := Finding{ID: "config.none", Severity: Info,
		Title:    fmt.Sprintf("%s has no network configuration", s.Options.NetDir),
		Text:     "Runtimes such as containerd report that the network is not ready.",
		Evidence: []Evidence{{"ls " + s.Options.NetDir, ""}},
		Fix:      []Fix{{Command: "tenon net new pods --type bridge"}}}
	if len(s.Records) > 0 {
		f.Severity = Warning // containers were attached before
	}
	return f
}

// checkNames finds files that define the same network.
func checkNames(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partConfig); err != nil {
		return nil, err
	}
	hidden := map[string][]ConfigFile{}
	for _, f := range s.CNI.Files {
		if f.ShadowedBy != "" && f.Candidate {
			hidden[f.Name] = append(hidden[f.Name], f)
		}
	}
	for name, files := range hidden {
		var losers []string
		for _, f := range files {
			losers = append(losers, filepath.Base(f.Path))
		}
		winner := files[0].ShadowedBy
		number := "two"
		if len(files) > 1 {
			number = fmt.Sprint(len(files) + 1)
		}
		list = append(list, Finding{ID: "config.duplicate-name", Severity: Error,
			Title: fmt.Sprintf("%s files define network %s; %s wins", number, name,
				filepath.Base(winner)),
			Text: fmt.Sprintf("%s is never used: containers get the addresses and options of %s.",
				names(losers), filepath.Base(winner)),
			Affects:  []string{name},
			Evidence: []Evidence{{"tenon net list", fmt.Sprintf("%s %s", name, winner)}},
			Fix: []Fix{{Command: "rm " + files[0].Path}, {Command: "rm " + winner},
				{Command: "edit " + files[0].Path + ": rename the network"}}})
	}
	slices.SortFunc(list, func(a, b Finding) int { return strings.Compare(a.Title, b.Title) })
	return list, nil
}

// reportedElsewhere are the rules of package lint that another check reports, with more detail.
var reportedElsewhere = []string{"missing-plugin", "duplicate-name", "host-choice"}

// harmful are warnings of package lint that break containers sooner or later.
var harmful = []string{"range-overlap", "shared-bridge", "range-empty", "range-gateway"}

// checkMistakes reports errors and harmful warnings of package lint one by one, and counts the
// others.
func checkMistakes(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partConfig); err != nil {
		return nil, err
	}
	var rest []string
	for _, m := range s.CNI.Mistakes {
		switch {
		case slices.Contains(reportedElsewhere, m.Rule), m.Severity == Info, s.unusable(m.File):
		case m.Severity == Error || slices.Contains(harmful, m.Rule):
			list = append(list, m.finding())
		default:
			rest = append(rest, filepath.Base(m.File))
		}
	}
	if len(rest) > 0 {
		list = append(list, Finding{ID: "config.warnings", Severity: Info,
			Title:    fmt.Sprintf("%s in %s", plural.Count(len(rest), "possible mistake"), names(rest)),
			Evidence: []Evidence{{"tenon net lint", ""}},
			Fix:      []Fix{{Command: "tenon net lint"}}})
	}
	return list, nil
}

// unusable reports whether [checkFiles] reports a file.
func (s *State) unusable(path string) bool {
	return slices.ContainsFunc(s.CNI.Files, func(f ConfigFile) bool {
		return f.Path == path && f.Use == config.Broken && f.Candidate
	})
}

func (m Mistake) finding() Finding {
	place := m.File
	if m.Line > 0 {
		place = fmt.Sprintf("%s line %d", m.File, m.Line)
	}
	edit := "edit " + m.File
	if m.Hint != "" {
		edit += ": " + m.Hint
	}
	f := Finding{ID: "config." + m.Rule, Severity: m.Severity,
		Title:    fmt.Sprintf("%s: %s", filepath.Base(place), m.Message),
		Evidence: []Evidence{{"tenon net lint", fmt.Sprintf("%s: %s", place, m.Message)}},
		Fix:      []Fix{{Command: edit}}}
	if m.Network != "" {
		f.Affects = []string{m.Network}
	}
	return f
}
