// Package config reads network configurations from a directory as runtimes do, and keeps them up
// to date.
//
// [Discover] reads a configuration directory and reports whether and how each file is used.
// [Catalog.Lookup] finds a network even if other files are broken; [Load] fails if a file before
// the network is broken. A [Directory] watches a configuration directory and publishes a
// [Snapshot] of the networks in use; a file that is briefly broken, half-written or missing does
// not remove a working network. A [Policy] in the same directory names the plugins that a network
// must have and the binaries that may run.
//
// The package calls no plugin and stores nothing: package network does both with the networks
// that this package reads.
//
// # Systems
//
// The package works on Linux, macOS, FreeBSD and Windows. Only the Linux kernel reports changes of
// directories; on other systems a [Directory] reads them again every [Options.Rescan].
package config
