package cli

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) netShow() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "show NETWORK",
		Short: "Print the effective configuration of a network",
		Long: `Prints the configuration of a network as it runs: with the plugins of drop-in
files, and in the CNI version that the plugins support, if they can be asked. The
output can replace the original file. Prints the source of each plugin on standard
error.

NETWORK is the name of a network in --net-dir, or the path of a file (with a
slash).`,
		Example: `  tenon net show pods
  tenon net show pods 2>/dev/null | jq .plugins`,
		Args:              arguments(1, "NETWORK"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := r.load(args[0])
			if err != nil {
				return err
			}
			if n, err = asRun(cmd.Context(), r.client(), n); err != nil {
				a.warn("showing the newest offered version: %v", err)
			}
			b, err := n.MarshalJSON()
			if err != nil {
				return err
			}
			var out bytes.Buffer
			if err := json.Indent(&out, b, "", "  "); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(a.stdout, out.String()); err != nil {
				return err
			}
			return r.printSources(n)
		},
	}
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.stateDirFlag(cmd)
	return cmd
}

func (r *settings) printSources(n *config.Network) error {
	for i, typ := range n.Types() {
		if _, err := fmt.Fprintf(r.stderr, "plugin %s is from %s\n", typ, n.PluginSource(i)); err != nil {
			return err
		}
	}
	return nil
}
