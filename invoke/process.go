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
	// killAfter is the time between SIGTERM and SIGKILL. Together with drainFor it ensures that a
	// call returns within 250 ms of the end of the context.
	killAfter = 100 * time.Millisecond

	// drainFor is the time for which a descendant may keep the plugin's standard streams open after
	// the plugin has exited.
	drainFor = 100 * time.Millisecond

	busyRetries = 9
	busyWait    = 20 * time.Millisecond // first wait; each further wait is four times as long
	busyWaitMax = time.Second           // maximum wait
)

// Process calls plugins as processes. The zero value is ready for use.
//
// A plugin inherits the environment of this process or the variables in Base, except the CNI_
// variables of the protocol, which the call sets. It runs in its own process group unless
// [Call.Joined] is set, and receives the request on standard input, which it may leave unread. When
// ctx ends, the group receives SIGTERM, and SIGKILL 100 ms later; Call returns within 250 ms even
// if a descendant has left the group and holds standard output open. Call stops a plugin that
// writes more than 16 MiB to standard output in the same way. It does not stop the descendants of a
// plugin that exited on its own. If the binary is open for writing (ETXTBSY), Call retries for
// about six seconds, in the end once a second.
//
// Windows has neither process groups nor signals: there a plugin inherits no [Call.Files], and when
// ctx ends, Call kills the plugin at once, but not its descendants.
type Process struct {
	// Stderr receives the standard error of plugins immediately, regardless of the outcome of the
	// call. It must support concurrent writes if calls are concurrent. nil means [os.Stderr].
	Stderr io.Writer

	// Base is the environment that plugins inherit, as KEY=VALUE, instead of the environment of this
	// process; nil means [os.Environ], and an empty slice no variables. If Base has the same CNI_
	// variables as the call (cni.EnvFrom of Base equals [Call.Env]), it is the exact environment of
	// the plugin: variables that it lacks stay unset, and only Environ, [Call.Journaled] and the
	// trace of [WithTrace] add to it. The last of several values of a variable counts.
	Base []string

	// Environ returns additional variables for one call, as KEY=VALUE. They take precedence over
	// inherited variables and over the trace of [WithTrace]. If either sets TRACEPARENT, inherited
	// TRACESTATE and BAGGAGE variables are dropped, because they belong to another trace. May be
	// nil.
	Environ func(ctx context.Context) []string
}

// Call implements [Caller].
func (p Process) Call(ctx context.Context, c Call) (Reply, error) {
	return traced(ctx, c, p.call)
}

// call repeats a call while the binary is open for writing.
func (p Process) call(ctx context.Context, c Call) (Reply, error) {
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
	cmd.Path, cmd.Err = c.Path, nil // not searched for in PATH
	cmd.Env = p.environ(ctx, c)
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
		e := cni.Errorf(cni.CodeIOFailure, "start: %w", err).WithDetails(startHint(err))
		return Reply{}, c.error(e, outcome{})
	}
	err = cmd.Wait()
	drain()
	o := outcome{status: cmd.ProcessState.String(), stdout: stdout.buf.Bytes(), stderr: stderr.buf}
	if stopped {
		kill.Stop()
		if !c.Joined {
			g.kill() // processes of the group that outlived the plugin
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
		e := cni.Errorf(cni.CodeInternal, "more than %d MiB on standard output", maxStdout>>20)
		return Reply{}, c.error(e, o)
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
		return "the file is neither a program for this architecture " +
			"nor a script with an interpreter line"
	case errors.Is(err, syscall.ENOENT):
		return "the file or its interpreter does not exist"
	}
	return ""
}
