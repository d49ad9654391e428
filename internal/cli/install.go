package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/program"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) install() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "install DIR",
		Short: "Install the built-in plugins into a plugin directory",
		Long: `Creates a hard link to the tenon binary for each built-in plugin or, if DIR is on
another file system, one copy and links to it. Tests each link with VERSION before
it atomically replaces a file of the same name. Installs tenon-dhcp, the DHCP
daemon, with the plugin dhcp. Attached containers are not affected. Running it
again changes nothing.`,
		Example: `  tenon install /opt/cni/bin
  tenon install /opt/cni/bin --only bridge,host-local`,
		Args: arguments(1, "DIR"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := a.selected(only)
			if err != nil {
				return err
			}
			done, err := install.Run(
				cmd.Context(),
				install.Request{Dir: args[0], Names: names, Programs: a.programs(names)},
			)
			rows := [][]string{{"PLUGIN", "STATE", "CNI"}}
			for _, p := range done {
				rows = append(
					rows,
					[]string{p.Name, string(p.Change), cmp.Or(strings.Join(p.Versions, ", "), "-")},
				)
			}
			if len(done) > 0 {
				if err := text.Table(a.stdout, rows); err != nil {
					return err
				}
			}
			return a.needsRoot(err)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil,
		"install only `NAMES`, separated by commas; repeatable (default: all)")
	_ = cmd.RegisterFlagCompletionFunc(
		"only",
		cobra.FixedCompletions(builtInNames(), cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

// programs returns the paths of other programs that the plugins need in their directory.
func (a *app) programs(plugins []string) []string {
	if !slices.Contains(plugins, "dhcp") {
		return nil
	}
	path, err := program.Find(dhcp.Program)
	if err != nil {
		a.warn("the plugin dhcp will not work without its daemon: %v", err)
		return nil
	}
	return []string{path}
}

// builtInNames returns the names of the built-in plugins.
func builtInNames() []string {
	names := make([]string, len(all.Plugins))
	for i, d := range all.Plugins {
		names[i] = d.Name
	}
	return names
}

// selected returns the plugins of --only, or all built-in plugins if it is empty.
func (a *app) selected(only []string) ([]string, error) {
	if len(only) == 0 {
		return builtInNames(), nil
	}
	for _, name := range only {
		if !slices.Contains(builtInNames(), name) {
			return nil, a.didYouMean(usagef("unknown plugin %q", name), name, builtInNames())
		}
	}
	return only, nil
}
