// Package program finds and starts tenon-dhcp, the program of the DHCP daemon, for programs that do
// not link it. It also holds the flags of that program.
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

// Name is the file name of the program.
const Name = "tenon-dhcp"

// CallCommand is the command of the program that [Call] uses.
const CallCommand = "call-upstream"

// libexecDirs are where packages of distributions put programs that users do not start themselves.
var libexecDirs = []string{"/usr/local/libexec/tenon", "/usr/libexec/tenon", "/usr/lib/tenon"}

// MissingError reports that the program is not installed.
type MissingError struct{ dir string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("the program %s is neither in %s nor in %s nor in PATH", Name, e.dir,
		strings.Join(libexecDirs, ", "))
}

// Hint returns what helps.
func (e *MissingError) Hint() string {
	return fmt.Sprintf("put %s into the directory of tenon; \"tenon install %s\" then installs both",
		Name, e.dir)
}

// Find returns the path of the program, which it looks for in the directory of the running
// executable file, in libexec directories, and in PATH. The error is a [*MissingError] if none has
// it.
func Find() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, dir := range append([]string{filepath.Dir(self)}, libexecDirs...) {
		path := filepath.Join(dir, Name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	path, err := exec.LookPath(Name)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", &MissingError{dir: filepath.Dir(self)}
	}
	return path, err
}

// Replace replaces the running program by tenon-dhcp with some arguments. It keeps the process ID,
// by which systemd knows the daemon, and the descriptors. It returns only if it fails.
func Replace(args []string) error {
	path, err := Find()
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{Name}, args...), os.Environ())
	return fmt.Errorf("%s: %w", path, err)
}

// Call has the program make a request, in JSON, of the upstream plugin's daemon at a socket, and
// returns the reply in JSON.
func Call(ctx context.Context, socket string, request []byte) ([]byte, error) {
	path, err := Find()
	if err != nil {
		return nil, fmt.Errorf("cannot speak with the upstream plugin's daemon: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, CallCommand, socket)
	var failure bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), &failure
	reply, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", Name, err, bytes.TrimSpace(failure.Bytes()))
	}
	return reply, nil
}
