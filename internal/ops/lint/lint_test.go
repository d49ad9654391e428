package lint_test

import (
	"errors"
	"flag"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/lint"
)

var update = flag.Bool("update", false, "rewrite what the archives want")

// Each rule has an archive: the files below wrong/ must give the findings in want, one of which is the rule's; those below
// right/ none at all. A file executables, beside either, tells what is known about them: "type version version", or
// "type" alone for one that is missing.
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
			for _, f := range check(t, archive, "wrong") {
				found = found || f.Rule == rule.ID
				got.WriteString(f.String() + "\n")
				if f.Hint != "" {
					got.WriteString("  " + f.Hint + "\n")
				}
			}
			if !found {
				t.Errorf("the rule is not among the findings:\n%s", got.String())
			}
			for _, f := range check(t, archive, "right") {
				t.Errorf("in what is right: %v", f)
			}
			last := len(archive.Files) - 1
			if archive.Files[last].Name != "want" {
				t.Fatal("the last file must be \"want\"")
			}
			if *update {
				archive.Files[last].Data = []byte(got.String())
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(archive.Files[last].Data), got.String()); diff != "" {
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
			t.Errorf("%s: there is no such rule", name)
		}
	}
}

func check(t *testing.T, archive *txtar.Archive, side string) []lint.Finding {
	t.Helper()
	var files []lint.File
	var executables map[string]lint.Executable
	for _, f := range archive.Files {
		name, ok := strings.CutPrefix(f.Name, side+"/")
		switch {
		case !ok:
		case name == "executables":
			executables = parseExecutables(string(f.Data))
		default:
			files = append(files, file(name, f.Data))
		}
	}
	return lint.Check(files, executables)
}

func file(name string, data []byte) lint.File {
	f := lint.File{Path: name, Data: []byte(strings.TrimSuffix(string(data), "\n"))}
	folder := path.Dir(name)
	switch ext := path.Ext(name); {
	case folder != ".":
		f.Network = folder
		if ext == ".conf" {
			f.Form = lint.DropIn
		}
	case ext == ".conflist":
		f.Form = lint.List
	case ext == ".conf" || ext == ".json":
		f.Form = lint.Single
	}
	if name == "unreadable.conflist" {
		f.Data, f.Err = nil, errors.New("permission denied")
	}
	return f
}

func parseExecutables(table string) map[string]lint.Executable {
	all := map[string]lint.Executable{}
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		x := lint.Executable{Versions: words[1:]}
		if len(words) == 1 {
			x = lint.Executable{Err: cni.Errorf(cni.CodeInvalidConfig, "plugin %q not found in /opt/cni/bin", words[0]).WithDetails("install it")}
		}
		all[words[0]] = x
	}
	return all
}

// Whatever is in a file, lint does not fall over it, and places are in the file.
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
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range []lint.Form{lint.Other, lint.List, lint.Single, lint.DropIn} {
			lines := strings.Count(string(data), "\n") + 1
			base := lint.File{Path: "base.conflist", Form: lint.List, Data: []byte(`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge"}]}`)}
			for _, found := range lint.Check([]lint.File{base, {Path: "x", Network: "n", Form: form, Data: data}}, nil) {
				if found.Line > lines || found.Message == "" {
					t.Errorf("%v", found)
				}
			}
		}
	})
}
