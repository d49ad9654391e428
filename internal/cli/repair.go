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
		Short: "Put back rules that a firewall has flushed",
		Long: `Puts back what plugins had in the ruleset of the host (nftables, iptables) and somebody has taken away: for
all recorded attachments, or those of some networks. Do it after "nft flush ruleset" and after a firewall
was started again. What refuses packets is back before, or together with, what lets them through; what is
there stays; doing it again changes nothing. Links, addresses and routes are not touched. Where a rule
in the nat table of iptables now decides about the traffic of an attachment, and the configuration
leaves the backend open, moves its host ports and masquerading from nftables to iptables.

Prints what was missing and moved, for each attachment and plugin. Attachments of all runtimes are repaired, by the
records in --state-dir and --cache-dir. What other plugins than Tenon's have lost cannot be put back: of
their attachments it is told what CHECK says. Waits for what is under way on the networks, but no longer
than --timeout.

To have it done whenever nftables or firewalld is reloaded or restarted, install the unit
contrib/systemd/tenon-repair.service of Tenon's source:
  cp tenon-repair.service /etc/systemd/system/
  systemctl daemon-reload
  systemctl enable --now tenon-repair.service`,
		Example: `  tenon repair
  tenon repair --dry-run
  tenon repair pods --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client := r.client()
			networks, err := r.recorded(client, args)
			if err != nil {
				return err
			}
			p := repairs{settings: r, client: client, dryRun: dryRun, entries: []repairEntry{}}
			waiting := time.AfterFunc(time.Second, func() {
				fmt.Fprintln(a.stderr, "waiting for what is under way on the networks")
			})
			passed, err := client.Repair(cmd.Context(), networks, func(ctx context.Context, calls []invoke.Call) error {
				waiting.Stop()
				return p.run(ctx, calls)
			})
			waiting.Stop()
			for _, u := range passed {
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
	r.jsonFlag(cmd, "print the list as JSON")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	cmd.ValidArgsFunction = r.completeRecorded
	return cmd
}

// recorded returns the names of networks given as arguments, of which something has to be recorded; nil if none is given.
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
			err := r.didYouMean(fmt.Errorf("nothing is recorded of a network %q", name), name, known)
			return nil, hint(err, r.command("see what is attached: ", "ps"))
		}
		names = append(names, name)
	}
	return names, nil
}

// recordedNetworks are the networks of all records that can be read.
func recordedNetworks(c *network.Client) (names []string) {
	records, _ := c.List() // Repair tells what cannot be read
	for _, x := range records {
		names = append(names, x.Attachment.Network)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeRecorded completes the names of networks of which something is recorded.
func (r *settings) completeRecorded(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	left := slices.DeleteFunc(recordedNetworks(r.client()), func(n string) bool { return slices.Contains(args, n) })
	return left, cobra.ShellCompDirectiveNoFileComp
}
