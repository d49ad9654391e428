package plugin

import (
	"context"
	"log/slog"
	"slices"

	"github.com/tenon-cni/tenon/invoke"
)

// Linked calls the plugins that a program has linked in the process of that program, and executes all others. It is for
// runtimes that want the plugins of Tenon without their files, or without the start of a process: as the Caller of
// network.Client. Delegates of a linked plugin, such as host-local, go through the same Linked. The zero value executes all.
//
// A type that is linked in is never looked up: a file of that name in the plugin folders is not used, and what is said about
// executables elsewhere, such as which of them are allowed, does not apply to it. What is in Plugins is what is trusted.
//
// Requests, results, error objects and codes are those that the plugin has as a process. This is different:
//
//   - The program needs the privileges of a plugin: CAP_NET_ADMIN, and CAP_SYS_ADMIN to enter namespaces.
//   - The namespace of the host is that of the calling thread. It is never changed: what has to be done in another namespace
//     is done on other threads, none of which is left there. Neither are working directory, environment, umask, resource
//     limits and what happens on signals.
//   - A panic of the plugin is an error with code 999; its stack is in the log. One in a goroutine that a plugin
//     starts by itself ends the program, as it ends any: plugins of Tenon catch theirs.
//   - [invoke.Reply.Stderr] and [invoke.Error.Stderr] are empty: what the plugin says goes to Log and nowhere else.
//   - The end of the context cannot stop a plugin, but plugins see it: those of Tenon give up what they wait for and take
//     back what they did, for which they have 10 seconds a step. Call returns when the plugin does.
//   - Where the program is killed the plugin ends with it, and network.Client.Recover is due.
//   - The variables of the environment are those of the program, but for the CNI_ ones, of which plugins get the call's.
type Linked struct {
	Plugins []Definition // what is called in this process, by name; of namesakes the last. Package plugins/all has all of Tenon
	Log     *slog.Logger // where they log what they would write to standard error; nil is [slog.Default]

	Process invoke.Process // executes the others
}

// Call implements [invoke.Caller].
func (l Linked) Call(ctx context.Context, c invoke.Call) (invoke.Reply, error) {
	typ, linked := invoke.LinkedType(c.Path)
	if !linked {
		return l.Process.Call(ctx, c)
	}
	local := invoke.Local{}
	if d, ok := l.definition(typ); ok {
		local[typ] = d.handler(input{caller: l, log: l.Log, linked: true})
	}
	return local.Call(ctx, c)
}

// Find implements [invoke.Finder].
func (l Linked) Find(paths []string, typ string) (string, error) {
	if _, ok := l.definition(typ); ok {
		return invoke.LinkedPath(typ), nil
	}
	return invoke.Find(paths, typ)
}

func (l Linked) definition(typ string) (Definition, bool) {
	for _, d := range slices.Backward(l.Plugins) {
		if d.Name == typ {
			return d, true
		}
	}
	return Definition{}, false
}
