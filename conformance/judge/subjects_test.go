package judge_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
)

// TestSameName judges two programs of the same name, and compares them in one report.
func TestSameName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	for _, sub := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, plugin(t, filepath.Join(dir, sub), "stubborn", stubborn))
	}
	r, err := judge.Plugins(t.Context(), paths, options())
	if err != nil {
		t.Fatal(err)
	}
	names, ids := map[string]bool{}, map[string]bool{}
	for _, s := range r.Subjects {
		names[s.Name] = true
		for _, f := range s.Findings {
			ids[f.ID] = true
			if f.Subject != s.Name || f.ID != report.FindingID(f.Row, s.Name, f.Scenario) {
				t.Errorf("finding %s of %s names %s", f.ID, s.Name, f.Subject)
			}
		}
		if s.Summary.Failed == 0 {
			t.Errorf("%s: %+v", s.Name, s.Summary)
		}
	}
	if !names["stubborn"] || !names["two/stubborn"] || len(ids) != 2 {
		t.Errorf("names %v, findings %v", names, ids)
	}
	subject, finding, err := judge.Finding(r, r.Subjects[1].Findings[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	again, err := judge.Replay(t.Context(), subject, finding)
	if err != nil || again.Found == nil || again.Changed {
		t.Errorf("replay: %v %+v", err, again)
	}
}
