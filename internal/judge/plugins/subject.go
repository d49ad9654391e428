package plugins

import (
	"context"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Subject is a plugin under judgment.
type Subject struct {
	Name     string // base name of the program
	Title    string // name in reports; empty: Name
	Path     string // of the program
	Digest   string // SHA-256
	Versions []cni.Version
	Configs  []Config // one or more for each role
	Silent   bool     // does not answer VERSION
	Unknown  string   // why no role was found; empty if Configs is not
}

// NewSubject reads the digest and the versions of a program. Without configurations, call
// [Subject.Detect] before the subject is judged.
func NewSubject(ctx context.Context, path string, configs ...Config) (*Subject, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s := &Subject{Name: filepath.Base(path), Path: path}
	if s.Digest, err = trial.Digest(path); err != nil {
		return nil, err
	}
	if s.Versions, err = s.announced(ctx); err != nil {
		return nil, err
	}
	for _, c := range configs {
		s.Configs = append(s.Configs, c.locate(path))
	}
	return s, nil
}

// announced returns the published versions that the plugin lists. A plugin that does not answer
// VERSION supports 0.1.0 (VER-14).
func (s *Subject) announced(ctx context.Context) ([]cni.Version, error) {
	r, err := cell.Run(ctx, &script.Scenario{Name: "version", Programs: []string{s.Path}, Steps: []script.Step{{
		Quiet: true, Calls: []script.Call{versionCall(s.Name)},
	}}})
	if err != nil {
		return nil, err
	}
	answer, _ := r.Call("version")
	reply, err := cni.DecodeVersionReply(answer.Stdout)
	if v, known := requested(answer.Stdout); err != nil && answer.Status == 0 && known {
		return []cni.Version{v}, nil // the list is unreadable, which is a finding
	}
	if err != nil || answer.Status != 0 {
		s.Silent = true
		return []cni.Version{cni.V010}, nil
	}
	var list []cni.Version
	for _, text := range reply.Supported {
		if v, err := cni.ParseVersion(text); err == nil {
			list = append(list, v)
		}
	}
	if list == nil {
		return []cni.Version{cni.V010}, nil
	}
	return list, nil
}

func versionCall(name string) script.Call {
	return script.Call{Name: "version", Path: script.Plugins + "/" + name,
		Env: []string{"CNI_COMMAND=VERSION"}, Stdin: script.Literal(`{"cniVersion":"1.1.0"}`)}
}

// NoPlugin returns why a file in a directory of plugins is none, "" if it is one.
func NoPlugin(ctx context.Context, path string) (reason string, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "not a regular file", nil
	case info.Mode().Perm()&0o111 == 0:
		return "not executable", nil
	}
	s := &Subject{Name: filepath.Base(path), Path: path}
	if _, err := s.announced(ctx); err != nil {
		return "", err
	}
	if s.Silent {
		return "it does not answer VERSION; give its path to judge it anyway", nil
	}
	return "", nil
}
