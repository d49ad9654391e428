package invoke_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// EXE-01, EXE-02, CFG-31, SEC-02.
func TestFind(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"a/folder", "b", "c"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"b/both", "c/both", "c/folder", "b/plain", "c/plain", "c/target"} {
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"a/linked": "../c/target", "a/both": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "c")
	for _, tt := range []struct {
		name  string
		paths []string
		typ   string
		want  string
	}{
		{"the first directory takes precedence", []string{b, c}, "both", b + "/both"},
		{"a dangling link is skipped", []string{a, b, c}, "both", b + "/both"},
		{"a link is followed", []string{a, c}, "linked", a + "/linked"},
		{"a directory with the name is skipped", []string{a, c}, "folder", c + "/folder"},
		{"a file without execute permission hides a later one", []string{b, c}, "plain", b +
			"/plain"},
		{"empty entries are ignored", []string{"", c}, "target", c + "/target"},
		{"missing directories are ignored", []string{root + "/x", c}, "target", c + "/target"},
		{"not found", []string{a, b}, "absent", `plugin "absent" not found in ` + a + ", " + b +
			": install the plugin there or add its directory to the plugin directories (CNI_PATH)"},
		{"no directories", nil, "both",
			`plugin "both" not found: there are no plugin directories to search: set the plugin directories (CNI_PATH)`},
		{"a path is not a type", []string{a}, "../b/both",
			`plugin type "../b/both" is not a plain file name`},
		{"a relative name is not a type", []string{a}, "..",
			`plugin type ".." is not a plain file name`},
		{"an empty name is not a type", []string{a}, "", `plugin type is missing`},
	} {
		got, err := invoke.Find(tt.paths, tt.typ)
		if err != nil {
			got = err.Error()
			if cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Errorf("%s: code %d", tt.name, cni.CodeOf(err))
			}
		}
		if got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// A relative directory does not cause a search in PATH.
func TestFindRelative(t *testing.T) {
	t.Chdir(pluginDir(t, "ok"))
	path, err := invoke.Find([]string{"."}, "ok")
	if err != nil {
		t.Fatal(err)
	}
	p := invoke.Process{Stderr: &strings.Builder{}}
	if _, err := p.Call(t.Context(), add(path)); err != nil {
		t.Error(err)
	}
}

// ErrNotFound distinguishes a missing file from an invalid type, for all implementations.
func TestErrNotFound(t *testing.T) {
	t.Parallel()
	for typ, want := range map[string]bool{"absent": true, "a/b": false} {
		for name, c := range map[string]invoke.Caller{"process": invoke.Process{},
			"recorder": &invoke.Recorder{}} {
			for _, paths := range [][]string{nil, {t.TempDir()}} {
				_, err := invoke.Lookup(c, paths, typ)
				if errors.Is(err, invoke.ErrNotFound) != want {
					t.Errorf("%s, %s in %v: %v", name, typ, paths, err)
				}
			}
		}
	}
	if _, err := invoke.Lookup(invoke.Fake{}, nil, "absent"); !errors.Is(err, invoke.ErrNotFound) {
		t.Errorf("fake: %v", err)
	}
}
