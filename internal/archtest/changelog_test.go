package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// changelogEntry is the form that changelog/README.md describes.
var changelogEntry = regexp.MustCompile("^(added|changed|deprecated|removed|fixed|security): [A-Z`].*\\. \\(.+\\)\n$")

func TestChangelogEntries(t *testing.T) {
	t.Parallel()
	entries, err := filepath.Glob(filepath.Join(moduleRoot(t), "changelog", "unreleased", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range entries {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !changelogEntry.Match(text) {
			t.Errorf("%s: not \"KIND: Sentence. (reference)\": %q", filepath.Base(name), text)
		}
	}
}

func TestChangelogEntryForm(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		entry string
		want  bool
	}{
		"complete":             {"fixed: DEL works without a namespace. (#12)\n", true},
		"unknown kind":         {"improved: DEL works without a namespace. (#12)\n", false},
		"no reference":         {"fixed: DEL works without a namespace.\n", false},
		"more than one line":   {"fixed: DEL works.\nAnd ADD. (#12)\n", false},
		"sentence not closed":  {"fixed: DEL works without a namespace (#12)\n", false},
		"starts in lower case": {"fixed: works without a namespace. (#12)\n", false},
	} {
		if got := changelogEntry.MatchString(row.entry); got != row.want {
			t.Errorf("%s: accepted = %t, want %t", name, got, row.want)
		}
	}
}
