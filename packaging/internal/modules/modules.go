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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// Read reads the build information of the programs in directory bin. Licences come from the module
// cache of the go command, which has the modules since the programs were built. env is the
// environment of that command.
func Read(ctx context.Context, bin string, programs, env []string) (Set, error) {
	s := Set{Uses: map[string][]string{}}
	found := map[string]Module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return Set{}, err
		}
		std := Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go"),
			Licence: "BSD-3-Clause", Texts: []Text{{"LICENSE", goLicence}}}
		found[std.Path], s.Uses[program] = std, []string{std.Path}
		for _, dep := range info.Deps {
			if dep.Path == Self {
				continue
			}
			if dep.Replace != nil {
				return Set{}, fmt.Errorf("%s: module %s is replaced", program, dep.Path)
			}
			found[dep.Path+"@"+dep.Version] = Module{
				Path: dep.Path, Version: dep.Version, Sum: dep.Sum}
			s.Uses[program] = append(s.Uses[program], dep.Path+"@"+dep.Version)
		}
		slices.Sort(s.Uses[program])
	}
	for _, m := range found {
		s.Modules = append(s.Modules, m)
	}
	slices.SortFunc(s.Modules, func(a, b Module) int { return cmp.Compare(a.Key(), b.Key()) })
	return s, addLicences(ctx, s.Modules, env)
}

// Key identifies a module in [Set.Uses]. Programs may use different versions of a module.
func (m Module) Key() string {
	if m.Path == "stdlib" {
		return m.Path
	}
	return m.Path + "@" + m.Version
}

// addLicences reads the licences of modules other than the standard library.
func addLicences(ctx context.Context, list []Module, env []string) error {
	dirs, err := directories(ctx, list, env)
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

// directories asks the go command for the directories of modules in its cache.
func directories(ctx context.Context, list []Module, env []string) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range list {
		if m.Path != "stdlib" {
			args = append(args, m.Key())
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	dirs := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go mod download: %w", err)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}
