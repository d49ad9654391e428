// Command releasenotes moves the files of changelog/unreleased to a new section of CHANGELOG.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/changelog"
	"github.com/tenon-cni/tenon/packaging/internal/version"
)

func main() { os.Exit(run()) }

func run() int {
	name := flag.String("version", "", "`version` of the release, such as v0.1.0")
	root := flag.String("root", "..", "`directory` of the repository")
	flag.Parse()
	if err := assemble(*root, *name, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "releasenotes:", err)
		return 1
	}
	return 0
}

// assemble writes the section before it deletes the files. If deleting fails, the next run refuses
// to add a second section.
func assemble(root, name string, at time.Time) error {
	v, err := version.Parse(name)
	if err != nil {
		return err
	}
	if !v.Release() {
		return fmt.Errorf("version %q is a snapshot, not a release", name)
	}
	entries, err := changelog.Read(filepath.Join(root, "changelog", "unreleased"))
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("changelog/unreleased has no changes for %s", name)
	}
	file := filepath.Join(root, "CHANGELOG.md")
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := changelog.Insert(string(page), "v"+v.String(), at, changelog.Changes(entries))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Remove(e.File); err != nil {
			return err
		}
	}
	fmt.Printf("moved %d changes to %s; next: review it, commit, and tag v%s\n",
		len(entries), filepath.Base(file), v)
	return nil
}
