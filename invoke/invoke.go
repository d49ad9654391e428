// Package invoke performs a single call of a plugin: as a process ([Process]), in this process
// ([Local]), or in whichever of these ways fits ([Auto]), with the same input, output and errors.
// It finds binaries as the specification requires ([Find]), and passes the trace of a call on to
// plugins ([Trace]). For tests it provides a caller that records calls ([Recorder]) and one that
// needs no binaries ([Fake]).
//
// Package network (for runtimes) and package plugin (for delegation) decide which plugins to call,
// and in which order.
package invoke

import (
	"context"
	"os"

	"github.com/tenon-cni/tenon/cni"
)

// Call is one call of a plugin.
type Call struct {
	Path  string  // of the binary, from [Find] or [LinkedPath]
	Env   cni.Env // the CNI_* variables
	Stdin []byte  // the request

	// Joined keeps the process in the process group of this one. Use it for the delegates of a
	// plugin, so that a signal to the plugin's group stops them as well. Otherwise the plugin gets
	// its own group.
	Joined bool

	// Journaled declares that the caller records the operation itself, or that the call only examines
	// an attachment, so that a plugin of Tenon does not record it: [Process] sets TENON_JOURNAL=off in
	// the plugin's environment.
	Journaled bool

	// Files stay open during the call even if this program ends: the process inherits them from
	// descriptor 3 on, and so do its descendants unless they close them. A [Handler] passes them to
	// its delegates. If a file is a lock and this program is killed, the lock is released when the
	// last of these processes ends. [Process] ignores Files on Windows.
	Files []*os.File
}

// Reply is the output of a plugin that succeeded.
type Reply struct {
	Stdout []byte // for ADD a result, for VERSION a version reply, otherwise unspecified
	Stderr []byte // the last 4 KiB of standard error, which has been passed on already
}

// Caller calls plugins. A failure is an [*Error]. Implementations are safe for concurrent use.
type Caller interface {
	Call(ctx context.Context, c Call) (Reply, error)
}

// Handler implements a plugin in this process. It returns the output that a process would print; ok
// is false if that is an error object.
type Handler func(ctx context.Context, c Call) (stdout []byte, ok bool)
