package archtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestRules(t *testing.T) {
	t.Parallel()
	module := loadModule(t)
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			for _, violation := range violations(module, rule.check) {
				t.Error(violation)
			}
		})
	}
}

// TestRulesFindViolations runs each rule on an archive with violations and correct code; the file
// "want" lists the violations.
func TestRulesFindViolations(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join("testdata", rule.name+".txtar")
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			last := len(archive.Files) - 1
			if last < 0 || archive.Files[last].Name != "want" {
				t.Fatalf("%s: the last file must be \"want\"", name)
			}
			tree, err := parseArchive(&txtar.Archive{Files: archive.Files[:last]})
			if err != nil {
				t.Fatal(err)
			}
			found := strings.Join(violations(tree, rule.check), "\n") + "\n"
			if found == "\n" {
				t.Errorf("%s: no violation found", name)
			}
			if *update {
				archive.Files[last].Data = []byte(found)
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(archive.Files[last].Data), found); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func violations(t *tree, check func(*tree, report)) []string {
	var found []string
	check(t, func(where, format string, args ...any) {
		found = append(found, where+": "+fmt.Sprintf(format, args...))
	})
	slices.Sort(found)
	return found
}
