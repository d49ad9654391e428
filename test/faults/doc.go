// Package faults breaks runtimes and their chains of plugins at system calls that change something,
// and looks for leftovers. It knows programs only: each runs under package tracer, where call number
// n kills a process or fails. Then the next runtime recovers, which restores the complete state:
// all namespaces and the state directories. Package plugintest breaks single plugins.
package faults
