package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/install"
)

func (a *app) uninstall() *cobra.Command {
	r := &settings{app: a}
	var request install.Removal
	dryRun := false
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the plugins and all their state from this host",
		Long: `Removes Tenon's plugins from --plugin-dir, Tenon's nftables tables, and the files
that only Tenon's plugins and "tenon add" use. Keeps network configurations and
address reservations, because the upstream plugins use them too. Does not touch
other files in --plugin-dir. Restores the files that a package of Tenon ("tenon
install --system") replaced in the plugin directories of the host.

Refuses while containers are attached, unless one of these flags is given:
  --keep-attachments  hand attachments over to the upstream plugins: recreate
                      masquerading, host ports and firewall rules in iptables,
                      as the upstream plugins create them, before the nftables
                      tables are removed. Traffic continues, and upstream CHECK
                      and DEL find what they expect. Writes the attachments of
                      "tenon add" to --cache-dir, as libcni does.
  --detach            run DEL for the attachments of "tenon add" first;
                      attachments of other runtimes still block

Prints what it removes. Install the upstream plugins before or directly afterwards:
until then, runtimes find no plugins.`,
		Example: `  tenon uninstall --dry-run
  tenon uninstall --keep-attachments
  tenon uninstall --detach`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if request.Lists, err = r.lists(); err != nil {
				return r.needsRoot(err)
			}
			request.Client = r.client()
			request.Host = systemHost()
			p, err := install.PlanRemoval(cmd.Context(), request)
			if err != nil {
				return r.explain(err, nil)
			}
			blocked := r.blocked(p)
			if blocked == nil && !dryRun {
				if err := p.Run(cmd.Context()); err != nil {
					return r.explain(err, nil)
				}
				done, err := p.Finish()
				if err != nil {
					return r.explain(err, nil)
				}
				if !done {
					a.warn("kept %s: it contains records of other runtimes", r.stateDir)
				}
			}
			if blocked == nil || dryRun {
				if err := r.printUninstall(p, dryRun); err != nil {
					return err
				}
			}
			return blocked
		},
	}
	r.clientFlags(cmd)
	r.jsonFlag(cmd)
	cmd.Flags().BoolVar(&request.Keep, "keep-attachments", false,
		"hand attachments over to the upstream plugins")
	cmd.Flags().BoolVar(&request.Detach, "detach", false,
		`detach the attachments of "tenon add" first`)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"print what would be removed, and change nothing")
	return cmd
}

// blocked returns an error if the plan cannot be carried out.
func (r *settings) blocked(p *install.Plan) error {
	if len(p.Blockers) > 0 {
		return hint(cni.Errorf(cni.CodeInvalidConfig, "%s", strings.Join(p.Blockers, "\n")),
			r.command("detach the attachments of tenon add instead: ", "uninstall", "--detach"))
	}
	attached := p.Blocked()
	if len(attached) == 0 {
		return nil
	}
	var keys []string
	for _, a := range attached {
		keys = append(keys, a.Record.Attachment.String())
	}
	err := cni.Errorf(
		cni.CodeTryAgainLater,
		"containers are attached: %s",
		strings.Join(keys, ", "),
	)
	return hint(err,
		r.command("hand them over to the upstream plugins: ", "uninstall", "--keep-attachments"),
		r.command("detach the attachments of tenon add: ", "uninstall", "--detach"))
}

// uninstallEntry is an attachment and its outcome as JSON.
type uninstallEntry struct {
	keyEntry
	Outcome install.Outcome `json:"fate"`
}

// uninstallReport is a plan as JSON.
type uninstallReport struct {
	Attachments []uninstallEntry `json:"attachments"`
	Plugins     []string         `json:"plugins"`
	Links       []string         `json:"links"`
	Tables      []string         `json:"tables"`
	Paths       []string         `json:"paths"`
	Ends        []string         `json:"ends"`
	DryRun      bool             `json:"dryRun"`
}

func (r *settings) printUninstall(p *install.Plan, dryRun bool) error {
	if r.json {
		report := uninstallReport{
			Attachments: []uninstallEntry{}, Plugins: append([]string{}, p.Plugins...), Tables: append([]string{}, p.Tables...),
			Links: append([]string{}, p.Links...),
			Paths: append(
				[]string{},
				p.Paths...), Ends: append([]string{}, p.Ends...), DryRun: dryRun,
		}
		for _, a := range p.Attachments {
			report.Attachments = append(
				report.Attachments,
				uninstallEntry{keyEntry(a.Record.Attachment), a.Outcome},
			)
		}
		return r.printJSON(report)
	}
	would := ""
	if dryRun {
		would = "would "
	}
	for _, a := range p.Attachments {
		fmt.Fprintf(r.stdout, "%s%s %v\n", would, a.Outcome, a.Record.Attachment)
	}
	for _, protection := range p.Ends {
		fmt.Fprintf(
			r.stdout,
			"%send %s: the upstream plugins have no counterpart\n",
			would,
			protection,
		)
	}
	for _, removed := range []struct {
		kind  string
		names []string
	}{{"plugin ", p.Plugins}, {"link ", p.Links}, {"nftables table ", p.Tables}, {"", p.Paths}} {
		for _, name := range removed.names {
			fmt.Fprintf(r.stdout, "%sremove %s%s\n", would, removed.kind, name)
		}
	}
	if len(p.Attachments)+len(p.Plugins)+len(p.Links)+len(p.Tables)+len(p.Paths) == 0 {
		fmt.Fprintln(r.stdout, "nothing to remove")
	}
	return nil
}
