// Package faults breaks plugins at every system call that changes something, and looks whether anything is left. It
// sees executables only: each runs under ptrace, where call number n kills the process, fails, or succeeds but
// reports an error. Then DEL, or GC alone, has to restore the complete state: both namespaces and the state folders.
//
// strace's fault injection counts the calls of each thread on its own, which for a Go program means a different call in
// every run; the tracer here counts those of all threads and processes together and only the ones that change something.
package faults
