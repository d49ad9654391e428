// Command tenon-cluster is the agent of a node of a cluster, and the commands with which an
// operator looks at a cluster and changes it. It is a separate program in a module of its own,
// because the client of etcd would slow the start of every plugin.
package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/command"
)

// version is set when the program is linked.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }

// run runs the program with command-line arguments and returns the exit status.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	return command.Run(ctx, args, command.Environment{
		Version: version,
		Lookup:  os.LookupEnv,
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Agent:   runAgent,
		Remove:  removeRoutes,
	})
}
