package cell

import (
	"context"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// effects maps the effects of faults to effects of the tracer.
var effects = map[script.Effect]tracer.Effect{
	script.NoEffect: tracer.None, script.KillBefore: tracer.Kill, script.FailWith: tracer.Fail,
}

// traced executes a call under its fault. A call that hangs ends all processes of the cell but this one.
func (p *player) traced(ctx context.Context, c script.Call) script.Result {
	r := script.Result{Name: c.Name, Stdin: c.Stdin.Expand(p.output)}
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = c.Env
	begin := time.Now()
	late := time.AfterFunc(script.DefaultDeadline, func() { _ = unix.Kill(-1, unix.SIGKILL) })
	type outcome struct {
		run *tracer.Run
		err error
	}
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // the thread, to which the kernel binds tracees, ends with the goroutine
		if err := confine(); err != nil {
			done <- outcome{err: err}
			return
		}
		run, err := tracer.Trace(cmd, r.Stdin, tracer.Fault{Effect: effects[c.Fault.Effect], N: c.Fault.N, First: true})
		done <- outcome{run, err}
	}()
	o := <-done
	r.Late = !late.Stop()
	r.Took = time.Since(begin)
	if o.err != nil {
		r.Failed, r.Status = o.err.Error(), -1
		return r
	}
	r.Status, r.Hit = o.run.Code, o.run.Hit
	r.Stdout, r.Stderr = o.run.Stdout[:min(len(o.run.Stdout), limit)], o.run.Stderr[:min(len(o.run.Stderr), limit)]
	if o.run.Killed {
		r.Status, r.Signal = -1, int(unix.SIGKILL)
	}
	for _, change := range o.run.Changes {
		r.Changes = append(r.Changes, script.Change{Name: change.Name, CanFail: change.Errno != 0})
	}
	return r
}
