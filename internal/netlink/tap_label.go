package netlink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	// ErrNoSELinux reports that the kernel was started without SELinux.
	ErrNoSELinux = errors.New("SELinux is not enabled")
	// ErrContext reports that SELinux does not know a context, or refuses to execute with it.
	ErrContext = errors.New("SELinux refuses the context")
)

// CreateLabelled is [Tap.Create] for a device with a security context of SELinux. A tap device gets
// the context of the task that creates it; fscreate and sockcreate have no effect. One thread of
// several may change its own context (attr/current) only to one that the policy bounds by its
// present one. So CreateLabelled executes another program in that context: the running one, with
// the arguments self, from argument 0 on, that make it call [MakeTap]. The calling thread must end
// afterwards, because all programs it executes from now on get the context.
func (t Tap) CreateLabelled(context string, self []string) error {
	description, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return executeLabelled(context, append(slices.Clone(self), string(description)))
}

// executeLabelled runs this executable with a security context. The error wraps the [unix.Errno]
// that it exits with.
func executeLabelled(context string, args []string) error {
	if err := SELinuxAvailable(); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/thread-self/attr/exec", []byte(context), 0); err != nil {
		return fmt.Errorf("%w %q: %w", ErrContext, context, err)
	}
	var stderr bytes.Buffer
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: args, Env: []string{}, Stderr: &stderr}
	err := cmd.Run()
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w %q for a program that makes the device: %w", ErrContext, context, err)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w", bytes.TrimSpace(stderr.Bytes()), unix.Errno(exit.ExitCode()))
	}
	return err
}

// SELinuxAvailable returns nil if the kernel enforces or could enforce a policy of SELinux, else
// [ErrNoSELinux].
func SELinuxAvailable() error {
	known, err := os.ReadFile("/proc/filesystems") // selinuxfs is registered only if it was not disabled
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(known)), "selinuxfs") {
		return ErrNoSELinux
	}
	return nil
}

// MakeTap is the work of the program that [Tap.CreateLabelled] executes: it makes the device
// described. The exit status is 0, or the error number with a message on stderr.
func MakeTap(description string, stderr io.Writer) (status int) {
	var t Tap
	err := json.Unmarshal([]byte(description), &t)
	if err == nil {
		err = t.Create()
	}
	if err == nil {
		return 0
	}
	fmt.Fprint(stderr, err)
	number := unix.EINVAL
	errors.As(err, &number)
	return int(number)
}
