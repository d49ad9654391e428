// Command tenon is the command line of Tenon. Started under the name of a plugin, it acts as that
// plugin.
package main

import (
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/internal/cli"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// version is set when the binary is linked.
var version = "unknown"

func main() { os.Exit(run(filepath.Base(os.Args[0]))) }

func run(name string) int {
	caller := plugin.Caller(all.Plugins, os.Getenv("TENON_EXEC") == "always")
	if name == "dhcp" && len(os.Args) > 1 && os.Args[1] == "daemon" {
		return cli.RunDHCPDaemon(os.Args[2:], version, caller)
	}
	for _, d := range all.Plugins {
		if d.Name == name {
			return plugin.Main(d, caller, version)
		}
	}
	return cli.Run(os.Args[1:], version, caller)
}
