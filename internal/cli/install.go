package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) install() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "install DIR",
		Short: "Install the built-in plugins into a plugin folder",
		Long: `Makes a hard link to this executable for each plugin it holds, or one copy with links to it where
DIR is on another file system. Each is asked for its VERSION before it appears, at once, in place of
what had its name. With dhcp comes tenon-dhcp, the program of its daemon. Containers that are attached
are not affected. Doing it again changes nothing.`,
		Example: `  tenon install /opt/cni/bin
  tenon install /opt/cni/bin --only bridge,host-local`,
		Args: arguments(1, "DIR"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := selected(only)
			if err != nil {
				return err
			}
			done, err := install.Run(cmd.Context(), install.Request{Dir: args[0], Names: names, Programs: a.programs(names)})
			rows := [][]string{{"PLUGIN", "STATE", "CNI"}}
			for _, p := range done {
				rows = append(rows, []string{p.Name, string(p.Change), cmp.Or(strings.Join(p.Versions, ", "), "-")})
			}
			if len(done) > 0 {
				if err := text.Table(a.stdout, rows); err != nil {
					return err
				}
			}
			return a.needsRoot(err)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "install only `NAMES`, separated by commas; repeatable (default: all)")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(builtInNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// programs returns the programs that some plugins need in their directory.
func (a *app) programs(plugins []string) []string {
	if !slices.Contains(plugins, "dhcp") {
		return nil
	}
	path, err := dhcp.FindProgram()
	if err != nil {
		a.warn("\"dhcp daemon\" will not work: %v", err)
		return nil
	}
	return []string{path}
}

// builtInNames are the names of the built-in plugins.
func builtInNames() []string {
	names := make([]string, len(all.Plugins))
	for i, d := range all.Plugins {
		names[i] = d.Name
	}
	return names
}

// selected returns the built-in plugins that are asked for, all if none is.
func selected(only []string) ([]string, error) {
	if len(only) == 0 {
		return builtInNames(), nil
	}
	for _, name := range only {
		if !slices.Contains(builtInNames(), name) {
			return nil, unknown("plugin", name, builtInNames())
		}
	}
	return only, nil
}
