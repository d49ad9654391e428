package install_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
)

// TestMain lets the tests install the test binary: "alpha" and "beta" are plugins, "old" supports
// old versions only, and "broken" fails.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "alpha", "beta":
		fmt.Println(`{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}`)
	case "old":
		fmt.Println(`{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}`)
	case "broken":
		os.Exit(3)
	default:
		os.Exit(m.Run())
	}
}

func run(t *testing.T, dir string, names ...string) []string {
	t.Helper()
	done, err := install.Run(t.Context(), install.Request{Dir: dir, Names: names})
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, p := range done {
		if p.Path != filepath.Join(dir, p.Name) ||
			!slices.Equal(p.Versions, []string{"1.0.0", "1.1.0"}) {
			t.Errorf("%+v", p)
		}
		changes = append(changes, p.Name+" "+string(p.Change))
	}
	return changes
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func same(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

func TestRunIsIdempotent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "plugins")
	expect(t, run(t, dir, "alpha"), "alpha installed")
	expect(t, run(t, dir, "alpha", "beta"), "alpha unchanged", "beta installed")
	expect(t, names(t, dir), "alpha", "beta")
	if !same(t, filepath.Join(dir, "alpha"), filepath.Join(dir, "beta")) {
		t.Error("the plugins are not links to one file")
	}
}

func TestRunReplacesFilesAndLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "target")
	write(t, target, "other")
	write(t, filepath.Join(dir, "alpha"), "other")
	if err := os.Symlink(target, filepath.Join(dir, "beta")); err != nil {
		t.Fatal(err)
	}
	expect(t, run(t, dir, "alpha", "beta"), "alpha replaced", "beta replaced")
	if content, err := os.ReadFile(target); err != nil || string(content) != "other" {
		t.Errorf("wrote through the symbolic link: %q, %v", content, err)
	}
}

// TestRunKeepsLinks: a replaced link is kept, also if it leads to a plugin of Tenon, as the links of
// a package do, or nowhere.
func TestRunKeepsLinks(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{self, "/missing"} {
		dir := t.TempDir()
		if err := os.Symlink(target, filepath.Join(dir, "alpha")); err != nil {
			t.Fatal(err)
		}
		expect(t, run(t, dir, "alpha"), "alpha replaced")
		expect(t, run(t, dir, "alpha"), "alpha unchanged")
		if to, err := os.Readlink(filepath.Join(dir, "alpha.before-tenon")); err != nil || to != target {
			t.Errorf("kept %q, %v, want a link to %s", to, err, target)
		}
	}
}

// TestConcurrentRuns: Run waits for an installation into the same directory, or else both would
// keep files, and one of them the other's plugin.
func TestConcurrentRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := statefile.TakeLock(t.Context(), filepath.Join(dir, ".tenon-install.lock"),
		statefile.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := install.Request{Dir: dir, Names: []string{"alpha"}}
	if _, err := install.Run(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("during another installation: %v", err)
	}
	expect(t, names(t, dir), ".tenon-install.lock")
	lock.Release()
	expect(t, run(t, dir, "alpha"), "alpha installed")
	expect(t, names(t, dir), "alpha")
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := exefile.Write(path, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

func TestRunKeepsFilesIfAPluginFails(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]cni.Code{"broken": cni.CodeInternal, "old": cni.CodeIncompatibleVersion} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, name), "working")
		done, err := install.Run(
			t.Context(),
			install.Request{Dir: dir, Names: []string{"alpha", name, "beta"}},
		)
		if cni.CodeOf(err) != code || !strings.Contains(err.Error(), "plugin "+name) {
			t.Errorf("%s: %v", name, err)
		}
		if len(done) != 1 || done[0].Name != "alpha" {
			t.Errorf("%s: done %+v", name, done)
		}
		if content, err := os.ReadFile(filepath.Join(dir, name)); err != nil ||
			string(content) != "working" {
			t.Errorf("%s: now %q, %v", name, content, err)
		}
		want := []string{"alpha", name}
		slices.Sort(want)
		expect(t, names(t, dir), want...)
	}
}

func TestRunRefusesUnusableDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, taken, link := filepath.Join(
		dir,
		"file",
	), filepath.Join(
		dir,
		"taken",
	), filepath.Join(
		dir,
		"link",
	)
	write(t, file, "")
	if err := os.MkdirAll(filepath.Join(taken, "beta"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin", link); err != nil {
		t.Fatal(err)
	}
	for _, nonsense := range []string{file, taken, link, "/usr/local/sbin", "/sbin/"} {
		done, err := install.Run(
			t.Context(),
			install.Request{Dir: nonsense, Names: []string{"alpha", "beta"}},
		)
		if cni.CodeOf(err) != cni.CodeInvalidConfig || len(done) > 0 {
			t.Errorf("%s: %+v, %v", nonsense, done, err)
		}
	}
	expect(t, names(t, taken), "beta")
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := install.Run(ctx, install.Request{Dir: dir, Names: []string{"alpha"}}); !errors.Is(
		err,
		context.Canceled,
	) {
		t.Errorf("got %v", err)
	}
	expect(t, names(t, dir))
}

// TestPrograms checks that Run links or copies a program into the directory, and replaces it when
// it differs.
func TestPrograms(t *testing.T) {
	t.Parallel()
	source, dir := filepath.Join(t.TempDir(), "tool"), t.TempDir()
	r := install.Request{Dir: dir, Programs: []install.Program{{Path: source, Name: "tool"}}}
	for _, step := range []struct {
		content string // of a new file, as after an update; empty: the same file
		want    install.Change
	}{{"one", install.Installed}, {"", install.Unchanged}, {"two", install.Replaced}} {
		if step.content != "" {
			if err := errors.Join(os.RemoveAll(source), os.WriteFile(source, []byte(step.content), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		done, err := install.Run(t.Context(), r)
		if err != nil || len(done) != 1 || done[0].Change != step.want ||
			done[0].Path != filepath.Join(dir, "tool") {
			t.Errorf("%+v, %v, want %s", done, err, step.want)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "tool")); err != nil ||
			step.content != "" && string(got) != step.content {
			t.Errorf("got %q, %v, want %q", got, err, step.content)
		}
	}
	// Files that are not builds of Tenon are kept, and this program never is one.
	expect(t, names(t, dir), "tool", "tool.before-tenon")
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}
	if _, err := install.Run(t.Context(), r); cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("without the program: %v", err)
	}
}

// TestPluginPrograms checks that Run installs a plugin that is a program of its own under the name
// of the plugin, and only if it answers VERSION.
func TestPluginPrograms(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	try := func(name string) ([]install.Plugin, error) {
		return install.Run(t.Context(), install.Request{Dir: dir,
			Programs: []install.Program{{Path: self, Name: name, Plugin: true}}})
	}
	for _, want := range []install.Change{install.Installed, install.Unchanged} {
		done, err := try("alpha")
		if err != nil || len(done) != 1 || done[0].Change != want ||
			!slices.Equal(done[0].Versions, []string{"1.0.0", "1.1.0"}) {
			t.Errorf("%+v, %v, want %s", done, err, want)
		}
	}
	for _, name := range []string{"broken", "old"} {
		write(t, filepath.Join(dir, name), "before")
		if done, err := try(name); err == nil || len(done) > 0 {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "before" {
			t.Errorf("%s is replaced: %v", name, err)
		}
	}
	expect(t, names(t, dir), "alpha", "broken", "old")
}
