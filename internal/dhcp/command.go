package dhcp

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// DaemonOptions are the flags of the daemon, and options for its tests. The comments of the fields
// name their defaults, which zero stands for.
type DaemonOptions struct {
	Socket     string   // /run/cni/dhcp.sock
	HostPrefix string   // prefix of paths, if a container mounts the host's file system there
	PIDFile    string   // absolute, or empty for none
	Listener   *os.File // opened by systemd, or nil: the daemon opens one
	TakeOver   bool     // replace a running daemon
	Debug      bool     // log each message

	Broadcast     bool          // ask servers to answer by broadcast
	Timeout       time.Duration // wait after the first transmission of a message, 10 s
	ResendMax     time.Duration // longest pause between attempts to get a lease, 62 s
	ResendTimeout time.Duration // limit for getting the first lease, 208 s
	LookEvery     time.Duration // between checks of the interfaces and addresses, 1 min

	Log *slog.Logger
}

// DaemonCommand returns the command with the flags of the daemon. Its name is use.
func DaemonCommand(
	use string, run func(context.Context, DaemonOptions, []string) error,
) *cobra.Command {
	o := DaemonOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: "Run the daemon of the IPAM plugin dhcp",
		Long: `Obtains and renews leases from DHCP servers for the IPAM plugin dhcp, until
SIGTERM or SIGINT. "tenon-dhcp" is the program; "tenon dhcp-daemon" and the
plugin, as "dhcp daemon", start it.

Keeps leases in files in the directory PATH.d next to the socket. Does not
release them when it ends: the next daemon continues with the leases of
containers that still exist. With --takeover, replaces a running daemon
without interruption. Uses a socket from systemd (LISTEN_FDS) instead of
--socketpath, which still names the directory of the files.

Only root may use the socket. Logs to standard error, as key=value.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o, setFlags(cmd.Flags()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Socket, "socketpath", DefaultSocket, "listen on socket `PATH`")
	f.StringVar(&o.HostPrefix, "hostprefix", "",
		"prefix for the paths of the socket and of namespaces")
	f.StringVar(&o.PIDFile, "pidfile", "",
		"write the process ID to the absolute path `PATH`")
	f.BoolVar(&o.TakeOver, "takeover", false, "replace a running daemon")
	f.BoolVar(&o.Broadcast, "broadcast", false, "ask servers to answer by broadcast")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Second,
		"wait for an answer; retries wait two and four times as long")
	f.DurationVar(&o.ResendMax, "resendmax", 62*time.Second,
		"longest wait between attempts to get a lease")
	f.DurationVar(&o.ResendTimeout, "resendtimeout", 208*time.Second,
		"give up on a lease after this time")
	f.BoolVar(&o.Debug, "debug", false, "log each message")
	return cmd
}

// setFlags returns the flags that are set, as arguments for another process.
func setFlags(f *pflag.FlagSet) (args []string) {
	f.Visit(func(f *pflag.Flag) { args = append(args, "--"+f.Name+"="+f.Value.String()) })
	return args
}

// LongFlags adds a second dash to flags with one dash, because the upstream plugin accepts both.
func LongFlags(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if len(arg) > 2 && arg[0] == '-' && arg[1] != '-' {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}
