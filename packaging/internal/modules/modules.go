// Package modules lists the Go modules in the binaries of a release, from their build information,
// with the licence of each.
package modules

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/packaging/internal/build"
)

// Self is the path of the main module. The modules of the programs are below it.
const Self = "github.com/tenon-cni/tenon"

// Home is the address of the project.
const Home = "https://" + Self

// Module is a module with code in a binary.
type Module struct {
	Path    string // "stdlib" for the standard library
	Version string
	Sum     string // as in go.sum; "" for the standard library
	Licence string // SPDX expression
	Texts   []Text // licences and notices of the authors
}

// Text is a file of a module that has to accompany its binaries.
type Text struct {
	Name, Content string
}

// PURL returns the package URL of the module.
func (m Module) PURL() string {
	version := strings.ReplaceAll(m.Version, "+", "%2B") // of +incompatible
	return "pkg:golang/" + strings.ToLower(m.Path) + "@" + version
}

// Set has the modules of all programs in one directory.
type Set struct {
	Modules []Module            // sorted by path
	Uses    map[string][]string // paths of modules, sorted, by program
}

//go:embed go-license.txt
var goLicence string

// Read reads the build information of the programs in directory o.Dir. Licences come from the
// module cache of the go command, which has the modules since e built the programs.
func Read(ctx context.Context, e build.Env, o build.Options) (Set, error) {
	s := Set{Uses: map[string][]string{}}
	found := map[string]Module{}
	for _, program := range build.Programs() {
		used, err := ofProgram(filepath.Join(o.Dir, program))
		if err != nil {
			return Set{}, fmt.Errorf("program %s: %w", program, err)
		}
		if err := addLicences(ctx, used, o.Source(program), e.Environ(o)); err != nil {
			return Set{}, err
		}
		for _, m := range used {
			found[m.Key()] = m
			s.Uses[program] = append(s.Uses[program], m.Key())
		}
		slices.Sort(s.Uses[program])
	}
	s.Modules = slices.SortedFunc(maps.Values(found),
		func(a, b Module) int { return cmp.Compare(a.Key(), b.Key()) })
	return s, nil
}

// ofProgram returns the standard library and the modules in a program, without licences.
func ofProgram(file string) ([]Module, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	list := []Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go"),
		Licence: "BSD-3-Clause", Texts: []Text{{"LICENSE", goLicence}}}}
	for _, dep := range info.Deps {
		if dep.Path == Self {
			continue
		}
		if dep.Replace != nil {
			return nil, fmt.Errorf("module %s is replaced", dep.Path)
		}
		list = append(list, Module{Path: dep.Path, Version: dep.Version, Sum: dep.Sum})
	}
	return list, nil
}

// Key identifies a module in [Set.Uses]. Programs may use different versions of a module.
func (m Module) Key() string {
	if m.Path == "stdlib" {
		return m.Path
	}
	return m.Path + "@" + m.Version
}

// addLicences reads the licences of modules other than the standard library. dir is the source of
// the program that contains the modules: go.sum of its module has their checksums.
func addLicences(ctx context.Context, list []Module, dir string, env []string) error {
	dirs, err := directories(ctx, list, dir, env)
	if err != nil {
		return err
	}
	for i := range list {
		m := &list[i]
		if m.Path == "stdlib" {
			continue
		}
		if m.Texts, err = texts(dirs[m.Key()]); err != nil {
			return fmt.Errorf("module %s: %w", m.Key(), err)
		}
		if m.Licence, err = classify(m.Texts); err != nil {
			return fmt.Errorf("module %s: %w", m.Key(), err)
		}
	}
	return nil
}

// directories asks the go command, in directory dir, for the directories of modules in its cache.
func directories(ctx context.Context, list []Module, dir string, env []string,
) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range list {
		if m.Path != "stdlib" {
			args = append(args, m.Key())
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, failed := cmd.Output() // which has the error of each module, too
	dirs := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir, Error string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) && failed == nil {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go mod download: %w: %s", cmp.Or(failed, err), &stderr)
		}
		if m.Error != "" {
			return nil, fmt.Errorf("go mod download: %s", m.Error)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}
