package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/internal/program"
	"github.com/tenon-cni/tenon/invoke"
)

// RunDHCPDaemon replaces the process with the daemon, as the plugin dhcp does if its first argument
// is "daemon". args are the arguments after that; flags may begin with one or two dashes, as for
// the upstream plugin.
func RunDHCPDaemon(args []string, version string, caller invoke.Caller) int {
	return Run(append([]string{"dhcp-daemon"}, dhcp.LongFlags(args)...), version, caller)
}

func (a *app) dhcpDaemon() *cobra.Command {
	cmd := dhcp.DaemonCommand(
		"dhcp-daemon",
		func(_ context.Context, _ dhcp.DaemonOptions, args []string) error {
			return execProgram(dhcp.Program, args)
		},
	)
	cmd.Args = arguments(0)
	cmd.Example = `  tenon dhcp-daemon
  tenon dhcp-daemon --takeover
  tenon dhcp-daemon --hostprefix /host --timeout 2s`
	return cmd
}

// execProgram replaces this process with another program of Tenon.
func execProgram(name string, args []string) error {
	err := program.Exec(name, args)
	var missing *program.MissingError
	if errors.As(err, &missing) {
		return hint(err, missing.Hint())
	}
	return err
}

func (a *app) dhcp() *cobra.Command {
	cmd := parent(&cobra.Command{
		Use:     "dhcp",
		Short:   "Show the leases of the DHCP daemon",
		Example: `  tenon dhcp list`,
	})
	cmd.AddCommand(a.dhcpList())
	return cmd
}

func (a *app) dhcpList() *cobra.Command {
	settings, socket := &settings{app: a}, ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases",
		Long: `Lists the leases of this node's DHCP daemon with the state of each client: how long
the address remains valid, and why it could not be renewed or was lost.`,
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
			r, err := dhcp.Call(ctx, path, dhcp.Request{Verb: dhcp.List})
			if err != nil {
				return explainList(fmt.Errorf("cannot query the DHCP daemon: %w", err), path)
			}
			return settings.print(
				append([]dhcp.Lease{}, r.Leases...),
				func() error { return a.printLeases(r.Leases) },
			)
		},
	}
	cmd.Flags().StringVar(&socket, "socketpath", dhcp.DefaultSocket,
		"use the daemon at socket `PATH`")
	settings.outputFlags(cmd)
	return cmd
}

// explainList adds a hint to the error that the daemon does not answer.
func explainList(err error, socket string) error {
	switch {
	case errors.Is(err, dhcp.ErrUnreachable):
		return hint(
			err,
			"start the daemon: "+commandLine(
				"tenon",
				[]string{"dhcp-daemon", "--socketpath", socket},
			),
		)
	case errors.Is(err, fs.ErrPermission):
		return hint(err, "run it as root: only root may use the socket")
	}
	return err
}

func (a *app) printLeases(leases []dhcp.Lease) error {
	rows := [][]string{
		{"ADDRESS", "NETWORK", "CONTAINER", "INTERFACE", "SERVER", "EXPIRES", "STATE"},
	}
	for _, l := range leases {
		var addresses []string
		for _, p := range l.Addresses {
			addresses = append(addresses, p.String())
		}
		expires := "never"
		if !l.Expires.IsZero() {
			expires = "in " + ipam.FormatAge(time.Until(l.Expires))
		}
		if len(addresses) == 0 {
			addresses, expires = []string{"-"}, "-"
		}
		state := l.State
		if l.Reason != "" {
			state += ": " + l.Reason
		}
		rows = append(
			rows,
			[]string{
				strings.Join(addresses, ","),
				l.Network,
				l.Container,
				l.IfName,
				cmp.Or(l.Server, "-"),
				expires,
				state,
			},
		)
	}
	return table.Write(a.stdout, rows)
}
