package changelog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/changelog"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	dir := entries(t, map[string]string{
		"bridge-vlan.md": "added: Plugin `bridge` has VLANs. (#3)\n",
		"all.md": "added: Every plugin has an option that needs so many words to explain that the " +
			"line of the changelog is longer than 100 columns. (#4)\n",
		"cli.md": "fixed: DEL works twice. (#5)\n",
	})
	list, err := changelog.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	page := "# Changelog\n\nIntroduction.\n"
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	page, err = changelog.Insert(page, "v0.1.0", at, changelog.Changes(list))
	if err != nil {
		t.Fatal(err)
	}
	page, err = changelog.Insert(page, "v0.2.0", at.AddDate(0, 1, 0), changelog.Changes(list[2:]))
	if err != nil {
		t.Fatal(err)
	}
	const want = "# Changelog\n\nIntroduction.\n\n" +
		"## v0.2.0 (2027-01-01)\n\n### Fixed\n\n- DEL works twice. (#5)\n\n" +
		"## v0.1.0 (2026-12-01)\n\n### Added\n\n" +
		"- Every plugin has an option that needs so many words to explain that the line of the " +
		"changelog is\n  longer than 100 columns. (#4)\n- Plugin `bridge` has VLANs. (#3)\n\n" +
		"### Fixed\n\n- DEL works twice. (#5)\n"
	if page != want {
		t.Errorf("got\n%s\nwant\n%s", page, want)
	}
	got, ok := changelog.Find(page, "v0.2.0")
	if !ok || got != "### Fixed\n\n- DEL works twice. (#5)\n" {
		t.Errorf("changes of v0.2.0: %q", got)
	}
	if got, ok := changelog.Find(page, "v0.1.0"); !ok || got != changelog.Changes(list) {
		t.Errorf("changes of v0.1.0: %q", got)
	}
	if got, ok := changelog.Find(page, "v0.1"); ok {
		t.Errorf("found changes of v0.1: %q", got)
	}
	if _, err := changelog.Insert(page, "v0.1.0", at, ""); err == nil {
		t.Error("a second section for v0.1.0 accepted")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"no kind":      "DEL works twice. (#5)\n",
		"unknown kind": "improved: DEL works twice. (#5)\n",
		"two lines":    "fixed: DEL works twice.\nReally. (#5)\n",
	} {
		_, err := changelog.Read(entries(t, map[string]string{"x.md": content}))
		if err == nil || !strings.HasPrefix(err.Error(), "x.md: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func entries(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
