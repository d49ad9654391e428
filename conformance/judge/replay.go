package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/runtimes"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// ErrNoFinding reports that a report has no finding of an ID.
var ErrNoFinding = errors.New("no such finding in the report")

// Replayed is what [Replay] observed.
type Replayed struct {
	Found *report.Finding // as it was found again; nil if the scenario shows it no more
	// Changed reports that the program is not the one that was judged.
	Changed    bool
	transcript *script.Recording
}

// Transcript writes the commands and calls of the scenario with their outputs.
func (r *Replayed) Transcript(w io.Writer) error {
	if r.transcript == nil {
		return nil
	}
	return r.transcript.Transcript(w)
}

// Finding returns the finding of an ID, which may be shortened, and its subject. The error wraps
// ErrNoFinding if there is none or if there are several.
func Finding(r *report.Report, id string) (*report.Subject, *report.Finding, error) {
	var subject *report.Subject
	var finding *report.Finding
	for i := range r.Subjects {
		s := &r.Subjects[i]
		for j := range s.Findings {
			if !strings.HasPrefix(s.Findings[j].ID, id) {
				continue
			}
			if finding != nil {
				return nil, nil, fmt.Errorf("%s is ambiguous: %w", id, ErrNoFinding)
			}
			subject, finding = s, &s.Findings[j]
		}
	}
	if finding == nil || id == "" {
		return nil, nil, fmt.Errorf("%q: %w", id, ErrNoFinding)
	}
	return subject, finding, nil
}

// Replay runs the scenario of a finding again, with the configuration in the report.
func Replay(ctx context.Context, s *report.Subject, f *report.Finding) (*Replayed, error) {
	out := &Replayed{}
	var mu sync.Mutex
	options := trial.Options{Only: []string{f.Scenario}, Faults: strings.HasPrefix(f.Scenario, "fault-"), Play: func(ctx context.Context, t *trial.Trial) (*script.Recording, error) {
		r, err := trial.Play(ctx, t)
		mu.Lock()
		defer mu.Unlock()
		if t.Case == f.Scenario && t.Role == f.Role && (len(f.Versions) == 0 || t.Version == f.Versions[0]) {
			out.transcript = r
		}
		return r, err
	}}
	again, err := judgeAgain(ctx, s, options)
	if err != nil {
		return nil, err
	}
	out.Changed = again.Digest != s.Digest
	i := slices.IndexFunc(again.Findings, func(again report.Finding) bool { return again.Row == f.Row })
	if i >= 0 {
		out.Found = &again.Findings[i]
	}
	return out, nil
}

func judgeAgain(ctx context.Context, s *report.Subject, o trial.Options) (*report.Subject, error) {
	if slices.Contains(s.Roles, runtimes.Role) {
		return replayRuntime(ctx, s, o)
	}
	return replayPlugin(ctx, s, o)
}

func replayPlugin(ctx context.Context, s *report.Subject, o trial.Options) (*report.Subject, error) {
	subject, err := plugins.Reported(s)
	if err != nil {
		return nil, err
	}
	if subject.Digest, err = trial.Digest(s.Path); err != nil {
		return nil, err
	}
	return plugins.Judge(ctx, subject, o)
}
