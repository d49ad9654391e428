// Package demo shows Tenon at work: it attaches two containers to a network, uses, checks and repairs them, deletes them, and
// proves that nothing is left. All of it happens in namespaces of its own, so nothing on the machine changes.
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

// Demo says how the demonstration is run.
type Demo struct {
	Out    *os.File // where the story goes
	Err    *os.File // where plugins log to
	Colour bool     // Out shows colours

	// Inner are the arguments with which the executable, followed by a folder, calls [Demo.Play].
	Inner []string
	// Plugins are the names of the plugins that the executable holds.
	Plugins []string
	// Repair is what [network.Client.Repair] needs for these plugins.
	Repair func(context.Context, []invoke.Call) error
}

// stopFor is how long the demonstration may take to end after the context has.
const stopFor = 5 * time.Second

// Run starts the executable again in network and mount namespaces of its own, without root in a user namespace too,
// where it plays the demonstration. The folder that the play needs is empty again at its end, whatever ends it, and
// is removed. An [*exec.ExitError] says that the play failed and has told why.
func (d Demo) Run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "tenon-demo-")
	if err != nil {
		return fmt.Errorf("temporary folder: %w", err)
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
		return errors.Join(noNamespaces(err), os.Remove(dir))
	}
	err = cmd.Wait()
	if ctx.Err() != nil && !cmd.ProcessState.Exited() { // killed before it could tell why
		err = context.Cause(ctx)
	}
	return errors.Join(err, os.Remove(dir))
}

// noNamespaces explains why namespaces cannot be had.
func noNamespaces(err error) error {
	e := cni.Errorf(cni.CodeNotAvailable, "namespaces for the demonstration: %w", err)
	if os.Geteuid() == 0 {
		return e.WithDetails("inside a container this takes the privileges CAP_SYS_ADMIN and CAP_NET_ADMIN")
	}
	return e.WithDetails("without root this takes user namespaces, which are switched off here " +
		"(see the settings user.max_user_namespaces, kernel.unprivileged_userns_clone and " +
		"kernel.apparmor_restrict_unprivileged_userns); run it as root")
}
