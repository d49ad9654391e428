// Package notes writes the release notes that accompany the artefacts.
package notes

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/tenon-cni/tenon/packaging/internal/changelog"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

// File is the name of the release notes.
const File = "NOTES.md"

//go:embed notes.md.tmpl
var text string

// Write writes NOTES.md and returns its name. The changes are the section of the release in
// CHANGELOG.md. A snapshot has the files of changelog/unreleased instead.
func Write(r *release.Release) (string, error) {
	changes, err := changes(r)
	if err != nil {
		return "", err
	}
	parsed, err := template.New(File).Parse(text)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = parsed.Execute(&b, map[string]string{"Version": "v" + r.Version.String(),
		"Changes": changes, "Identity": sums.Identity, "Namespace": sums.Namespace})
	if err != nil {
		return "", err
	}
	return r.Write(File, b.Bytes())
}

func changes(r *release.Release) (string, error) {
	page, err := os.ReadFile(filepath.Join(r.Root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	if found, ok := changelog.Find(string(page), "v"+r.Version.String()); ok {
		return found, nil
	}
	if r.Tagged {
		return "", fmt.Errorf("CHANGELOG.md has no section for v%s: run make release-notes "+
			"VERSION=v%s before the tag", r.Version, r.Version)
	}
	entries, err := changelog.Read(filepath.Join(r.Root, "changelog", "unreleased"))
	return changelog.Changes(entries), err
}
