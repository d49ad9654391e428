package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/age"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/dhcp/rpc"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/invoke"
)

// RunDHCPDaemon runs the daemon as the plugin dhcp does when its first argument is "daemon"; args are the others. As in the
// reference plugin flags begin with one dash or two.
func RunDHCPDaemon(args []string, version string, caller invoke.Caller) int {
	full := []string{"dhcp-daemon"}
	for _, arg := range args {
		if len(arg) > 2 && arg[0] == '-' && arg[1] != '-' {
			arg = "-" + arg
		}
		full = append(full, arg)
	}
	return Run(full, version, caller)
}

func (a *app) dhcpDaemon() *cobra.Command {
	o := daemon.Options{}
	debug := false
	cmd := &cobra.Command{
		Use:   "dhcp-daemon",
		Short: "Hold the leases of the IPAM plugin dhcp",
		Long: `Gets leases from DHCP servers for the IPAM plugin dhcp, and renews them, until it is ended by SIGTERM or SIGINT.
The plugin, started as "dhcp daemon", does the same.

Leases are in files beside the socket (PATH.d). They are not given back when the daemon ends: the next one goes on
with those whose containers are still there. With --takeover it replaces one that runs, without a gap. A socket that
systemd has opened (LISTEN_FDS) is used instead of --socketpath, which still says where the files are.

Only root may use the socket. What happens is logged to standard error, as key=value.`,
		Example: `  tenon dhcp-daemon
  tenon dhcp-daemon --takeover
  tenon dhcp-daemon --hostprefix /host --timeout 2s`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if debug {
				level = slog.LevelDebug
			}
			o.Log = slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
			var err error
			if o.Listener, err = activated(); err != nil {
				return err
			}
			return explainDaemon(daemon.Run(cmd.Context(), o))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Socket, "socketpath", daemon.DefaultSocket, "listen on this `PATH`")
	f.StringVar(&o.HostPrefix, "hostprefix", "", "put this before the paths of the socket and of namespaces")
	f.StringVar(&o.PIDFile, "pidfile", "", "write the process ID to this `PATH`, which must be absolute")
	f.BoolVar(&o.TakeOver, "takeover", false, "replace a daemon that runs")
	f.BoolVar(&o.Broadcast, "broadcast", false, "have servers answer by broadcast")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Second, "wait so long for an answer, then twice and four times as long")
	f.DurationVar(&o.ResendMax, "resendmax", 62*time.Second, "wait at most so long between attempts to get a lease")
	f.DurationVar(&o.ResendTimeout, "resendtimeout", 208*time.Second, "fail when there is no lease after this time")
	f.BoolVar(&debug, "debug", false, "log each message too")
	return cmd
}

// explainDaemon says what helps where another daemon is in the way.
func explainDaemon(err error) error {
	switch {
	case errors.Is(err, daemon.ErrRuns), errors.Is(err, unix.EADDRINUSE):
		return hint(err, "--takeover replaces a daemon of Tenon that runs; end any other, such as cni-dhcp.service of the reference plugins")
	case errors.Is(err, rpc.ErrReference):
		return hint(err, "end that daemon and its socket unit, start this one without --takeover, and check the containers: then it renews their leases")
	}
	return err
}

// activated is the socket that systemd has opened (sd_listen_fds(3)), nil if it has not.
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

func (a *app) dhcp() *cobra.Command {
	cmd := parent(&cobra.Command{
		Use:     "dhcp",
		Short:   "Look at the leases of the DHCP daemon",
		Example: `  tenon dhcp list`,
	})
	cmd.AddCommand(a.dhcpList())
	return cmd
}

func (a *app) dhcpList() *cobra.Command {
	socket, asJSON := "", false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases",
		Long: `Lists what the DHCP daemon of this node has, with the state of each client: for how long the address is good,
and why it could not be prolonged, or was lost.`,
		Example: `  tenon dhcp list
  tenon dhcp list --json`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			path, err := filepath.Abs(socket)
			if err != nil {
				return err
			}
			r, err := rpc.Call(ctx, path, rpc.Request{Verb: rpc.List})
			if err != nil {
				return explainList(fmt.Errorf("DHCP daemon: %w", err), path)
			}
			if asJSON {
				return a.printJSON(append([]rpc.Lease{}, r.Leases...))
			}
			return a.printLeases(r.Leases)
		},
	}
	cmd.Flags().StringVar(&socket, "socketpath", daemon.DefaultSocket, "socket of the daemon")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list as JSON")
	return cmd
}

// explainList says what helps where the daemon does not answer.
func explainList(err error, socket string) error {
	switch {
	case errors.Is(err, rpc.ErrUnreachable):
		return hint(err, "start one: "+commandLine("tenon", []string{"dhcp-daemon", "--socketpath", socket}))
	case errors.Is(err, fs.ErrPermission):
		return hint(err, "only root may ask the daemon")
	}
	return err
}

func (a *app) printLeases(leases []rpc.Lease) error {
	rows := [][]string{{"ADDRESS", "NETWORK", "CONTAINER", "INTERFACE", "SERVER", "EXPIRES", "STATE"}}
	for _, l := range leases {
		var addresses []string
		for _, p := range l.Addresses {
			addresses = append(addresses, p.String())
		}
		expires := "never"
		if !l.Expires.IsZero() {
			expires = "in " + age.Text(time.Until(l.Expires))
		}
		if len(addresses) == 0 {
			addresses, expires = []string{"-"}, "-"
		}
		state := l.State
		if l.Reason != "" {
			state += ": " + l.Reason
		}
		rows = append(rows, []string{strings.Join(addresses, ","), l.Network, l.Container, l.IfName, cmp.Or(l.Server, "-"), expires, state})
	}
	return text.Table(a.stdout, rows)
}
