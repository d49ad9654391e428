package notes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/packaging/internal/notes"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/version"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	unreleased := filepath.Join(root, "changelog", "unreleased")
	if err := os.MkdirAll(unreleased, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		filepath.Join(root, "CHANGELOG.md"): "# Changelog\n\n" +
			"## v0.2.0 (2026-12-01)\n\n### Added\n\n- Two. (#2)\n\n" +
			"## v0.1.0 (2026-11-01)\n\n### Added\n\n- One. (#1)\n",
		filepath.Join(unreleased, "three.md"): "fixed: Three. (#3)\n",
	} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, row := range map[string]struct {
		version string
		tagged  bool
		want    string // the end of the notes, or "" for an error
	}{
		"release":              {"0.2.0", true, "## Changes\n\n### Added\n\n- Two. (#2)\n"},
		"older release":        {"0.1.0", true, "## Changes\n\n### Added\n\n- One. (#1)\n"},
		"tag without notes":    {"0.3.0", true, ""},
		"version given":        {"0.3.0", false, "## Changes\n\n### Fixed\n\n- Three. (#3)\n"},
		"commit without a tag": {"0.2.1-0.20261123150704.g8ceac42d37a5", false, "- Three. (#3)\n"},
	} {
		v, err := version.Parse(row.version)
		if err != nil {
			t.Fatal(err)
		}
		r := &release.Release{Version: v, Tagged: row.tagged, Root: root, Out: t.TempDir()}
		file, err := notes.Write(r)
		if row.want == "" {
			if err == nil || !strings.Contains(err.Error(), "make release-notes VERSION=v0.3.0") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(filepath.Join(r.Out, file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got), "# Tenon v"+row.version+"\n") ||
			!strings.HasSuffix(string(got), row.want) {
			t.Errorf("%s: got\n%s", name, got)
		}
	}
}
