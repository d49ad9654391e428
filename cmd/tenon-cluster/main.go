// Command tenon-cluster is the agent of a node of a cluster, and the commands with which an
// operator looks at a cluster and changes it. It is a separate program in a module of its own,
// because the client of etcd would slow the start of every plugin.
package main

import (
	"os"

	"github.com/tenon-cni/tenon/plugin"
)

// version is set when the program is linked.
var version = "unknown"

func main() {
	// Runtimes and tools may call any file in the plugin directory.
	if status, called := plugin.MainOf(nil, nil, version); called {
		os.Exit(status)
	}
	os.Exit(run(os.Args[1:]))
}
