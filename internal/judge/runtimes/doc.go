// Package runtimes judges runtimes: it starts a driver of the runtime with networks of scripted
// plugins, and derives the verdicts from the calls that these plugins record. It mirrors package
// plugins, which judges the other side.
//
// A driver is a program with one argument, the verb, and an object on standard input, see [Verb].
package runtimes
