package plugins_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/planted"
	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// configs are the configurations of the plugins of testdata/base.
var configs = map[program]plugins.Config{
	lan: {Role: plugins.Interface, ScriptedIPAM: true, Network: map[string]any{"bridge": "lan0"},
		Changed: map[string]any{"bridge": "lan9"}, Drifts: []plugins.Drift{
			{Name: "masquerading", Shell: "nft flush ruleset"},
			{Name: "port", Shell: "ip link set $peer nomaster"},
		}},
	pool: {Role: plugins.IPAM, Network: map[string]any{
		"ipam": map[string]any{"type": "pool", "subnet": "10.79.0.0/24"},
	}, Exhausted: map[string]any{
		"ipam": map[string]any{"type": "pool", "subnet": "10.79.0.0/24", "last": "10.79.0.2"},
	}},
	mark: {Role: plugins.Chained, Network: map[string]any{"label": "judged"}, Drifts: []plugins.Drift{
		{Name: "label", Shell: `ip -n $container link set dev $ifname alias ""`},
	}},
}

var all = flag.Bool("all", false, "judge each planted defect by all scenarios, "+
	"instead of those for its rows until one has a finding; no effect with -short")

// TestDefects judges plugins with a planted defect: the judge must report one of the rows of the
// defect, and no other row. Its replay must show the same without Tenon. The correct plugins and their
// variants must have no finding.
//
// With -short, it judges some of the defects, each by the scenario that finds it and without the replay,
// and the correct plugins by one scenario in one version.
func TestDefects(t *testing.T) {
	t.Parallel()
	defects, variants := defects, variants
	if testing.Short() {
		variants = nil
		defects = slices.DeleteFunc(slices.Clone(defects), func(d defect) bool { return gate[d.Name] == "" })
		if len(defects) != len(gate) {
			t.Errorf("%d defects, want %d", len(defects), len(gate))
		}
	}
	var list []planted.Defect
	for _, d := range slices.Concat(variants, defects) {
		list = append(list, d.Defect)
	}
	programs := planted.Build(t, "testdata/base", list)
	var correct []defect
	for p := range configs {
		correct = append(correct, defect{p, planted.Defect{Name: planted.Correct}})
	}
	for _, d := range append(correct, variants...) {
		t.Run(string(d.program)+" "+d.Name, func(t *testing.T) {
			t.Parallel()
			r, _ := judge(t, d, programs, testing.Short())
			for _, f := range r.Findings {
				t.Errorf("%s", describe(f))
			}
		})
	}
	for _, d := range defects {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			r, recordings := judge(t, d, programs, testing.Short() || !*all)
			for _, f := range r.Findings {
				if !slices.Contains(d.Rows, f.Row) {
					t.Errorf("%s\nwant only %v", describe(f), d.Rows)
				}
			}
			if len(r.Findings) > 0 {
				if !testing.Short() {
					replay(t, r.Findings[0], recordings)
				}
				return
			}
			t.Errorf("no finding; want one of %v", d.Rows)
			for _, c := range r.Checks {
				if slices.Contains(d.Rows, c.Row) {
					t.Logf("%s in %s, version %s: %s %s", c.Row, c.Scenario, c.Version, c.Outcome, c.Reason)
				}
			}
		})
	}
}

// selection returns the cases that a subject needs, nil for all.
func (d defect) selection() []string {
	switch {
	case testing.Short():
		return []string{cmp.Or(gate[d.Name], "life")}
	case *all:
		return nil
	}
	return d.Rows
}

func describe(f report.Finding) string {
	return fmt.Sprintf("%s in %s %v: %s\nexpected %s\nactual   %s", f.Row, f.Scenario, f.Versions, f.Title, f.Expected, f.Actual)
}

// recordings are the recordings of scenarios, by name and version.
type recordings map[[2]string]*script.Recording

// judge judges the program with a defect under the name of its plugin. If brief is set, it stops at the
// first finding. It then tries the newest version first, case by case.
func judge(t *testing.T, d defect, programs *planted.Programs, brief bool) (*report.Subject, recordings) {
	t.Helper()
	path := filepath.Join(t.TempDir(), string(d.program))
	programs.Write(t, d.Name, path)
	s, err := plugins.NewSubject(t.Context(), path, configs[d.program])
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	recorded := recordings{}
	o := trial.Options{Only: d.selection(), Play: func(ctx context.Context, x *trial.Trial) (*script.Recording, error) {
		r, err := trial.Play(ctx, x)
		mu.Lock()
		defer mu.Unlock()
		recorded[[2]string{x.Case, x.Version}] = r
		return r, err
	}}
	r, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	trials, err := plugins.Plan(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	steps := [][]*trial.Trial{trials}
	if brief {
		slices.SortStableFunc(trials, func(a, b *trial.Trial) int { return strings.Compare(b.Version, a.Version) })
		steps = slices.Collect(slices.Chunk(trials, 1))
		if testing.Short() && d.Name == planted.Correct {
			steps = steps[:1]
		}
	}
	var checks []report.Check
	for _, step := range steps {
		if err := trial.Run(t.Context(), r, step, o); err != nil {
			t.Fatal(err)
		}
		checks = append(checks, r.Checks...)
		if len(r.Findings) > 0 {
			break
		}
	}
	r.Checks = checks
	return r, recorded
}

var mac = regexp.MustCompile("([0-9a-f]{2}:){5}[0-9a-f]{2}")

// replay runs the text of a finding in a shell. The exit status and the output of each call must be those
// of the recording, but for MAC addresses. Calls at the same time need only fail as well.
func replay(t *testing.T, f report.Finding, all recordings) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "sh", "-c", f.Replay).CombinedOutput()
	if err != nil {
		t.Errorf("replay: %v", err)
	}
	out := mac.ReplaceAllString(string(text), "MAC")
	for _, e := range all[[2]string{f.Scenario, f.Versions[0]}].Events {
		if len(e.Calls) > 1 {
			if !regexp.MustCompile("exit status [^0]").MatchString(out) {
				t.Errorf("no call of the replay fails:\n%s", out)
			}
			return
		}
		for _, c := range e.Calls {
			want := fmt.Sprintf("--- %s: exit status %d\n%s\n", c.Name, c.Status, c.Stdout)
			if want = mac.ReplaceAllString(want, "MAC"); !strings.Contains(out, want) {
				t.Errorf("the replay of %s in %s lacks\n%s\nbut prints\n%s", f.Row, f.Scenario, want, out)
				return
			}
		}
	}
}
