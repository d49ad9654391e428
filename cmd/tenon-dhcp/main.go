// Command tenon-dhcp is the daemon of the IPAM plugin dhcp. It is a separate program, because
// its libraries would slow the start of every plugin.
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
