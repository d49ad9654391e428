package plugin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/invoke"
)

// Linked runs the plugins that are linked into a program in the process of the program, and
// executes all other plugins. It serves as the Caller of network.Client in runtimes that use
// Tenon's plugins without installing their binaries, or without starting a process for each call.
// Delegates of a linked plugin, such as host-local, use the same Linked. The zero value executes
// all plugins.
//
// Unless Accept is set, plugins in the list are not looked up in the file system: a file of the
// same name in a plugin directory is ignored, and policies for binaries, such as a list of allowed
// ones, do not apply. The program trusts every plugin in Plugins.
//
// Requests, results, error objects and codes are the same as in a separate process, with these
// differences:
//
//   - The program needs the privileges of a plugin: CAP_NET_ADMIN, CAP_NET_RAW, and CAP_SYS_ADMIN
//     to enter namespaces.
//   - The host namespace is the namespace of the calling thread, which never changes: work in other
//     namespaces runs on other threads, none of which stays there. Working directory, environment,
//     umask, resource limits and signal handling do not change either.
//   - A panic of the plugin becomes an error with code 999, with its stack in the log. A panic in a
//     goroutine of the plugin ends the program, as any panic does; Tenon's plugins recover those
//     panics.
//   - [invoke.Reply.Stderr] and [invoke.Error.Stderr] are empty: the plugin writes to Log only.
//   - A plugin is not killed when the context ends. Tenon's plugins stop waiting and roll back
//     their changes, with up to 10 seconds for each step. Call returns when the plugin does.
//   - If the program is killed, the plugin ends with it, and network.Client.Recover must clean up.
//   - The plugin sees the program's environment variables, except for the CNI_ variables, which the
//     call sets.
type Linked struct {
	// Plugins run in this process, selected by name; the last of several with the same name is
	// used. Package plugins/all lists all of Tenon's.
	Plugins []Definition

	// Accept, if it is set, makes Linked look up all plugins as files, delegates too. Linked then
	// runs a plugin in this process only if [Select] returns it for a file and Accept returns true
	// for the file's path; it executes all other files. Accept must support concurrent calls.
	Accept func(path string) bool

	// Log receives the output that plugins otherwise write to standard error. nil stands for
	// [slog.Default] or, if Accept is set, for a logger that writes to the Stderr of Process the
	// same lines as a plugin process.
	Log *slog.Logger

	// Process executes all other plugins, among them delegates of linked plugins.
	Process invoke.Process
}

// Call implements [invoke.Caller].
func (l Linked) Call(ctx context.Context, c invoke.Call) (invoke.Reply, error) {
	typ, linked := invoke.LinkedType(c.Path)
	d, found := l.definition(typ)
	if !linked {
		typ = filepath.Base(c.Path)
		if d, found = l.accepts(c); !found {
			return l.Process.Call(ctx, c)
		}
	}
	local := invoke.Local{}
	if found {
		local[typ] = d.handler(input{caller: l, log: l.log(), linked: true})
	}
	return local.Call(ctx, c)
}

// accepts returns the plugin in the list that can serve the call of a file, and false if there is
// none. A plugin that is called without a verb describes itself, which only a process can do.
func (l Linked) accepts(c invoke.Call) (Definition, bool) {
	if l.Accept == nil || c.Env.Command == "" {
		return Definition{}, false
	}
	d, ok := Select(l.Plugins, c.Path, c.Stdin)
	return d, ok && l.Accept(c.Path)
}

// log returns the logger of plugins; nil is [slog.Default].
func (l Linked) log() *slog.Logger {
	if l.Log != nil || l.Accept == nil {
		return l.Log
	}
	w := l.Process.Stderr
	if w == nil {
		w = os.Stderr
	}
	return slog.New(newLineHandler(w))
}

// Find implements [invoke.Finder].
func (l Linked) Find(paths []string, typ string) (string, error) {
	if _, ok := l.definition(typ); ok && l.Accept == nil {
		return invoke.LinkedPath(typ), nil
	}
	return invoke.Find(paths, typ)
}

func (l Linked) definition(typ string) (Definition, bool) { return byName(l.Plugins, typ) }
