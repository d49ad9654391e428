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
		dirs, err := directories(used, func(args ...string) ([]byte, error) {
			return e.Command(ctx, o, o.Source(program), args...)
		})
		if err != nil {
			return Set{}, fmt.Errorf("program %s: %w", program, err)
		}
		if err := addLicences(used, dirs); err != nil {
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

// addLicences reads the licences of modules other than the standard library from their directories.
func addLicences(list []Module, dirs map[string]string) (err error) {
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

// directories asks the go command for the directories of modules in its cache. The command runs in
// the directory of a program, because go.sum of its module has the checksums of the modules.
func directories(list []Module, command func(args ...string) ([]byte, error),
) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range list {
		if m.Path != "stdlib" {
			args = append(args, m.Key())
		}
	}
	out, failed := command(args...) // out has the error of each module, too
	dirs := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir, Error string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) && failed == nil {
			return dirs, nil
		} else if err != nil {
			return nil, cmp.Or(failed, err)
		}
		if m.Error != "" {
			return nil, fmt.Errorf("go mod download: %s", m.Error)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}
