package lint_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/lint"
	"github.com/tenon-cni/tenon/network/config"
)

var update = flag.Bool("update", false, "rewrite the expected findings in the archives")

// Each rule has an archive: the files in wrong/ must give the findings in want, including one of
// the rule; the files in right/ must give none. A file "executables" in either lists plugins: "TYPE
// VERSION VERSION", "TYPE" for a missing plugin, and "TYPE refused" for a plugin that the policy
// does not allow. A file with the content "nowhere" is a dangling symbolic link.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, rule := range lint.Rules {
		t.Run(rule.ID, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join("testdata", rule.ID+".txtar")
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			found := false
			dir, findings := check(t, archive, "wrong")
			for _, f := range findings {
				found = found || f.Rule == rule.ID
				got.WriteString(f.String() + "\n")
				if f.Hint != "" {
					got.WriteString("  " + f.Hint + "\n")
				}
			}
			if !found {
				t.Errorf("no finding of the rule:\n%s", got.String())
			}
			_, none := check(t, archive, "right")
			for _, f := range none {
				t.Errorf("in right/: %v", f)
			}
			last := len(archive.Files) - 1
			if archive.Files[last].Name != "want" {
				t.Fatal("the last file must be \"want\"")
			}
			text := strings.ReplaceAll(got.String(), dir+"/", "")
			if *update {
				archive.Files[last].Data = []byte(text)
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(archive.Files[last].Data), text); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestArchivesAreOfRules(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range archives {
		id := strings.TrimSuffix(filepath.Base(name), ".txtar")
		if !slices.ContainsFunc(lint.Rules, func(r lint.Rule) bool { return r.ID == id }) {
			t.Errorf("%s: unknown rule", name)
		}
	}
}

func check(t *testing.T, archive *txtar.Archive, side string) (dir string, found []lint.Finding) {
	t.Helper()
	dir = t.TempDir()
	var ask lint.Ask
	for _, f := range archive.Files {
		name, ok := strings.CutPrefix(f.Name, side+"/")
		switch {
		case !ok:
		case name == "executables":
			ask = executables(string(f.Data))
		default:
			write(t, filepath.Join(dir, name), f.Data)
		}
	}
	c, err := lint.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, slices.DeleteFunc(
		lint.Check(c, ask),
		func(f lint.Finding) bool { // depends on the host
			return f.Rule == "host-choice" && strings.Contains(f.Message, "on this host")
		},
	)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	text := strings.TrimSuffix(string(data), "\n")
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if text == "nowhere" && err == nil {
		err = os.Symlink(text, path)
	} else if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func executables(table string) lint.Ask {
	all := map[string][]string{}
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		all[words[0]] = words[1:]
	}
	return func(typ string) ([]string, error) {
		versions, known := all[typ]
		if slices.Equal(versions, []string{"refused"}) {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "plugin %q: %w", typ, config.ErrNotAllowed).
				WithDetails("list it")
		}
		if known && len(versions) == 0 {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "plugin %q not found in /opt/cni/bin", typ).
				WithDetails("install it")
		}
		return versions, nil
	}
}

// Lint does not read unused files that are not regular, or too large for a configuration.
func TestReadLeavesOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(
		t,
		filepath.Join(dir, "large.bak"),
		[]byte(`{"type": "x", "y": "`+strings.Repeat("x", 1<<20)+`"}`),
	)
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero.conf.bak")); err != nil {
		t.Fatal(err)
	}
	c, err := lint.Read(dir)
	if found := lint.Check(c, nil); err != nil || found != nil {
		t.Errorf("%v %v", found, err)
	}
}

func TestFindingAsJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.conf")
	write(
		t,
		path,
		[]byte(
			"{\"cniVersion\": \"0.4.0\", \"name\": \"n\",\n \"type\": \"bridge\", \"é\": 0, \"x/~y\": 1}",
		),
	)
	got, err := json.Marshal(lint.Check(config.DiscoverFile(path), nil)[1:])
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"severity":"warning","rule":"unknown-key","file":"` + path + `","line":2,"column":28,"pointer":"/x~1~0y","network":"n","plugin":"bridge",` +
		`"message":"unknown key \"x/~y\""}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
}

// Lint does not panic on any input, and findings point into the file.
func FuzzCheck(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := strings.Count(string(data), "\n") + 1
		write(
			t,
			filepath.Join(dir, "base.conflist"),
			[]byte(`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge"}]}`),
		)
		for _, name := range []string{"x.conflist", "x.conf", "n/x.conf", "n/x.json", "x.bak", config.PolicyName} {
			write(t, filepath.Join(dir, name), append(data, ' '))
		}
		c, err := lint.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range lint.Check(c, nil) {
			if found.Line > lines || found.Message == "" {
				t.Errorf("%v", found)
			}
		}
	})
}
