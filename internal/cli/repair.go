package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) repair() *cobra.Command {
	r := &settings{app: a}
	dryRun := false
	cmd := &cobra.Command{
		Use:   "repair [NETWORK ...]",
		Short: "Restore flushed rules and other lost objects",
		Long: `Restores missing rules of plugins in the host's ruleset (nftables, iptables), for
all recorded attachments or those of some networks. Run it after "nft flush
ruleset" and after a firewall has been restarted. Rules that deny traffic are
restored before, or together with, rules that allow it. Existing rules stay;
running it again changes nothing. Restores missing bridges, bridge ports, addresses,
routes and forwarding too, but no interface that was deleted in a container. If a
rule in the nat table of iptables now decides about the traffic of an attachment,
and the configuration leaves the backend open, moves host ports and masquerading
from nftables to iptables.

Prints what was missing and what was moved, for each attachment and plugin.
Repairs the attachments of all runtimes: those recorded in --state-dir, in the state
directories that other runtimes have registered in /run/tenon/state-dirs, and in
--cache-dir. Cannot repair rules of other plugins than Tenon's: reports what CHECK
finds for their attachments. Waits for operations in progress on the networks, but
no longer than --timeout.

To repair automatically, run "tenon watch", or install the unit
contrib/systemd/tenon-repair.service from Tenon's source, which runs "tenon repair"
whenever nftables or firewalld is reloaded or restarted:
  cp tenon-repair.service /etc/systemd/system/
  systemctl daemon-reload
  systemctl enable --now tenon-repair.service`,
		Example: `  tenon repair
  tenon repair --dry-run
  tenon repair pods --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client := r.client()
			if dryRun {
				client.Journal = network.NoJournal
			}
			networks, err := r.recorded(client, args)
			if err != nil {
				return err
			}
			p := repairs{settings: r, client: client, dryRun: dryRun, entries: []repairEntry{}}
			waiting := time.AfterFunc(time.Second, func() {
				fmt.Fprintln(a.stderr, "waiting for operations in progress on the networks")
			})
			skipped, err := client.Repair(
				cmd.Context(),
				networks,
				func(ctx context.Context, calls []invoke.Call) error {
					waiting.Stop()
					return p.run(ctx, calls)
				},
			)
			waiting.Stop()
			for _, u := range skipped {
				p.skip(u.Attachment, u.Err)
			}
			p.checkForeign(cmd.Context())
			if err := p.print(err == nil); err != nil {
				return err
			}
			return a.unfinished(cmd, r.explain(err, nil))
		},
	}
	r.clientFlags(cmd)
	r.outputFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be done, and change nothing")
	cmd.ValidArgsFunction = r.completeRecorded
	return cmd
}

// recorded returns the names of the networks given as arguments, nil if there are none. It returns
// an error if a network has no attachment records.
func (r *settings) recorded(c *network.Client, args []string) (names []string, err error) {
	known := recordedNetworks(c)
	for _, arg := range args {
		name := arg
		if isPath(arg) {
			n, err := r.load(arg)
			if err != nil {
				return nil, err
			}
			name = n.Name
		}
		if !slices.Contains(known, name) {
			err := r.didYouMean(
				fmt.Errorf("network %q has no attachment records", name),
				name,
				known,
			)
			return nil, hint(err, r.command("list attachments: ", "ps"))
		}
		names = append(names, name)
	}
	return names, nil
}

// recordedNetworks returns the names of the networks of all readable records.
func recordedNetworks(c *network.Client) (names []string) {
	records, _ := c.ListHost() // Repair reports unreadable records
	for _, x := range records {
		names = append(names, x.Attachment.Network)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeRecorded completes the names of networks that have attachment records.
func (r *settings) completeRecorded(
	_ *cobra.Command,
	args []string,
	_ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	left := slices.DeleteFunc(
		recordedNetworks(r.client()),
		func(n string) bool { return slices.Contains(args, n) },
	)
	return left, cobra.ShellCompDirectiveNoFileComp
}
