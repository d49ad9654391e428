package invoke

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// RawExec runs plugins as processes, by the rules of [invoke.Process]: a plugin has its own process
// group unless this process is a plugin itself, receives SIGTERM when the context ends, and SIGKILL
// 100 ms later. If the program imports github.com/tenon-cni/tenon/plugins/all/link, RawExec runs
// Tenon's plugins in this process.
type RawExec struct {
	// Stderr receives the standard error of a plugin after it has ended, unless the error quotes
	// it; the part beyond 1 MiB is passed on immediately. It must support concurrent writes if calls
	// are concurrent. nil discards the output.
	Stderr io.Writer
}

// ExecPlugin runs the plugin at a path with a request and an exact environment, and returns its
// standard output. A nil environ means the environment of this process. The plugin also receives
// TRACEPARENT, TRACESTATE and BAGGAGE of a trace in ctx ([invoke.WithTrace]). A file that is open
// for writing is tried again for about six seconds. A plugin that prints more than 16 MiB fails.
//
// An error is a *types.Error: the error object of the plugin or, if it printed none, a description
// with code 0. The end of ctx is such a failure, too; test ctx for it.
func (e *RawExec) ExecPlugin(
	ctx context.Context, pluginPath string, stdinData []byte, environ []string,
) ([]byte, error) {
	if environ == nil {
		environ = os.Environ()
	}
	stderr := &held{next: e.Stderr}
	reply, err := invoke.Linked(invoke.Process{Stderr: stderr, Base: environ}).Call(ctx, invoke.Call{
		Path: pluginPath, Env: cni.EnvFrom(lookup(environ)), Stdin: stdinData,
		// A signal to the group of a plugin has to reach its delegates.
		Joined: os.Getenv("CNI_COMMAND") != "",
	})
	if failed := (*invoke.Error)(nil); errors.As(err, &failed) {
		f := failure{Error: failed, said: stderr.text(failed.Stderr), ended: ctx.Err()}
		object, quoted := f.object()
		if !quoted {
			stderr.pass()
		}
		return nil, object
	}
	stderr.pass()
	if err != nil {
		return nil, err
	}
	return reply.Stdout, nil
}

// FindInPath implements [Exec] with [FindInPath].
func (e *RawExec) FindInPath(plugin string, paths []string) (string, error) {
	return FindInPath(plugin, paths)
}

// lookup returns a function that reads the last value of a variable in environ.
func lookup(environ []string) func(name string) string {
	return func(name string) string {
		for _, entry := range slices.Backward(environ) {
			if value, ok := strings.CutPrefix(entry, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// maxHeld is the number of bytes of standard error that wait for the end of a plugin.
const maxHeld = 1 << 20

// held keeps output until pass is called.
type held struct {
	next io.Writer // may be nil

	mu     sync.Mutex
	buf    bytes.Buffer
	passed bool // output goes to next immediately
}

// Write implements [io.Writer]. It ignores errors of next, because they are not failures of the
// plugin.
func (h *held) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf.Write(b)
	if h.passed || h.buf.Len() > maxHeld {
		h.flush()
	}
	return len(b), nil
}

// pass passes the output on.
func (h *held) pass() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
}

func (h *held) flush() {
	h.passed = true
	if h.next != nil && h.buf.Len() > 0 {
		_, _ = h.next.Write(h.buf.Bytes())
	}
	h.buf.Reset()
}

// text returns the whole output or, if it has been passed on, its end.
func (h *held) text(end []byte) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passed {
		return string(end)
	}
	return h.buf.String()
}
