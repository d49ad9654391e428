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
	// ErrContext reports that SELinux does not know a context, or does not allow executing a
	// program in it.
	ErrContext = errors.New("SELinux refuses the context")
)

// CreateLabelled is like [Tap.Create] for a device with a security context of SELinux. A tap device
// gets the context of the task that creates it; fscreate and sockcreate have no effect. In a
// process with several threads, a thread may change its context (attr/current) only to one that the
// policy bounds by the present one. CreateLabelled therefore executes the running binary in that
// context, with the arguments self, from argument 0 on, which make it call [MakeTap]. The calling
// thread must end afterwards, because all programs it executes from now on get the context.
func (t Tap) CreateLabelled(context string, self []string) error {
	description, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return executeLabelled(context, append(slices.Clone(self), string(description)))
}

// executeLabelled executes the running binary with a security context. The error wraps the
// [unix.Errno] that is its exit status.
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
		return fmt.Errorf("%w %q for the program that creates the device: %w", ErrContext, context,
			err)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w", bytes.TrimSpace(stderr.Bytes()), unix.Errno(exit.ExitCode()))
	}
	return err
}

// SELinuxAvailable returns nil if the kernel enforces or could enforce an SELinux policy, else
// [ErrNoSELinux].
func SELinuxAvailable() error {
	// The kernel registers selinuxfs unless SELinux is disabled.
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(known)), "selinuxfs") {
		return ErrNoSELinux
	}
	return nil
}

// MakeTap is the main function of the program that [Tap.CreateLabelled] executes: it creates the
// described device. The exit status is 0, or the errno with a message on stderr.
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
