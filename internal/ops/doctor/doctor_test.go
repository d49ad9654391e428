package doctor

import (
	"context"
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/why"
)

// TestRun runs one check of each outcome: none of them ends the run.
func TestRun(t *testing.T) {
	t.Parallel()
	finds := func(list ...Finding) func(context.Context, *State) ([]Finding, error) {
		return func(context.Context, *State) ([]Finding, error) { return list, nil }
	}
	hang := make(chan struct{})
	defer close(hang)
	checks := []Check{
		{ID: "a.nothing", Run: finds()},
		{ID: "a.note", Run: finds(Finding{ID: "a.note", Severity: Info})},
		{ID: "b.warning", Run: finds(Finding{ID: "b.warning", Severity: Warning})},
		{ID: "b.both", Run: finds(
			Finding{ID: "b.worst", Severity: Error},
			Finding{ID: "b.other", Severity: Warning},
		)},
		{ID: "c.skip", Run: func(context.Context, *State) ([]Finding, error) {
			return nil, Skip("no permission")
		}},
		{ID: "c.panic", Run: func(context.Context, *State) ([]Finding, error) { panic("index out of range") }},
		{ID: "c.hang", Run: func(context.Context, *State) ([]Finding, error) {
			<-hang
			return nil, nil
		}},
	}
	done := map[string]int{}
	s := &State{Places: &why.Places{Host: &host.Host{Name: "node-7"}}}
	r := Run(t.Context(), s, checks, func(r Result) { done[r.ID]++ })
	var statuses []Status
	for i, c := range r.Checks {
		statuses = append(statuses, c.Status)
		if id := checks[i].ID; c.ID != id || done[id] != 1 {
			t.Errorf("%s: result of %s, reported %d times", id, c.ID, done[id])
		}
	}
	want := []Status{Passed, Passed, Warned, Failed, Skipped, Crashed, TimedOut}
	for i := range want {
		if statuses[i] != want[i] {
			t.Errorf("%s: got %s, want %s", checks[i].ID, statuses[i], want[i])
		}
	}
	if r.Complete || r.Host != "node-7" || len(r.Findings) != 4 || r.Findings[0].ID != "b.worst" ||
		r.Findings[3].ID != "a.note" {
		t.Errorf("report: %+v", r)
	}
}
