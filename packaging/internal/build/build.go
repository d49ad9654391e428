// Package build compiles the programs for one processor, so that the binaries depend on the commit
// and on the version of Go alone.
package build

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Programs are the names of the programs, which are directories below cmd.
func Programs() []string { return []string{"tenon", "tenon-cluster", "tenon-dhcp", "tenon-ovs"} }

// Arch is a processor, in Go's terms.
type Arch struct {
	Name     string // GOARCH
	variable string // environment variable that selects the instruction set, and its value
}

// Arches returns the processors of a release.
func Arches() []Arch {
	return []Arch{
		{"amd64", "GOAMD64=v1"},
		{"arm64", "GOARM64=v8.0"},
		{"arm", "GOARM=7"},
		{"riscv64", "GORISCV64=rva20u64"},
		{"ppc64le", "GOPPC64=power8"},
		{"s390x", ""},
	}
}

// FindArch returns the processor with that name.
func FindArch(name string) (Arch, error) {
	var names []string
	for _, a := range Arches() {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Arch{}, fmt.Errorf("unknown processor %q: choose from %s", name,
		strings.Join(names, ", "))
}

// Env describes the go command of the builder.
type Env struct {
	Version  string   // of Go, such as go1.26.8
	download []string // settings that say where modules come from; they do not change the binaries
}

// ReadEnv asks the go command for its version and for its settings about downloads and caches.
// environ is the environment of the caller.
func ReadEnv(ctx context.Context, environ []string) (Env, error) {
	names := []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB",
		"GOPRIVATE", "GOINSECURE", "GOAUTH", "GOVCS", "GOTOOLCHAIN", "GOVERSION"}
	cmd := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, names...)...)
	cmd.Env = environ
	out, err := output(cmd)
	if err != nil {
		return Env{}, err
	}
	values := map[string]string{}
	if err := json.Unmarshal(out, &values); err != nil {
		return Env{}, fmt.Errorf("go env: %w", err)
	}
	e := Env{Version: values["GOVERSION"]}
	delete(values, "GOVERSION")
	for name, value := range values {
		e.download = append(e.download, name+"="+value)
	}
	slices.Sort(e.download)
	return e, nil
}

// Options say what to build.
type Options struct {
	Root    string // of the repository
	Dir     string // for the binaries
	Version string // for the programs to print
	Arch    Arch
	Inherit []string // the environment of the caller
}

// Source returns the directory with the source of a program.
func (o Options) Source(program string) string { return filepath.Join(o.Root, "cmd", program) }

// Run builds all programs into o.Dir.
func (e Env) Run(ctx context.Context, o Options) error {
	for _, program := range Programs() {
		_, err := e.Command(ctx, o, o.Source(program), "build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -X main.version="+o.Version,
			"-o", filepath.Join(o.Dir, program), ".")
		if err != nil {
			return fmt.Errorf("program %s for %s: %w", program, o.Arch.Name, err)
		}
	}
	return nil
}

// Command runs the go command in a directory, with the processor and the environment of o, and
// returns its standard output. The error includes what it printed to standard error.
func (e Env) Command(ctx context.Context, o Options, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, e.environ(o)
	return output(cmd)
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", cmd.Args[1], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}

// environ returns the environment of the go command: the caller's without Go's variables, with ours
// instead. The file of go env -w is not read.
func (e Env) environ(o Options) []string {
	env := slices.DeleteFunc(slices.Clone(o.Inherit), func(v string) bool {
		return strings.HasPrefix(v, "GO") || strings.HasPrefix(v, "CGO")
	})
	env = append(env, e.download...)
	env = append(env, "GOENV=off", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOOS=linux",
		"GOARCH="+o.Arch.Name)
	if o.Arch.variable != "" {
		env = append(env, o.Arch.variable)
	}
	return env
}
