package judge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
)

func TestMain(m *testing.M) {
	judge.Main()
	os.Exit(m.Run())
}

// stubborn is a plugin without an interface, of which the second DEL fails.
const stubborn = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}';;
ADD)
	nsenter --net=$CNI_NETNS ip link add $CNI_IFNAME type bridge || exit 1
	echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}]}';;
DEL) nsenter --net=$CNI_NETNS ip link del $CNI_IFNAME 2>/dev/null || { echo '{"cniVersion":"1.0.0","code":100,"msg":"no link"}'; exit 1; };;
esac
`

// plugin writes a program into a directory and returns its path.
func plugin(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// options judge the plugin stubborn in one scenario.
func options() judge.Options {
	return judge.Options{Role: "interface", Only: []string{"life"}, Profile: report.Spec10}
}

// outcome returns the verdict about the first subject and its counted findings.
func outcome(r *report.Report) string {
	var rows []string
	for _, f := range r.Subjects[0].Findings {
		if f.Counts && f.Waived == nil {
			rows = append(rows, f.Row)
		}
	}
	return fmt.Sprint(r.Subjects[0].Summary.Verdict, rows)
}

// TestReplay replays a finding.
func TestReplay(t *testing.T) {
	t.Parallel()
	path := plugin(t, t.TempDir(), "stubborn", stubborn)
	first, err := judge.Plugins(t.Context(), []string{path}, options())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := outcome(first), "fail[PL-DEL-02]"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	subject, finding, err := judge.Finding(first, first.Subjects[0].Findings[0].ID[:6])
	if err != nil {
		t.Fatal(err)
	}
	again, err := judge.Replay(t.Context(), subject, finding)
	if err != nil {
		t.Fatal(err)
	}
	var transcript strings.Builder
	if err := again.Transcript(&transcript); err != nil {
		t.Fatal(err)
	}
	if again.Found == nil || again.Changed || !strings.Contains(transcript.String(), "  env CNI_COMMAND=DEL\n") {
		t.Errorf("replay: %+v\n%s", again, transcript.String())
	}
}

// TestFind looks for plugins in a directory that contains other files, too.
func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := plugin(t, dir, "stubborn", stubborn)
	plugin(t, dir, "helper", "#!/bin/sh\nexit 3\n")
	if err := os.WriteFile(filepath.Join(dir, "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	paths, leftOut, err := judge.Find(t.Context(), []string{dir, "stubborn"}, []string{t.TempDir(), dir})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{path, path}, paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := []string{"README: not executable", "helper: it does not answer VERSION; give its path to judge it anyway"}
	if diff := cmp.Diff(want, leftOut); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, word := range []string{"nonesuch", t.TempDir()} {
		if _, _, err := judge.Find(t.Context(), []string{word}, nil); !errors.Is(err, judge.ErrNoPlugin) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	path := plugin(t, t.TempDir(), "stubborn", stubborn)
	list, err := judge.List(t.Context(), []string{path}, options())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Scenario != "life" || !slices.Contains(list[0].Rows, "PL-DEL-02") ||
		!slices.Equal(list[0].Versions, []string{"1.0.0"}) {
		t.Errorf("%+v", list)
	}
}

// messages records what a test reports.
type messages struct {
	ctx          context.Context
	logs, errors []string
}

func (m *messages) Helper()                  {}
func (m *messages) Context() context.Context { return m.ctx }
func (m *messages) Log(args ...any)          { m.logs = append(m.logs, fmt.Sprint(args...)) }
func (m *messages) Error(args ...any)        { m.errors = append(m.errors, fmt.Sprint(args...)) }
func (m *messages) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }

// TestTest checks that a finding is an error of a test, unless it is waived.
func TestTest(t *testing.T) {
	t.Parallel()
	path := plugin(t, t.TempDir(), "stubborn", stubborn)
	m := &messages{ctx: t.Context()}
	judge.Test(m, []string{path}, options())
	if len(m.errors) != 1 || !strings.HasPrefix(m.errors[0], "PL-DEL-02 MUST: stubborn: the second DEL fails\n") {
		t.Errorf("errors: %q", m.errors)
	}
	o := options()
	o.Waivers = []report.Waiver{{Row: "PL-DEL-02", Subject: "stubborn", Reason: "example#7"}}
	m = &messages{ctx: t.Context()}
	judge.Test(m, []string{path}, o)
	if len(m.errors) != 0 || len(m.logs) < 2 || !strings.HasPrefix(m.logs[len(m.logs)-1], "stubborn, spec-1.0: pass with 1 waived finding: ") {
		t.Errorf("errors: %q, log: %q", m.errors, m.logs)
	}
}
