package doctor

import (
	"context"
	"errors"
	"slices"
)

// SafeFix is a fix that --fix applies, with its finding.
type SafeFix struct {
	Finding Finding
	Fix     Fix
}

// Applied is the outcome of a fix.
type Applied struct {
	ID      string `json:"id"` // of the finding
	Title   string `json:"title"`
	Command string `json:"command"`
	Gone    bool   `json:"gone,omitzero"`  // the second look did not find the problem
	Error   string `json:"error,omitzero"` // "" if the fix succeeded
}

// Safe returns the fixes of a report that are safe to apply, the first one of each finding.
func Safe(r *Report) (list []SafeFix) {
	for _, f := range r.Findings {
		i := slices.IndexFunc(f.Fix, func(x Fix) bool { return x.Safe && x.Apply != nil })
		if i >= 0 {
			list = append(list, SafeFix{f, f.Fix[i]})
		}
	}
	return list
}

// Apply applies fixes one after the other. Before each one, it reads the host again and runs the
// check of the finding, one of checks, so that a fix of something that has changed meanwhile does
// not run.
func Apply(
	ctx context.Context, fixes []SafeFix, checks []Check, read func(context.Context) (*State, error),
) (list []Applied) {
	for _, x := range fixes {
		a := Applied{ID: x.Finding.ID, Title: x.Finding.Title, Command: x.Fix.Command}
		if err := x.apply(ctx, checks, read); errors.Is(err, errGone) {
			a.Gone = true
		} else if err != nil {
			a.Error = err.Error()
		}
		list = append(list, a)
	}
	return list
}

var errGone = errors.New("the problem no longer exists")

func (x SafeFix) apply(
	ctx context.Context, checks []Check, read func(context.Context) (*State, error),
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := read(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(checks, func(c Check) bool { return c.ID == x.Finding.Check })
	if i < 0 {
		return errGone
	}
	for _, now := range Safe(Run(ctx, s, checks[i:i+1], nil)) {
		if now.Finding.ID == x.Finding.ID && now.Fix.Command == x.Fix.Command {
			return now.Fix.Apply(ctx)
		}
	}
	return errGone
}

// Rest returns a report without the findings that fixes have removed.
func Rest(r *Report, applied []Applied) *Report {
	rest := *r
	rest.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		return slices.ContainsFunc(applied, func(a Applied) bool {
			return a.Error == "" && a.ID == f.ID && a.Title == f.Title
		})
	})
	return &rest
}
