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

// exceptions are the rules that do not hold for a nested module, each with the reason.
var exceptions = map[string]map[string]string{
	"otel": {
		"no-init": "a program with libcni's API only imports the package",
	},
	"compat/cni": {
		"package-names":   "libcni's names",
		"no-init":         "libcni registers its versions so",
		"no-error-text":   "libcni's errors are texts",
		"process-globals": "libcni's API reads the environment, and prints",
		"processes":       "libcni's API for tests builds programs",
	},
	"packaging": { // no user runs it
		"import-graph":    "it makes releases of everything",
		"processes":       "it runs the tools of a release",
		"process-globals": "its programs are not below cmd",
	},
}

// TestNestedModules runs the rules on the modules that are not part of the tree of TestRules.
func TestNestedModules(t *testing.T) {
	t.Parallel()
	dirs := nestedModules(t)
	if len(dirs) < 3 {
		t.Fatalf("only the modules %v below cmd", dirs)
	}
	for _, dir := range append(dirs, "otel", "compat/cni", "packaging") {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			module := newTree()
			if err := module.walk(moduleRoot(t), dir); err != nil {
				t.Fatal(err)
			}
			for _, rule := range rules {
				found := violations(module, rule.check)
				switch reason := exceptions[dir][rule.name]; {
				case reason == "":
					for _, violation := range found {
						t.Errorf("%s: %s", rule.name, violation)
					}
				case len(found) == 0:
					t.Errorf("the rule %s needs no exception: %s", rule.name, reason)
				}
			}
		})
	}
}

// TestProgramDependencies compares the dependencies of the programs that are modules of their own
// with dependencies-PROGRAM.txt.
func TestProgramDependencies(t *testing.T) {
	t.Parallel()
	for _, dir := range nestedModules(t) {
		name := "dependencies-" + strings.ReplaceAll(strings.TrimPrefix(dir, "cmd/"), "/", "-")
		compareGolden(t, filepath.Join("testdata", name+".txt"),
			dependencies(t, filepath.Join(moduleRoot(t), dir), "./..."))
	}
}
