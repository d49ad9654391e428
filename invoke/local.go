package invoke

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Local calls plugins in this process, chosen by the base name of [Call.Path]. Replies and errors are
// those that [Process] gives for a plugin that prints the same; one that fails counts as exit status 1. What ctx holds,
// such as a [Trace], the handler gets.
// A handler is told of the end of ctx but cannot be stopped: Call returns when it does.
type Local map[string]Handler

// Call implements [Caller]. A plugin that is not there has [cni.CodeInvalidConfig].
func (l Local) Call(ctx context.Context, c Call) (Reply, error) {
	name := typeOf(c.Path)
	h, ok := l[name]
	if !ok {
		return Reply{}, c.error(cni.Errorf(cni.CodeInvalidConfig, "plugin %q is not part of this program", name), outcome{})
	}
	if ctx.Err() != nil {
		return Reply{}, c.stopped(ctx, 0, outcome{})
	}
	start := time.Now()
	out, ok := h(ctx, c)
	switch o := (outcome{status: "exit status 1", stdout: out}); {
	case ok:
		return Reply{Stdout: out}, nil
	case ctx.Err() != nil:
		return Reply{}, c.stopped(ctx, time.Since(start), o)
	default:
		return Reply{}, c.failed(o)
	}
}

// Auto calls a plugin in this process if its executable is the running program itself (device and inode)
// and Local has it, and as a process otherwise. The zero value always starts processes.
type Auto struct {
	Local      Local
	Process    Process
	AlwaysExec bool // start a process in any case
}

// Call implements [Caller].
func (a Auto) Call(ctx context.Context, c Call) (Reply, error) {
	if a.Local[typeOf(c.Path)] != nil && !a.AlwaysExec && isSelf(c.Path) {
		return a.Local.Call(ctx, c)
	}
	return a.Process.Call(ctx, c)
}

// self is the running program. On Linux the link leads to its file even after another took its
// name.
var self = sync.OnceValues(func() (os.FileInfo, error) {
	if runtime.GOOS == "linux" {
		return os.Stat("/proc/self/exe")
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Stat(path)
})

func isSelf(path string) bool {
	own, err := self()
	if err != nil {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && os.SameFile(own, info)
}
