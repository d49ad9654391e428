package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance"
)

// retired are constructions and words that make a sentence hard to read, with their replacements.
// See docs/glossary.md for the terms.
var retired = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"free relative clause: name the subject", regexp.MustCompile(
		`(?:(?:^|[.:;] )(?:What|Who|Whoever|That which|Of (?:two|several|what))\b` +
			`|\bwhat (?:is|was|has|does|had|comes|stands|belongs|others|nobody)\b` +
			`|\bwho (?:has|asks|comes|does|made|makes|knows|writes|names)\b)`)},
	{"name the actor", regexp.MustCompile(`\b(?:[Ss]omebody|[Nn]obody|[Ww]hoever|[Ww]hose|[Ww]hom)\b`)},
	{"name the noun", regexp.MustCompile(`\b(?:[Tt]hat of|[Tt]hose of|those that|that which)\b`)},
	{"write reports, prints or logs", regexp.MustCompile(`\b(?:is|are|be|was) told\b|\btells?\b( you)?`)},
	{"write restores, removes, undoes, skips or follows", regexp.MustCompile(
		`\b(?:tak(?:e|es|en|ing) (?:back|away)|put(?:s|ting)? back|took back|passed over|goes past|goes before` +
			`|stands? (?:behind|before|there)|cut short|comes? back)\b`)},
	{"write next to, in addition to or except", regexp.MustCompile(`\bbesides?\b`)},
	{"write must or will", regexp.MustCompile(`\bshall\b`)},
	{"see the glossary", regexp.MustCompile(
		`\b(?:[Ff]olders?|reference (?:plugins?|library)|hardware address(?:es)?|host's ends?|address management)\b`)},
}

// outsideReference is a citation of a page that is not in the repository.
var outsideReference = regexp.MustCompile(`\b[a-z-]+\.md,? (?:section )?[0-9]|\bfield(?:-notes)? row|design page`)

// TestProse limits retired words in messages, comments and documents to 1.5 per 1,000 words of a
// package or page, and refuses references that a reader cannot follow.
func TestProse(t *testing.T) {
	t.Parallel()
	rows, err := conformance.Rows()
	if err != nil {
		t.Fatal(err)
	}
	requirements := map[string]bool{}
	for _, row := range rows {
		requirements[row.ID] = true
	}
	for _, piece := range prose(t) {
		words, found := 0, []string{}
		for _, s := range piece.sentences {
			words += len(strings.Fields(s.text))
			for _, r := range retired {
				for _, m := range r.pattern.FindAllString(s.text, -1) {
					if !strings.HasSuffix(m, " you") {
						found = append(found, fmt.Sprintf("%s: %q: %s", s.place, m, r.name))
					}
				}
			}
			for _, m := range outsideReference.FindAllString(s.text, -1) {
				if !requirements[m] {
					t.Errorf("%s: %q is not in this repository", s.place, m)
				}
			}
		}
		if len(found)*1000 > words*3/2 {
			t.Errorf("%s: %d retired constructions in %d words:\n\t%s", piece.name, len(found), words, strings.Join(found, "\n\t"))
		}
	}
}

// piece is a package or a page.
type piece struct {
	name      string
	sentences []sentence
}

type sentence struct{ place, text string }

func prose(t *testing.T) []piece {
	t.Helper()
	packages := map[string]*piece{}
	var all []piece
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name := e.Name(); name == ".git" || name == "bin" || name == "node_modules" || name == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".go":
			dir := filepath.Dir(name)
			if packages[dir] == nil {
				packages[dir] = &piece{name: dir}
			}
			sentences, err := goProse(path, name)
			packages[dir].sentences = append(packages[dir].sentences, sentences...)
			return err
		case ".md":
			sentences := markdownProse(read(t, path), name)
			if dir := filepath.Dir(name); dir == "changelog/unreleased" { // one page once released
				if packages[dir] == nil {
					packages[dir] = &piece{name: dir}
				}
				packages[dir].sentences = append(packages[dir].sentences, sentences...)
			} else {
				all = append(all, piece{name, sentences})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		all = append(all, *p)
	}
	return all
}

// goProse returns the comments of a file and the strings that look like messages.
func goProse(path, name string) (all []sentence, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	add := func(at token.Pos, text string) {
		all = append(all, sentence{fmt.Sprintf("%s:%d", name, files.Position(at).Line), text})
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if text, isProse := strings.CutPrefix(c.Text, "// "); isProse {
				add(c.Pos(), text)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || literal.Value[0] == '`' {
			return true
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && strings.Count(text, " ") >= 3 && !strings.ContainsAny(text, "{}<>") {
			add(literal.Pos(), text)
		}
		return true
	})
	return all, nil
}

// markdownProse returns the lines of a page without code.
func markdownProse(page, name string) (all []sentence) {
	fence := false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fence = !fence
		case !fence && !strings.HasPrefix(line, "    "):
			all = append(all, sentence{fmt.Sprintf("%s:%d", name, i+1), span.ReplaceAllString(line, "X")})
		}
	}
	return all
}
