package invoke

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Local calls plugins in this process, chosen by the base name of [Call.Path]. Its replies and
// errors equal the results of [Process] for a plugin with the same output; a failure counts as exit
// status 1. The handler receives ctx with its values, such as a [Trace]. A handler can notice the
// end of ctx but cannot be stopped: Call returns when the handler returns.
type Local map[string]Handler

// Call implements [Caller]. The code for a missing plugin is [cni.CodeInvalidConfig].
func (l Local) Call(ctx context.Context, c Call) (Reply, error) {
	name := typeOf(c.Path)
	h, ok := l[name]
	if !ok {
		e := cni.Errorf(cni.CodeInvalidConfig, "plugin %q is not part of this program", name)
		return Reply{}, c.error(e, outcome{})
	}
	return traced(ctx, c, h.call)
}

// call runs the handler and returns its output as the reply of a process.
func (h Handler) call(ctx context.Context, c Call) (Reply, error) {
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

// Auto calls a plugin in this process if its binary is the running program (the same device and
// inode) and Local contains it, and as a process otherwise. The zero value always starts processes.
type Auto struct {
	Local      Local
	Process    Process
	AlwaysExec bool // always start a process
}

// Call implements [Caller].
func (a Auto) Call(ctx context.Context, c Call) (Reply, error) {
	if a.Local[typeOf(c.Path)] != nil && !a.AlwaysExec && isSelf(c.Path) {
		return a.Local.Call(ctx, c)
	}
	return a.Process.Call(ctx, c)
}

// self identifies the running program. On Linux, /proc/self/exe leads to its file even after
// another file has taken its name.
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
