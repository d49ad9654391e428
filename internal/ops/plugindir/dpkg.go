package plugindir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	if _, err := d.run(ctx, "dpkg-divert", "--package", d.Package, "--divert", p.diverted(),
		"--no-rename", "--quiet", "--add", p.path); err != nil {
		return err
	}
	if err := secondName(p.path, p.diverted()); err != nil {
		return err
	}
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
	if exists(filepath.Join(d.database(), p.group)) { // the file is not a link, so it stays
		if _, err := d.run(ctx, "update-alternatives", "--quiet", "--remove-all", p.group); err != nil {
			return err
		}
	}
	_, err := d.run(ctx, "dpkg-divert", "--package", d.Package, "--divert", p.diverted(), "--no-rename",
		"--quiet", "--remove", p.path)
	return err
}

func (d *Dpkg) database() string {
	if d.AlternativesDB != "" {
		return d.AlternativesDB
	}
	return "/var/lib/dpkg/alternatives"
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
