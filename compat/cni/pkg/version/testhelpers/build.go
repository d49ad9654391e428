// Package testhelpers builds programs with particular versions of the CNI library.
package testhelpers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// BuildAt compiles the source of a main package with the CNI library of a Git reference, and
// writes the binary to outputFilePath. It builds in a temporary module in GOTMPDIR
// and needs the go command and access to the module.
func BuildAt(programSource []byte, gitRef string, outputFilePath string) error {
	output, err := filepath.Abs(outputFilePath)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(os.Getenv("GOTMPDIR"), "cni-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), programSource, 0o600); err != nil {
		return err
	}
	steps := [][]string{
		{"mod", "init", "example.com/program"},
		{"get", "github.com/containernetworking/cni@" + gitRef},
		{"mod", "tidy"},
	}
	for _, args := range steps {
		if err := goCommand(dir, os.Environ(), args...); err != nil {
			return err
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "GOPATH=")
	})
	if err := goCommand(dir, env, "build", "-o", output); err != nil {
		return fmt.Errorf("failed to build: %w", err)
	}
	return nil
}

// goCommand runs the go command in a directory. The error has its output.
func goCommand(dir string, env []string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, env
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %q: %s", cmd.String(), output)
	}
	return nil
}
