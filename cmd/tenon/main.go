// Command tenon is the command line of Tenon. Started under the name of a plugin, or by a runtime, it
// acts as that plugin.
package main

import (
	"os"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/internal/cli"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// version is set when the binary is linked.
var version = "unknown"

func main() {
	judge.Main()
	os.Exit(run())
}

func run() int {
	caller := plugin.Caller(all.Plugins, os.Getenv("TENON_EXEC") == "always")
	if len(os.Args) > 1 && os.Args[1] == "daemon" {
		if d, ok := plugin.Select(all.Plugins, os.Args[0], nil); ok && d.Name == "dhcp" {
			return cli.RunDHCPDaemon(os.Args[2:], version, caller)
		}
	}
	if status, called := plugin.MainOf(all.Plugins, caller, all.Version(version)); called {
		return status
	}
	return cli.Run(os.Args[1:], version, caller)
}
