// Command tenon-ovs is the plugin ovs. It is installed under the name ovs. It is a program of its
// own, because the client of the Open vSwitch database would slow the start of every plugin.
package main

import (
	"os"

	"github.com/tenon-cni/tenon/cmd/tenon-ovs/internal/vswitch"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	_ "github.com/tenon-cni/tenon/plugins/all/link" // registers the IPAM plugins
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// version is set when the program is linked.
var version = "unknown"

func main() { os.Exit(run()) }

func run() int {
	p := ovs.Define(vswitch.Dial)
	if len(os.Args) == 2 && os.Args[1] == ovs.RepairCommand {
		return restore(p)
	}
	return plugin.Main(p, delegates(invoke.Process{}), version)
}

// delegates returns the caller of IPAM plugins. It runs them in this process if their files are
// Tenon's, and executes all other files with p.
func delegates(p invoke.Process) invoke.Caller { return invoke.Linked(p) }
