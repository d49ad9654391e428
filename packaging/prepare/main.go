// Command prepare changes the repository for a release: it moves the files of changelog/unreleased
// to a new section of CHANGELOG.md, and sets the version in the modules that users import.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/changelog"
	"github.com/tenon-cni/tenon/packaging/internal/modules"
	"github.com/tenon-cni/tenon/packaging/internal/version"
)

func main() { os.Exit(run()) }

func run() int {
	name := flag.String("version", "", "`version` of the release, such as v0.1.0")
	root := flag.String("root", "..", "`directory` of the repository")
	flag.Parse()
	if err := prepare(*root, *name, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		return 1
	}
	return 0
}

func prepare(root, name string, at time.Time) error {
	v, err := version.Parse(name)
	if err != nil {
		return err
	}
	if !v.Release() {
		return fmt.Errorf("version %q is a snapshot, not a release", name)
	}
	tag := "v" + v.String()
	moved, err := assemble(root, tag, at)
	if err != nil {
		return err
	}
	if err := require(root, tag); err != nil {
		return err
	}
	fmt.Printf("moved %d changes to CHANGELOG.md, and set %s in go.mod of %s\n", moved, tag,
		strings.Join(dependants(), ", "))
	return nil
}

// assemble writes the section before it deletes the files. If deleting fails, the next run refuses
// to add a second section. It returns the number of files.
func assemble(root, tag string, at time.Time) (int, error) {
	entries, err := changelog.Read(filepath.Join(root, "changelog", "unreleased"))
	if err != nil {
		return 0, err
	}
	if len(entries) == 0 {
		return 0, fmt.Errorf("changelog/unreleased has no changes for %s", tag)
	}
	file := filepath.Join(root, "CHANGELOG.md")
	page, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	text, err := changelog.Insert(string(page), tag, at, changelog.Changes(entries))
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return 0, err
	}
	for _, e := range entries {
		if err := os.Remove(e.File); err != nil {
			return 0, err
		}
	}
	return len(entries), nil
}

// dependants are the modules that name the release of the main module: modules that users import,
// which cannot follow our replace lines, and the tests that depend on such a module.
func dependants() []string { return []string{"otel", "compat/cni", "test/programs/speed"} }

var requirement = regexp.MustCompile(`(?m)(\s` + modules.Self + ` )v\S+$`)

// require sets the version of the main module in go.mod of the dependants.
func require(root, tag string) error {
	for _, dir := range dependants() {
		file := filepath.Join(root, dir, "go.mod")
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !requirement.Match(content) {
			return fmt.Errorf("%s does not require %s", file, modules.Self)
		}
		content = requirement.ReplaceAll(content, []byte("${1}"+tag))
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
