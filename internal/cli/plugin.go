package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) plugin() *cobra.Command {
	return &cobra.Command{
		Use:   "plugin [NAME]",
		Short: "Run a plugin of Tenon, or list them",
		Long: `Runs a plugin of Tenon as a runtime does: reads CNI_ variables from the
environment and the request from standard input, and prints the result or error
on standard output. Runs the program tenon-ovs for ovs; all other plugins are built
in. Without NAME, lists the plugins.`,
		Example: `  tenon plugin
  echo '{"cniVersion": "1.1.0"}' | CNI_COMMAND=VERSION tenon plugin bridge`,
		Args: arguments(0, "NAME"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return pluginNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listPlugins()
			}
			for _, d := range all.Plugins {
				if d.Name != args[0] {
					continue
				}
				if status := plugin.Main(d, a.plain, all.Version(a.version)); status != 0 {
					return exitStatus(status)
				}
				return nil
			}
			if p, ok := all.FindProgram(args[0]); ok {
				return execProgram(p.Program, nil)
			}
			return a.didYouMean(usagef("unknown plugin %q", args[0]), args[0], pluginNames())
		},
	}
}

func (a *app) listPlugins() error {
	rows := [][]string{{"PLUGIN", "CNI", "CAPABILITIES", "PURPOSE"}}
	for _, d := range all.Described() {
		first, last := d.Versions[0], d.Versions[len(d.Versions)-1]
		rows = append(
			rows,
			[]string{
				d.Name,
				first.String() + " to " + last.String(),
				strings.Join(d.Capabilities, ", "),
				d.About,
			},
		)
	}
	return table.Write(a.stdout, rows)
}
