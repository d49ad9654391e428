// Package demo demonstrates Tenon: it attaches two containers to a network, uses, checks and
// repairs the network, detaches the containers, and proves that nothing is left. It runs in its own
// namespaces, so nothing on the host changes.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// Demo holds the settings of the demonstration.
type Demo struct {
	Out    *os.File // output
	Err    *os.File // log of plugins
	Colour bool     // use colours in Out

	// Inner lists the arguments that, followed by a directory, make this program call [Demo.Play].
	Inner []string
	// Plugins lists the names of the built-in plugins.
	Plugins []string
	// Repair repairs the calls that [network.Client.Repair] passes.
	Repair func(context.Context, []invoke.Call) error
}

// stopFor limits how long the demonstration may run after the context has ended.
const stopFor = 5 * time.Second

// Run starts this program again in new network and mount namespaces, and without root in a new user
// namespace, where it plays the demonstration. Run creates a temporary directory and removes it
// however the play ends. If the play fails, it prints the reason, and Run returns an
// [*exec.ExitError].
func (d Demo) Run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "tenon-demo-")
	if err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(d.Inner, dir)...)
	cmd.Stdout, cmd.Stderr = d.Out, d.Err
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stopFor
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), os.Remove(dir))
		}
		return errors.Join(noNamespaces(err), os.Remove(dir))
	}
	err = cmd.Wait()
	if ctx.Err() != nil && !cmd.ProcessState.Exited() { // killed before it could print the reason
		err = context.Cause(ctx)
	}
	return errors.Join(err, os.Remove(dir))
}

// noNamespaces adds the likely reason to an error of creating namespaces.
func noNamespaces(err error) error {
	e := cni.Errorf(cni.CodeNotAvailable, "create namespaces for the demonstration: %w", err)
	if os.Geteuid() == 0 {
		return e.WithDetails("inside a container, this requires CAP_SYS_ADMIN and CAP_NET_ADMIN")
	}
	return e.WithDetails(
		"run it as root: without root it requires user namespaces, which are disabled here " +
			"(sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and " +
			"kernel.apparmor_restrict_unprivileged_userns)",
	)
}
