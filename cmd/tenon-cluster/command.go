package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/command"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/daemon"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
)

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
		Remove:  daemon.RemoveRoutes,
		Agent: func(ctx context.Context, s settings.Settings, log *slog.Logger) error {
			return daemon.Run(ctx, s, log, os.Getenv("NOTIFY_SOCKET"))
		},
	})
}
