package archtest

import (
	"path/filepath"
	"strings"
	"testing"
)

// nestedModules returns the directories below cmd that are modules of their own, because their
// libraries would slow the start of tenon.
func nestedModules(t *testing.T) (dirs []string) {
	t.Helper()
	root := moduleRoot(t)
	for _, pattern := range []string{"cmd/*/go.mod", "cmd/*/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			dir, err := filepath.Rel(root, filepath.Dir(name))
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, filepath.ToSlash(dir))
		}
	}
	return dirs
}

// TestNestedModules runs the rules that also hold for programs that are modules of their own, which
// are not part of the tree of TestRules, and for module packaging. It compares the dependencies of
// the programs with dependencies-PROGRAM.txt.
func TestNestedModules(t *testing.T) {
	t.Parallel()
	dirs := nestedModules(t)
	if len(dirs) == 0 {
		t.Fatal("no module below cmd")
	}
	dirs = append(dirs, "packaging")
	for _, dir := range dirs {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			root := moduleRoot(t)
			module := newTree()
			if err := module.walk(root, dir); err != nil {
				t.Fatal(err)
			}
			for _, check := range []func(*tree, report){
				packageComments, packageNames, contextValues, noSleep, noInit, noErrorText, noSilentSkip,
				namespaces, kernelInterfaces, thinProgram,
			} {
				for _, violation := range violations(module, check) {
					t.Error(violation)
				}
			}
			if dir == "packaging" {
				return // no user runs it
			}
			name := "dependencies-" + strings.ReplaceAll(strings.TrimPrefix(dir, "cmd/"), "/", "-")
			compareGolden(t, filepath.Join("testdata", name+".txt"),
				dependencies(t, filepath.Join(root, dir), "./..."))
		})
	}
}

// thinProgram is mainIsThin for the main package of a module.
func thinProgram(t *tree, violated report) {
	program := newTree()
	for _, f := range t.files {
		if f.syntax.Name.Name == "main" && !f.support() {
			program.files = append(program.files, f)
		}
	}
	mainIsThin(program, violated)
}
