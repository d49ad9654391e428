package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) netRm() *cobra.Command {
	r := &settings{app: a}
	q := netconf.Removal{}
	cmd := &cobra.Command{
		Use:   "rm NETWORK",
		Short: "Remove a network",
		Long: `Removes the configuration file of a network and the objects that only this
network uses: its bridge if it has no ports and no foreign addresses, the
directory of host-local's reservations if none is left, and the directory of
drop-in files if it is empty. Prints what it removes, what it keeps, and why.

Refuses while containers of any runtime of this host are attached; --detach detaches
them first.`,
		Example: `  tenon net rm pods --dry-run
  tenon net rm pods
  tenon net rm pods --detach --drop-ins`,
		Args:              arguments(1, "NETWORK"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.Catalog, err = config.Discover(r.netDir); err != nil {
				return r.needsRoot(err)
			}
			q.Client, q.Name = r.client(), args[0]
			steps := []netconf.Step{}
			err = netconf.Remove(cmd.Context(), q, func(s netconf.Step) {
				steps = append(steps, s)
				if !r.output.Structured() {
					fmt.Fprintln(a.stdout, stepText(s, q.DryRun))
				}
			})
			if r.output.Structured() && (err == nil || len(steps) > 0) {
				if err := r.printValue(steps); err != nil {
					return err
				}
			}
			if len(steps) > 0 {
				if again, _, lookUpErr := q.Catalog.Lookup(q.Name); lookUpErr == nil && !q.DryRun {
					a.warnShadowed(again, r.netDir)
				}
				return a.unfinished(cmd, r.explain(err, nil))
			}
			return r.notRemoved(err, q)
		},
	}
	r.clientFlags(cmd)
	r.outputFlags(cmd)
	cmd.Flags().BoolVar(&q.Detach, "detach", false, "detach containers first")
	cmd.Flags().BoolVar(&q.DropIns, "drop-ins", false,
		"also remove the drop-in files of the network")
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false,
		"print what would be removed, and change nothing")
	return cmd
}

func stepText(s netconf.Step, dryRun bool) string {
	verb := map[bool]string{false: "removed", true: "would remove"}[dryRun]
	if s.Kind == "attachment" {
		verb = map[bool]string{false: "detached", true: "would detach"}[dryRun]
	}
	if s.Kept != "" {
		return fmt.Sprintf("kept %s %s: %s", s.Kind, s.Object, s.Kept)
	}
	return fmt.Sprintf("%s %s %s", verb, s.Kind, s.Object)
}

// warnShadowed warns if another file has the name of the network that was removed.
func (a *app) warnShadowed(removed *config.Network, dir string) {
	c, err := config.Discover(dir)
	if err != nil {
		return
	}
	if n, _, err := c.Lookup(removed.Name); err == nil {
		a.warn("%s is now the configuration of network %s", n.Source, n.Name)
	}
}

// notRemoved adds hints to the error of a removal that has changed nothing.
func (r *settings) notRemoved(err error, q netconf.Removal) error {
	attached := (*netconf.AttachedError)(nil)
	switch {
	case errors.As(err, &attached):
		err = cni.Errorf(cni.CodeTryAgainLater, "network %s: %w", q.Name, err)
		return hint(
			err,
			r.again("detach them first: ", "--detach"),
			r.command("list attachments: ", "ps"),
		)
	case errors.Is(err, config.ErrNotFound):
		return hint(
			r.didYouMean(cni.Errorf(cni.CodeInvalidConfig, "%w", err), q.Name, names(q.Catalog)),
			r.elsewhere(),
		)
	}
	return r.explain(err, nil)
}
