// Package invoke calls one plugin once: as a process ([Process]), in the same process ([Local]), or
// whichever of the two is right ([Auto]), with the same bytes in and out and the same errors. It finds
// executables the way the specification says ([Find]), and hands plugins the trace that a call is part of
// ([Trace]). For tests it has a caller that keeps what went over the border ([Recorder]) and one that needs
// no executables ([Fake]).
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
	Path  string  // the executable, as [Find] returns it, or that of [LinkedPath]
	Env   cni.Env // the CNI_* variables
	Stdin []byte  // the request

	// Joined keeps a process in the group of this one, for the delegates of a plugin: who stops the plugin's group stops
	// them with it. Otherwise a plugin gets a group of its own.
	Joined bool

	// Files stay open during the call whatever becomes of this program: a process has them open
	// too, from descriptor 3 on, and so do its descendants unless they close them. A [Handler]
	// passes them to its delegates. If a file is a lock and this program is killed, the lock ends
	// with the last of the processes. Windows passes no files: there [Process] ignores them.
	Files []*os.File
}

// Reply is what a plugin that succeeded had to say.
type Reply struct {
	Stdout []byte // for ADD a result, for VERSION a version reply, otherwise nothing of interest
	Stderr []byte // the last 4 KiB of what it wrote there; it has been passed on already
}

// Caller calls plugins. A failure is an [*Error]. Implementations are safe for concurrent use.
type Caller interface {
	Call(ctx context.Context, c Call) (Reply, error)
}

// Handler is a plugin in this process. It returns what a process would print; ok is false if that
// is an error object.
type Handler func(ctx context.Context, c Call) (stdout []byte, ok bool)
