package dhcp

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

// Program is the file name of the daemon's binary.
const Program = "tenon-dhcp"

// UpstreamCommand is the command of the program with which [Call] reaches the upstream plugin's
// daemon.
const UpstreamCommand = "call-upstream"

// libexecDirs are the directories in which distributions install programs that users do not start
// themselves.
var libexecDirs = []string{"/usr/local/libexec/tenon", "/usr/libexec/tenon", "/usr/lib/tenon"}

// MissingProgramError reports that the program is not installed.
type MissingProgramError struct{ dir string }

func (e *MissingProgramError) Error() string {
	return fmt.Sprintf("%s is not installed: it is neither in %s nor in %s nor in PATH", Program,
		e.dir,
		strings.Join(libexecDirs, ", "))
}

// Hint suggests how to install the program.
func (e *MissingProgramError) Hint() string {
	return fmt.Sprintf("copy %s into the directory of tenon; \"tenon install %s\" then installs both",
		Program, e.dir)
}

// FindProgram returns the path of the program. It searches the directory of the running binary,
// libexec directories, and PATH. The error is a [*MissingProgramError] if the program is in none of
// them.
func FindProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, dir := range append([]string{filepath.Dir(self)}, libexecDirs...) {
		path := filepath.Join(dir, Program)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	path, err := exec.LookPath(Program)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", &MissingProgramError{dir: filepath.Dir(self)}
	}
	return path, err
}

// ExecProgram replaces the running program with tenon-dhcp. The new program keeps the process ID,
// by which systemd knows the daemon, and the file descriptors. ExecProgram returns only if it
// fails.
func ExecProgram(args []string) error {
	path, err := FindProgram()
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{Program}, args...), os.Environ())
	return fmt.Errorf("%s: %w", path, err)
}

// callProgram runs the program to send a JSON request to the upstream plugin's daemon at a socket,
// and returns the reply as JSON.
func callProgram(ctx context.Context, socket string, request []byte) ([]byte, error) {
	path, err := FindProgram()
	if err != nil {
		return nil, fmt.Errorf("cannot call upstream's DHCP daemon: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, UpstreamCommand, socket)
	var failure bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), &failure
	reply, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", Program, err, bytes.TrimSpace(failure.Bytes()))
	}
	return reply, nil
}
