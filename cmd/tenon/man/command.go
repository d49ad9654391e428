package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/cli"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/manual"
	"github.com/tenon-cni/tenon/plugins/all"
)

// tenon describes the command tenon.
func tenon() manual.Program {
	root := cli.Root("")
	root.Long += "\n\nPlugins: " + plugins() + "."
	return manual.Program{
		Command: root,
		Common:  cli.CommonFlag,
		Status: []manual.Entry{
			{Name: "0", Text: "Success."},
			{Name: "1", Text: "Failure. Standard error has the reason and a hint."},
			{Name: "2", Text: "Wrong usage."},
		},
		Files: []manual.Entry{
			{Name: "/etc/cni/net.d", Text: "Network configurations (--net-dir)."},
			{Name: "/opt/cni/bin", Text: "Plugins that runtimes run (--plugin-dir)."},
			{Name: "/usr/lib/tenon/cni", Text: "The plugins of the package."},
			{Name: "/var/lib/cni/tenon", Text: "Records of attachments and locks (--state-dir)."},
			{Name: "/var/lib/cni/results", Text: "Attachments of runtimes with libcni."},
			{Name: "/var/lib/cni/networks", Text: "Address reservations of host-local."},
			{Name: "/run/tenon/state-dirs", Text: "Links to the state directories of all runtimes."},
		},
		SeeAlso: []string{"tenon-dhcp(8)", "tenon-ovs(8)", "tenon-cluster(8)", "nft(8)",
			"ip-netns(8)"},
		Foreign: []string{"tenon-cluster", "tenon-dhcp"},
	}
}

// plugins lists the plugins in the program by name.
func plugins() string {
	var names []string
	for _, d := range all.Plugins {
		names = append(names, d.Name)
	}
	return strings.Join(names, ", ")
}

// daemon describes the DHCP daemon.
func daemon() manual.Program {
	cmd := dhcp.DaemonCommand(
		dhcp.Program,
		func(context.Context, dhcp.DaemonOptions, []string) error { return nil },
	)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.Example = fmt.Sprintf("  %[1]s\n  %[1]s --takeover\n  systemctl enable --now %[1]s.socket %[1]s.service",
		dhcp.Program)
	return manual.Program{
		Command: cmd,
		Status: []manual.Entry{
			{Name: "0", Text: "Ended by SIGTERM or SIGINT, or replaced by a daemon with --takeover."},
			{Name: "1", Text: "Failure, for example because another daemon uses the socket."},
			{Name: "2", Text: "Wrong usage."},
		},
		Environment: []manual.Entry{
			{Name: "LISTEN_FDS, LISTEN_PID", Text: "The socket from systemd; see sd_listen_fds(3)."},
		},
		Files: []manual.Entry{
			{Name: dhcp.DefaultSocket, Text: "The socket; only root may use it."},
			{Name: dhcp.DefaultSocket + ".d", Text: "Leases, one file for each attachment."},
		},
		SeeAlso: []string{"tenon(8)", "tenon-dhcp-list(8)", "tenon-dhcp-daemon(8)"},
	}
}

// vswitch describes the program of the plugin ovs, which has no commands.
func vswitch() manual.Program {
	cmd := &cobra.Command{
		Use:   "tenon-ovs",
		Short: "Attach containers to bridges of Open vSwitch",
		Run:   func(*cobra.Command, []string) {},
		Long: `The CNI plugin "ovs". Runtimes run it under the name ovs: "tenon install" links
it, and the package installs /usr/lib/tenon/cni/ovs. A call is described by the
variables CNI_* and a configuration on standard input, as the CNI specification
says; "tenon plugin ovs" makes one by hand. It talks to the database of Open vSwitch
through its socket and runs no other program.`,
		Example: `  tenon net new lan --type ovs --master br0 --subnet 10.7.0.0/24 --stdout
  tenon plugin ovs --help`,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	return manual.Program{
		Command: cmd,
		Status: []manual.Entry{
			{Name: "0", Text: "Success. Standard output has the result."},
			{Name: "1", Text: "Failure. Standard output has an error object of CNI."},
		},
		Files: []manual.Entry{
			{Name: "/run/openvswitch/db.sock", Text: "The database of Open vSwitch."},
		},
		SeeAlso: []string{"tenon(8)", "tenon-net-new(8)", "ovs-vswitchd(8)", "ovs-vsctl(8)"},
	}
}
