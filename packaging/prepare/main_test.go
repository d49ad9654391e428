package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrepare runs the command on a copy of the repository's own entries and modules.
func TestPrepare(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "changelog"), os.DirFS("../../changelog")); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "CHANGELOG.md")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "changelog", "unreleased")
	if err := os.MkdirAll(dir, 0o755); err != nil { // git has no empty directory
		t.Fatal(err)
	}
	entry := filepath.Join(dir, "test-prepare.md")
	if err := os.WriteFile(entry, []byte("fixed: The test works. (#19)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, module := range dependants() {
		if err := os.MkdirAll(filepath.Join(root, module), 0o755); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(module, "go.mod")
		content, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, refused := range []string{"", "v99", "v99.0.0-0.20261123150704.g8ceac42d37a5"} {
		if err := prepare(root, refused, time.Now()); err == nil {
			t.Errorf("version %q accepted", refused)
		}
	}
	at := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := prepare(root, "v99.0.0", at); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%d entries are left: %v", len(left), err)
	}
	page, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"\n\n## v99.0.0 (2099-01-02)\n\n### ", "\n- The test works. (#19)\n",
	} {
		if n := strings.Count(string(page), part); n != 1 {
			t.Errorf("%q is %d times in\n%s", part, n, page)
		}
	}
	for line := range strings.Lines(string(page)) {
		if n := len([]rune(line)); n > 101 && strings.Contains(strings.TrimSpace(line[2:]), " ") {
			t.Errorf("line of %d columns: %s", n-1, line)
		}
	}
	for _, module := range dependants() {
		content, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		n := strings.Count(string(content), " v99.0.0\n")
		if n != 1 || !strings.Contains(string(content), "github.com/tenon-cni/tenon v99.0.0\n") {
			t.Errorf("%s names the release %d times:\n%s", module, n, content)
		}
	}
	if err := prepare(root, "v99.0.1", at); err == nil {
		t.Error("a release without changes accepted")
	}
}
