package main

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/packaging/internal/notes"
	"github.com/tenon-cni/tenon/packaging/internal/provenance"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

// destination is the directory of the artefacts. A run writes them to a directory below it, the
// stage, and moves them when all are complete. A run that fails leaves the artefacts of earlier
// runs.
type destination struct {
	dir, stage string
}

// stagePrefix begins the names of stages.
const stagePrefix = ".tenon-dist-"

func newDestination(dir string) (destination, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return destination{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return destination{}, err
	}
	stage, err := os.MkdirTemp(dir, stagePrefix)
	return destination{dir, stage}, err
}

// discard removes the stage.
func (d destination) discard() { _ = os.RemoveAll(d.stage) } // only files of this run

// publish moves files from the stage. A whole release replaces all artefacts of earlier runs, a
// part replaces files with the same names, the checksums and the signature. The checksums come
// last, so that a directory that has them is complete.
func (d destination) publish(names []string, whole bool) error {
	if err := removeFiles(d.dir, sums.File, sums.Signature); err != nil {
		return err
	}
	if whole {
		if err := d.removeEarlier(); err != nil {
			return err
		}
	}
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == sums.File })
	for _, name := range append(names, sums.File) {
		err := os.Rename(filepath.Join(d.stage, name), filepath.Join(d.dir, name))
		if err != nil {
			return err
		}
	}
	return nil
}

// removeEarlier removes the artefacts that an earlier run wrote, and the stages of killed runs.
func (d destination) removeEarlier() error {
	err := removeFiles(d.dir, "tenon_[0-9]*", "tenon-[0-9]*.tgz", notes.File, provenance.File)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(d.dir)
	for _, e := range entries {
		stage := filepath.Join(d.dir, e.Name())
		if strings.HasPrefix(e.Name(), stagePrefix) && stage != d.stage {
			err = errors.Join(err, os.RemoveAll(stage))
		}
	}
	return err
}

// removeFiles removes the regular files in a directory that match patterns of [path.Match].
func removeFiles(dir string, patterns ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		matches := func(pattern string) bool {
			ok, err := path.Match(pattern, e.Name())
			return ok && err == nil
		}
		if !e.Type().IsRegular() || !slices.ContainsFunc(patterns, matches) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
