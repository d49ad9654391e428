// Package link makes a program run Tenon's plugins in its own process. A program opts in with a
// blank import:
//
//	import _ "github.com/tenon-cni/tenon/plugins/all/link"
//
// The import registers the plugins of package plugins/all with [invoke.RegisterLinked]. Callers of
// [invoke.Linked] then look plugins up as files as before, and run a plugin in this process if its
// file is Tenon's and [plugin.Select] finds it; delegates such as host-local too. They execute all
// other files. Programs that use libcni need no other change if their go.mod replaces
// github.com/containernetworking/cni with Tenon's module compat/cni. [plugin.Linked] describes how
// a call in this process differs from a process.
//
// A file is Tenon's if it is executable, and its Go build information names the main package
// github.com/tenon-cni/tenon/cmd/tenon. Its version does not matter: the program runs the plugins
// that it was built with, even if the installed file is newer or older.
//
// Reading the build information of a file takes about 40 µs if it is in the page cache, and up to
// a few milliseconds if it is not or if the program is not written in Go. The answer is kept for
// the file's device, inode, size, and times of modification and change, so it applies to all links
// to the file, and a replaced file is read again. Later calls need one stat(2), about 2 µs.
//
// The environment variable TENON_EXEC=always switches this package off. On systems other than Linux
// the package does nothing.
package link
