// Package config reads network configurations from a directory as runtimes do, and keeps them up to date.
//
// [Discover] reads a configuration directory and reports for every file whether and how it is used; [Catalog.Lookup]
// finds a network even if other files are broken, [Load] only if no file before it is broken. A [Directory] watches a
// configuration directory and publishes a [Snapshot] of the networks in use; a file that is broken, half-written or
// missing for a moment does not remove a working network. A [Policy] beside the networks names the plugins that a
// network must have, and the executables that may run.
//
// The package calls no plugin and stores nothing: package network does both with the networks that this package reads.
//
// # Systems
//
// The package works on Linux, macOS, FreeBSD and Windows. Only on Linux the kernel reports changes of directories;
// elsewhere a [Directory] reads them again every [Options.Rescan].
package config
