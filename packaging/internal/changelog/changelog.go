// Package changelog assembles the files in changelog/unreleased to the section of a release in
// CHANGELOG.md, and finds that section again.
package changelog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Kinds are the kinds of changes, in the order in which releases list them.
func Kinds() []string {
	return []string{"added", "changed", "deprecated", "removed", "fixed", "security"}
}

// Entry is one file of changelog/unreleased.
type Entry struct {
	File     string // path
	Kind     string
	Sentence string
}

// Read reads the entries in a directory, sorted by file name. Changes of one area follow each
// other, because the names of their files start with it.
func Read(dir string) (list []Entry, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		kind, sentence, ok := strings.Cut(strings.TrimSpace(string(content)), ": ")
		if !ok || !slices.Contains(Kinds(), kind) || strings.Contains(sentence, "\n") {
			return nil, fmt.Errorf("%s: expected one line, KIND: SENTENCE, with one of the kinds %s",
				filepath.Base(file), strings.Join(Kinds(), ", "))
		}
		list = append(list, Entry{file, kind, sentence})
	}
	return list, nil
}

// Changes formats entries, with a heading for each kind.
func Changes(entries []Entry) string {
	var b strings.Builder
	for _, kind := range Kinds() {
		title := strings.ToUpper(kind[:1]) + kind[1:]
		for _, e := range entries {
			if e.Kind != kind {
				continue
			}
			if title != "" {
				fmt.Fprintf(&b, "\n### %s\n\n", title)
				title = ""
			}
			b.WriteString(item(e.Sentence))
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// item formats a line of a list, wrapped at 100 columns.
func item(sentence string) string {
	const width = 100
	var b strings.Builder
	line := "-"
	for word := range strings.FieldsSeq(sentence) {
		if len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// Insert returns the page with a new section before the latest release.
func Insert(page, version string, at time.Time, changes string) (string, error) {
	if _, ok := Find(page, version); ok {
		return "", fmt.Errorf("the changelog already has a section for %s", version)
	}
	section := fmt.Sprintf("## %s (%s)\n\n%s", version, at.Format(time.DateOnly), changes)
	if before, after, ok := strings.Cut(page, "\n## "); ok {
		return before + "\n" + section + "\n## " + after, nil
	}
	return strings.TrimRight(page, "\n") + "\n\n" + section, nil
}

// Find returns the changes of a release, and whether the page has a section for it.
func Find(page, version string) (changes string, ok bool) {
	_, rest, ok := strings.Cut("\n"+page, "\n## "+version+" (")
	if !ok {
		return "", false
	}
	_, rest, _ = strings.Cut(rest, "\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	return strings.Trim(section, "\n") + "\n", true
}
