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
		Short: "Remove the plugins and everything they keep on this host",
		Long: `Removes the plugins that are this program from --plugin-dir, the nftables tables of Tenon, and the files that
only Tenon's plugins and "tenon add" use. Network configurations and address reservations stay: the upstream
plugins use them too. Other files in --plugin-dir are not touched.

Refuses while containers are attached, unless told what becomes of them:
  --keep-attachments  hand them over to the upstream plugins: masquerading, host ports and firewall rules are
                      made again in iptables, as the upstream plugins make them, before the nftables tables
                      are removed. Traffic goes on, and upstream's CHECK and DEL find what they expect.
                      Attachments of "tenon add" are written to --cache-dir, where libcni keeps its own.
  --detach            run DEL for the attachments of "tenon add" first; those of other runtimes stay in the way

Prints what it removes. Install the upstream plugins before or right after: until then a runtime finds none.`,
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
					a.warn("%s stays: it has records of other runtimes", r.stateDir)
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
	r.jsonFlag(cmd, "print what is removed, or a failure, as JSON")
	cmd.Flags().BoolVar(&request.Keep, "keep-attachments", false, "hand attachments over to the upstream plugins")
	cmd.Flags().BoolVar(&request.Detach, "detach", false, `detach what "tenon add" has attached`)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be removed")
	return cmd
}

// blocked returns an error if something is in the way of uninstalling.
func (r *settings) blocked(p *install.Plan) error {
	if len(p.Blockers) > 0 {
		return hint(cni.Errorf(cni.CodeInvalidConfig, "%s", strings.Join(p.Blockers, "\n")),
			r.command("detach what tenon add has attached instead: ", "uninstall", "--detach"))
	}
	attached := p.Blocked()
	if len(attached) == 0 {
		return nil
	}
	var keys []string
	for _, a := range attached {
		keys = append(keys, a.Record.Attachment.String())
	}
	err := cni.Errorf(cni.CodeTryAgainLater, "containers are attached: %s", strings.Join(keys, ", "))
	return hint(err,
		r.command("hand them over to the upstream plugins: ", "uninstall", "--keep-attachments"),
		r.command("detach what tenon add has attached: ", "uninstall", "--detach"))
}

// uninstallEntry is what becomes of an attachment.
type uninstallEntry struct {
	keyEntry
	Outcome install.Outcome `json:"fate"`
}

// uninstallReport is a plan as JSON.
type uninstallReport struct {
	Attachments []uninstallEntry `json:"attachments"`
	Plugins     []string         `json:"plugins"`
	Tables      []string         `json:"tables"`
	Paths       []string         `json:"paths"`
	Ends        []string         `json:"ends"`
	DryRun      bool             `json:"dryRun"`
}

func (r *settings) printUninstall(p *install.Plan, dryRun bool) error {
	if r.json {
		report := uninstallReport{
			Attachments: []uninstallEntry{}, Plugins: append([]string{}, p.Plugins...), Tables: append([]string{}, p.Tables...),
			Paths: append([]string{}, p.Paths...), Ends: append([]string{}, p.Ends...), DryRun: dryRun,
		}
		for _, a := range p.Attachments {
			report.Attachments = append(report.Attachments, uninstallEntry{keyEntry(a.Record.Attachment), a.Outcome})
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
	for _, what := range p.Ends {
		fmt.Fprintf(r.stdout, "%send %s: the upstream plugins have no counterpart\n", would, what)
	}
	for _, removed := range []struct {
		kind  string
		names []string
	}{{"plugin ", p.Plugins}, {"nftables table ", p.Tables}, {"", p.Paths}} {
		for _, name := range removed.names {
			fmt.Fprintf(r.stdout, "%sremove %s%s\n", would, removed.kind, name)
		}
	}
	if len(p.Attachments)+len(p.Plugins)+len(p.Tables)+len(p.Paths) == 0 {
		fmt.Fprintln(r.stdout, "nothing to remove")
	}
	return nil
}
