// Package tracer runs a program under ptrace(2) and makes one of the system calls fail that change
// something outside the process. It counts the calls of all threads and child processes together,
// so that the same number means the same call in each run; strace counts each thread separately.
package tracer

import "syscall"

// Supported returns an error if [Trace] cannot work here: the architecture has no tracer, or the
// kernel does not allow it.
func Supported() error { return traceable() }

// Effect is the effect of a fault on a system call.
type Effect int

const (
	None      Effect = iota
	Kill             // SIGKILL to the process before the call is executed
	Terminate        // SIGTERM to the process; the call is executed
	Fail             // the call is not executed and returns the error
	Lose             // the call is executed but returns the error
)

func (e Effect) String() string {
	return [...]string{"nothing", "SIGKILL before", "SIGTERM at", "error from",
		"error after the success of"}[e]
}

// Fault is one fault of a run.
type Fault struct {
	Effect Effect
	N      int  // index of the affected change, counted from 0 over all threads and processes
	First  bool // count only the changes of the first process
}

// Change is a system call that changes something outside the process, or the step before such a
// call.
type Change struct {
	Name  string        // the call and its object, without details that differ from run to run
	Path  string        // the changed file; empty if the call changes none
	Errno syscall.Errno // of the call on a host at its limits; 0: the call never fails
	Reply bool          // the outcome arrives in a separate message, which can be lost
}

// Result is the name of the change that writes the result of a plugin to its standard output.
const Result = "write result"

// Run is the record of one run.
type Run struct {
	Changes []Change
	Hit     bool // the fault took place
	Killed  bool // by a signal
	Code    int  // exit status; -1 if Killed
	Stdout  []byte
	Stderr  []byte
}
