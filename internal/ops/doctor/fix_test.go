package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/why"
)

// TestApply applies the safe fixes of a report: one succeeds, one fails, and one is no longer needed
// at the second look. Fixes that are not safe never run.
func TestApply(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{"a.fixable": true, "b.stubborn": true, "c.gone": true, "d.unsafe": true}
	applied := map[string]int{}
	var checks []Check
	for id := range broken {
		checks = append(checks, Check{ID: id, Run: func(context.Context, *State) ([]Finding, error) {
			if !broken[id] {
				return nil, nil
			}
			fix := Fix{Command: "fix " + id, Safe: id != "d.unsafe"}
			if fix.Safe {
				fix.Apply = func(context.Context) error {
					applied[id]++
					if id == "b.stubborn" {
						return errors.New("no permission")
					}
					broken[id] = false
					return nil
				}
			}
			return []Finding{{ID: id, Severity: Error, Title: id, Fix: []Fix{fix}}}, nil
		}})
	}
	state := &State{Places: &why.Places{Host: &host.Host{}}}
	report := Run(t.Context(), state, checks, nil)
	safe := Safe(report)
	looks := 0
	list := Apply(t.Context(), safe, checks, func(context.Context) (*State, error) {
		looks++
		broken["c.gone"] = false // by another program
		return state, nil
	})
	if len(safe) != 3 || looks != 3 || len(list) != 3 || applied["a.fixable"] != 1 ||
		applied["b.stubborn"] != 1 || applied["c.gone"] != 0 {
		t.Errorf("%d safe fixes, %d looks, applied %v: %+v", len(safe), looks, applied, list)
	}
	for _, a := range list {
		if a.Gone != (a.ID == "c.gone") || (a.Error == "no permission") != (a.ID == "b.stubborn") {
			t.Errorf("%+v", a)
		}
	}
	rest := Rest(report, list)
	if len(rest.Findings) != 2 || len(report.Findings) != 4 {
		t.Errorf("%d findings of %d remain", len(rest.Findings), len(report.Findings))
	}
}

// TestApplySecondLook: only the same fix of the same finding runs, in the form of the second look.
func TestApplySecondLook(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		now  []string // findings and commands of the second look
		want string   // the one that runs, "" if none does
	}{
		{"the same", []string{"a.lost: tenon repair pods"}, "a.lost: tenon repair pods"},
		{"behind others", []string{"a.flushed: tenon repair pods", "a.lost: tenon repair web",
			"a.lost: tenon repair pods"}, "a.lost: tenon repair pods"},
		{"another finding with this command", []string{"a.flushed: tenon repair pods"}, ""},
		{"this finding with another command", []string{"a.lost: tenon repair web"}, ""},
	} {
		looks, ran := 0, ""
		check := Check{ID: "a.objects", Run: func(context.Context, *State) (list []Finding, err error) {
			seen := []string{"a.lost: tenon repair pods"}
			looks++
			look := looks
			if look > 1 {
				seen = row.now
			}
			for _, text := range seen {
				id, command, _ := strings.Cut(text, ": ")
				apply := func(context.Context) error {
					ran = fmt.Sprintf("look %d, %s", look, text)
					return nil
				}
				list = append(list, Finding{ID: id, Severity: Error, Title: id,
					Fix: []Fix{{Command: command, Safe: true, Apply: apply}}})
			}
			return list, nil
		}}
		state := &State{Places: &why.Places{Host: &host.Host{}}}
		read := func(context.Context) (*State, error) { return state, nil }
		checks := []Check{check}
		applied := Apply(t.Context(), Safe(Run(t.Context(), state, checks, nil)), checks, read)
		want := row.want
		if want != "" {
			want = "look 2, " + want
		}
		if ran != want || len(applied) != 1 || applied[0].Gone != (row.want == "") {
			t.Errorf("%s: ran %q, want %q: %+v", row.name, ran, want, applied)
		}
	}
}
