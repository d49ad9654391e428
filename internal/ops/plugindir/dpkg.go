package plugindir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The priorities of the alternatives: Tenon's plugins are the default.
const (
	priorityTenon = "100"
	priorityOther = "50"
)

// Dpkg moves files of other Debian packages aside (dpkg-divert) and offers both files as
// alternatives (update-alternatives).
type Dpkg struct {
	Package string // name of this package, which owns the diversions

	// Directories other than the default ones, for tests.
	AdminDir        string // of dpkg
	Alternatives    string // with the links
	AlternativesLog string
	AlternativesDB  string
}

// link returns the path of the link of a group.
func (d *Dpkg) link(group string) string {
	dir := d.Alternatives
	if dir == "" {
		dir = "/etc/alternatives"
	}
	return filepath.Join(dir, group)
}

// owned reports whether another package owns a file.
func (d *Dpkg) owned(ctx context.Context, path string) (bool, error) {
	out, err := d.run(ctx, "dpkg-query", "--search", path)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil // no package
	}
	for line := range strings.Lines(string(out)) {
		owner, file, found := strings.Cut(strings.TrimSpace(line), ": ")
		if found && file == path && !strings.HasPrefix(owner, "diversion ") && owner != d.Package {
			return true, nil
		}
	}
	return false, err
}

// divert moves a file of another package aside and registers both files as alternatives.
func (d *Dpkg) divert(ctx context.Context, p place) error {
	diverted, err := d.diverts(ctx, p)
	if err != nil {
		return err
	}
	if !diverted {
		if _, err := d.run(ctx, "dpkg-divert", "--package", d.Package, "--divert", p.diverted(),
			"--no-rename", "--quiet", "--add", p.path); err != nil {
			return err
		}
	}
	// After an interrupted run, dpkg may have upgraded the diverted file.
	if !diverted || !exists(p.diverted()) {
		if err := secondName(p.earlier, p.diverted()); err != nil {
			return err
		}
	}
	return d.register(ctx, p)
}

// registered reports whether both files are alternatives. An interrupted run may have registered
// one.
func (d *Dpkg) registered(ctx context.Context, p place) bool {
	return slices.Contains(d.offered(ctx, p.group), p.target)
}

// register registers both files as alternatives.
func (d *Dpkg) register(ctx context.Context, p place) error {
	for _, choice := range [][]string{
		{p.diverted(), priorityOther}, {p.target, priorityTenon},
	} {
		if _, err := d.run(ctx, "update-alternatives", "--quiet", "--force", "--install", p.path, p.group,
			choice[0], choice[1]); err != nil {
			return err
		}
	}
	return nil
}

// finish removes the alternatives and the diversion that an interrupted run has left for a file
// that is no link any more.
func (d *Dpkg) finish(ctx context.Context, p place) error {
	if err := d.removeAlternatives(ctx, p); err != nil {
		return err
	}
	diverted, err := d.diverts(ctx, p)
	if err != nil || !diverted {
		return err
	}
	if err := reunite(p.diverted(), p.path); err != nil {
		return err
	}
	return d.undivert(ctx, p)
}

// diverts reports whether this package diverts a file.
func (d *Dpkg) diverts(ctx context.Context, p place) (bool, error) {
	owner, err := d.run(ctx, "dpkg-divert", "--listpackage", p.path)
	return strings.TrimSpace(string(owner)) == d.Package, err
}

// reunite gives a diverted file its name, if it exists. Both names may be of one file.
func reunite(diverted, path string) error {
	if !exists(diverted) {
		return nil
	}
	if err := os.Rename(diverted, path); err != nil {
		return err
	}
	return remove(diverted) // rename(2) keeps both names of one file
}

func (d *Dpkg) undivert(ctx context.Context, p place) error {
	_, err := d.run(ctx, "dpkg-divert", "--package", d.Package, "--divert", p.diverted(), "--no-rename",
		"--quiet", "--remove", p.path)
	return err
}

// release removes the alternatives and the diversion, and restores the file of the other package, if
// it still exists.
func (d *Dpkg) release(ctx context.Context, p place) error {
	// The link leads to the other file from here on, and the rename replaces it.
	if _, err := d.run(ctx, "update-alternatives", "--quiet", "--remove", p.group, p.target); err != nil {
		return err
	}
	if exists(p.diverted()) {
		if err := os.Rename(p.diverted(), p.path); err != nil {
			return err
		}
	}
	if err := d.removeAlternatives(ctx, p); err != nil { // the file is not a link, so it stays
		return err
	}
	return d.undivert(ctx, p)
}

// removeAlternatives removes a group of alternatives if it exists. Its files may be missing.
func (d *Dpkg) removeAlternatives(ctx context.Context, p place) error {
	if !exists(d.link(p.group)) {
		return nil
	}
	_, err := d.run(ctx, "update-alternatives", "--quiet", "--remove-all", p.group)
	return err
}

// offered lists the files in a group of alternatives.
func (d *Dpkg) offered(ctx context.Context, group string) (files []string) {
	out, err := d.run(ctx, "update-alternatives", "--query", group)
	if err != nil {
		return nil // there is no such group
	}
	for line := range strings.Lines(string(out)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "Alternative: "); ok {
			files = append(files, file)
		}
	}
	return files
}

// Installed reports whether dpkg has installed this package. A host may have dpkg although its
// packages are from another package manager.
func (d *Dpkg) Installed(ctx context.Context) bool {
	if _, err := exec.LookPath("dpkg-divert"); err != nil {
		return false
	}
	out, err := d.run(ctx, "dpkg-query", "--show", "--showformat", "${db:Status-Status}", d.Package)
	return err == nil && string(out) != "config-files" && string(out) != "not-installed"
}

// run runs a program of dpkg. Warnings on standard error are dropped unless it fails.
func (d *Dpkg) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	var options []string
	if program == "update-alternatives" {
		if d.Alternatives != "" {
			options = []string{"--altdir", d.Alternatives, "--admindir", d.AlternativesDB,
				"--log", d.AlternativesLog}
		}
	} else if d.AdminDir != "" {
		options = []string{"--admindir", d.AdminDir}
	}
	cmd := exec.CommandContext(ctx, program, append(options, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(failure.Bytes()))
	}
	return out, nil
}
