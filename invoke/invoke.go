// Package invoke calls one plugin once: as a process ([Process]), in the same process ([Local]), or
// whichever of the two is right ([Auto]), with the same bytes in and out and the same errors. It
// finds executables the way the specification says ([Find]), and hands plugins the trace that a
// call is part of ([Trace]). For tests it has a caller that keeps what went over the border
// ([Recorder]) and one that needs no executables ([Fake]).
//
// What to call and in which order is the business of package network (runtimes) and package plugin
// (delegation).
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
