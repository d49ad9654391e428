// Package faults breaks plugins at each system call that changes something, and looks for
// leftovers. It knows binaries only: each runs under package tracer, where call number n kills the
// process, fails, or succeeds but reports an error. Then DEL, or GC alone, restores the complete
// state: both namespaces and the state directories.
package faults
