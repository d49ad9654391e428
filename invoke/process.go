package invoke

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

const (
	// killAfter is what a plugin has between SIGTERM and SIGKILL. Together with drainFor it keeps the
	// promise of Process: back within 250 ms of the end of the context.
	killAfter = 100 * time.Millisecond

	// drainFor is how long a descendant may keep the plugin's standard streams open, counted from the plugin's exit.
	drainFor = 100 * time.Millisecond

	busyRetries = 9
	busyWait    = 20 * time.Millisecond // before the first retry; four times as long before each further one
	busyWaitMax = time.Second           // but no longer
)

// Process calls plugins as processes. The zero value is ready for use.
//
// A plugin inherits the environment of this process, with the CNI_ variables of the call in place of any it had, runs
// in a process group of its own unless [Call.Joined] is set, and gets the request on standard input, which it need not
// read. When ctx ends the group gets SIGTERM and 100 ms later SIGKILL; Call returns within 250 ms of that even if a
// descendant has left the group and holds standard output. Descendants of a plugin that ended by itself are left alone.
// A plugin that writes more than 16 MiB to standard output is stopped like that, too. An executable that is open for
// writing (ETXTBSY) is tried again for about six seconds, in the end once a second.
//
// Windows has neither process groups nor signals: there a plugin inherits no [Call.Files], and when
// ctx ends Call kills the plugin at once, but not its descendants.
type Process struct {
	// Stderr is where standard error of plugins goes, at once and whatever becomes of the call. It
	// has to bear concurrent writes if calls are concurrent. nil is [os.Stderr].
	Stderr io.Writer

	// Environ returns further variables as KEY=VALUE for one call. They win over inherited ones, and over those of
	// [WithTrace]. Where either has a TRACEPARENT, an inherited TRACESTATE or BAGGAGE, which belongs to another trace, is
	// not passed on. May be nil.
	Environ func(ctx context.Context) []string
}

// Call implements [Caller].
func (p Process) Call(ctx context.Context, c Call) (Reply, error) {
	start := time.Now()
	wait := busyWait
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return Reply{}, c.stopped(ctx, time.Since(start), outcome{})
		}
		r, err := p.run(ctx, c)
		if try == busyRetries || !errors.Is(err, syscall.ETXTBSY) {
			return r, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		wait = min(4*wait, busyWaitMax)
	}
}

func (p Process) run(ctx context.Context, c Call) (Reply, error) {
	start := time.Now()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stdout := capped{max: maxStdout, over: func() { stop(errFull) }}
	stderr := tail{next: p.Stderr}
	if stderr.next == nil {
		stderr.next = os.Stderr
	}
	stopped := false
	var kill *time.Timer
	cmd := exec.CommandContext(running, c.Path)
	cmd.Path, cmd.Err = c.Path, nil // never searched for in PATH
	cmd.Env = p.environ(ctx, c.Env)
	cmd.Stdin = bytes.NewReader(c.Stdin)
	cmd.WaitDelay = drainFor
	g := newGroup(cmd, c)
	cmd.Cancel = func() error {
		if err := g.terminate(); err != nil {
			return os.ErrProcessDone
		}
		stopped = true
		kill = time.AfterFunc(killAfter, g.kill)
		return nil
	}
	drain, err := collect(cmd, &stdout, &stderr)
	if err != nil {
		if ctx.Err() != nil {
			return Reply{}, c.stopped(ctx, time.Since(start), outcome{})
		}
		return Reply{}, c.error(cni.Errorf(cni.CodeIOFailure, "start: %w", err).WithDetails(startHint(err)), outcome{})
	}
	err = cmd.Wait()
	drain()
	o := outcome{status: cmd.ProcessState.String(), stdout: stdout.buf.Bytes(), stderr: stderr.buf}
	if stopped {
		kill.Stop()
		if !c.Joined {
			g.kill() // what of the group outlived the plugin
		}
	}
	switch {
	case stopped && ctx.Err() != nil:
		if stdout.full {
			o.stdout = nil
		}
		return Reply{}, c.stopped(ctx, time.Since(start), o)
	case stdout.full:
		o.stdout = nil
		return Reply{}, c.error(cni.Errorf(cni.CodeInternal, "more than %d MiB on standard output", maxStdout>>20), o)
	case !cmd.ProcessState.Success():
		return Reply{}, c.failed(o)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return Reply{}, c.error(cni.Errorf(cni.CodeIOFailure, "standard streams: %w", err), o)
	}
	return Reply{Stdout: o.stdout, Stderr: o.stderr}, nil
}

func startHint(err error) string {
	switch {
	case errors.Is(err, syscall.EACCES):
		return "the file is not executable, or its file system is mounted noexec"
	case errors.Is(err, syscall.ETXTBSY):
		return "the file is still being written; replace plugins by renaming a finished file"
	case errors.Is(err, syscall.ENOEXEC):
		return "the file is neither a program for this machine nor a script with an interpreter line"
	case errors.Is(err, syscall.ENOENT):
		return "the file is gone, or its interpreter does not exist"
	}
	return ""
}
