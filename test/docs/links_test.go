package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns all Markdown files of the repository, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "bin" || e.Name() == "node_modules" || e.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			found[path] = read(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	fenced   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	span     = regexp.MustCompile("`[^`\n]*`")
	linked   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notASlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns the anchors that forges make of a page's headings.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		text := linked.ReplaceAllString(m[1], "]")
		slug := strings.ReplaceAll(notASlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		all[slug] = true
	}
	return all
}

// TestLinks resolves every relative link of every document: the file and the heading must exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, checked := documents(t), 0
	for page, text := range pages {
		text = span.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") || filepath.Base(page) == "doc.md" && strings.HasPrefix(target, "../") {
				continue // doc.md is read as a page of docs/plugins, which is checked
			}
			checked++
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: dead link %s", page, m[1])
			} else if anchor != "" && !anchors(read(t, path))[anchor] {
				t.Errorf("%s: no heading for %s", page, m[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links", checked)
	}
}

// TestReferencesInCode: every page of docs that code, scripts or units name exists.
func TestReferencesInCode(t *testing.T) {
	t.Parallel()
	page := regexp.MustCompile(`\bdocs/[\w./-]+\.(?:md|json|svg)\b`)
	checked := 0
	for _, dir := range []string{"cmd", "cni", "compat", "conformance", "contrib", "internal", "invoke", "network", "otel", "plugin", "plugins", "scripts", "test"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			for _, name := range page.FindAllString(read(t, path), -1) {
				checked++
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s names %s, which does not exist", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 10 {
		t.Errorf("only %d references", checked)
	}
}
