package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
)

// run runs the program with command-line arguments and returns the exit status: 0 for success, 1
// for failure, 2 for wrong usage.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	usage := true                // until a command runs
	cmd := dhcp.DaemonCommand(dhcp.Program, hold)
	cmd.PersistentPreRun = func(*cobra.Command, []string) { usage = false }
	cmd.Args, cmd.Version, cmd.SilenceErrors, cmd.SilenceUsage = cobra.NoArgs, version, true, true
	cmd.Example = `  tenon-dhcp
  tenon-dhcp --takeover
  tenon-dhcp --hostprefix /host --timeout 2s`
	cmd.CompletionOptions.DisableDefaultCmd = true
	wrapped := strings.ReplaceAll(cmd.UsageTemplate(), "LocalFlags.FlagUsages", "LocalFlags.FlagUsagesWrapped 80")
	cmd.SetUsageTemplate(wrapped)
	cmd.AddCommand(callUpstream())
	if len(args) > 0 && args[0] == "daemon" { // as in "dhcp daemon"
		args = args[1:]
	}
	cmd.SetArgs(dhcp.LongFlags(args))
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	object := cni.AsError(err)
	text := strings.ReplaceAll(strings.TrimSpace(object.Msg), "\n", "\n  and ")
	fmt.Fprintf(os.Stderr, "%s: %s\n", dhcp.Program, text)
	if usage {
		fmt.Fprintf(os.Stderr, "hint: %s --help\n", dhcp.Program)
		return 2
	}
	if text := hint(err); text != "" {
		fmt.Fprintf(os.Stderr, "hint: %s\n", text)
	}
	return 1
}

// hold runs the daemon.
func hold(ctx context.Context, o dhcp.DaemonOptions, _ []string) (err error) {
	level := slog.LevelInfo
	if o.Debug {
		level = slog.LevelDebug
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if o.Listener, err = activated(); err != nil {
		return err
	}
	return daemon.Run(ctx, o)
}

// hint returns advice if another daemon uses the socket, or "".
func hint(err error) string {
	switch {
	case errors.Is(err, daemon.ErrRuns), errors.Is(err, unix.EADDRINUSE):
		return "use --takeover to replace a running tenon-dhcp; " +
			"stop any other daemon, such as cni-dhcp.service of the upstream plugins"
	case errors.Is(err, dhcp.ErrUpstream):
		return "stop that daemon and its socket unit, start tenon-dhcp without --takeover, " +
			"and run CHECK for the containers: tenon-dhcp then renews their leases"
	}
	return ""
}

// activated returns the socket that systemd has opened (sd_listen_fds(3)), or nil if there is none.
func activated() (*os.File, error) {
	n := os.Getenv("LISTEN_FDS")
	if n == "" || n == "0" || os.Getenv("LISTEN_PID") != fmt.Sprint(os.Getpid()) {
		return nil, nil
	}
	if n != "1" {
		return nil, fmt.Errorf("expected one socket from systemd, found %s (LISTEN_FDS)", n)
	}
	return os.NewFile(3, "LISTEN_FDS"), nil
}

// callUpstream returns the command that [dhcp.Call] uses: it reads a request and writes the
// reply, both in JSON.
func callUpstream() *cobra.Command {
	return &cobra.Command{
		Use:    dhcp.UpstreamCommand + " SOCKET",
		Short:  "Make a request of the upstream plugin's daemon",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var q dhcp.Request
			if err := json.NewDecoder(os.Stdin).Decode(&q); err != nil {
				return err
			}
			r, err := daemon.CallUpstream(args[0], q)
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(r)
		},
	}
}
