// Package program finds and starts the programs of Tenon other than tenon. Each is a binary of its
// own, because its libraries would slow the start of every plugin.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// libexecDirs are the directories in which distributions install programs that users do not start
// themselves.
var libexecDirs = []string{"/usr/local/libexec/tenon", "/usr/libexec/tenon", "/usr/lib/tenon"}

// MissingError reports that a program is not installed.
type MissingError struct{ name, dir string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed: it is neither in %s nor in %s nor in PATH", e.name,
		e.dir, strings.Join(libexecDirs, ", "))
}

// Hint suggests how to install the program.
func (e *MissingError) Hint() string {
	return fmt.Sprintf("copy %s into the directory of tenon; \"tenon install %s\" then installs both",
		e.name, e.dir)
}

// Find returns the path of the program with a file name. It searches the directory of the running
// binary, libexec directories, and PATH. The error is a [*MissingError] if the program is in none
// of them.
func Find(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, dir := range append([]string{filepath.Dir(self)}, libexecDirs...) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", &MissingError{name: name, dir: filepath.Dir(self)}
	}
	return path, err
}

// Exec replaces the running program with another. The new program keeps the process ID, by which
// systemd knows a daemon, and the file descriptors. Exec returns only if it fails; the error is a
// [*MissingError] if there is no such program.
func Exec(name string, args []string) error {
	path, err := Find(name)
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{name}, args...), os.Environ())
	return fmt.Errorf("%s: %w", path, err)
}

// Output runs a program with standard input and returns its standard output. If the program fails,
// the error contains its standard error.
func Output(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	path, err := Find(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var failure bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(failure.Bytes()))
	}
	return out, nil
}
