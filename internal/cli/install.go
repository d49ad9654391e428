package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/internal/program"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) install() *cobra.Command {
	var only []string
	system := false
	cmd := &cobra.Command{
		Use:   "install DIR | --system",
		Short: "Install the plugins into a plugin directory",
		Long: `Creates a hard link to the tenon binary for each built-in plugin or, if DIR is on
another file system, one copy and links to it. Tests each link with VERSION before
it atomically replaces a file of the same name; keeps a replaced file of another
program as NAME.before-tenon, from which "tenon uninstall" restores it. Installs
tenon-dhcp, the DHCP daemon, with the plugin dhcp, and tenon-ovs as the plugin ovs;
it searches both in the directory of tenon, in libexec directories and in PATH.
Attached containers are not affected. Running it again changes nothing.

With --system, links the plugins of the installed package (` + packagedDir + `)
in /opt/cni/bin and, if it contains other plugins, in the distribution's directory
(/usr/lib/cni or /usr/libexec/cni). Packages do this when they are installed. Keeps
replaced files aside as NAME.before-tenon, or on Debian, if another package owns
them, as alternatives (update-alternatives --config usr-lib-cni-bridge). "tenon
uninstall" and the removal of the package restore them.`,
		Example: `  tenon install /opt/cni/bin
  tenon install /opt/cni/bin --only bridge,host-local
  tenon install --system`,
		Args: arguments(0, "DIR"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case system && len(args)+len(only) > 0:
				return usagef("--system takes neither DIR nor --only")
			case system:
				return a.linkSystem(cmd.Context())
			case len(args) == 0:
				return usagef("missing DIR")
			}
			request, err := a.request(args[0], only)
			if err != nil {
				return err
			}
			request.Host = systemHost(cmd.Context())
			done, err := install.Run(cmd.Context(), request)
			rows := [][]string{{"PLUGIN", "STATE", "CNI"}}
			for _, p := range done {
				rows = append(
					rows,
					[]string{p.Name, string(p.Change), cmp.Or(strings.Join(p.Versions, ", "), "-")},
				)
			}
			if len(done) > 0 {
				if err := table.Write(a.stdout, rows); err != nil {
					return err
				}
			}
			return a.needsRoot(err)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil,
		"install only `NAMES`, separated by commas; repeatable (default: all)")
	cmd.Flags().BoolVar(&system, "system", false,
		"link the plugins of the installed package in the host's plugin directories")
	_ = cmd.RegisterFlagCompletionFunc(
		"only",
		cobra.FixedCompletions(pluginNames(), cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

// request lists the files of the plugins in --only or, if it is empty, of all plugins.
func (a *app) request(dir string, only []string) (install.Request, error) {
	r := install.Request{Dir: dir, Names: builtInNames()}
	separate := all.Programs
	if len(only) > 0 {
		r.Names, separate = nil, nil
	}
	for _, name := range only {
		if p, ok := all.FindProgram(name); ok {
			separate = append(separate, p)
		} else if slices.Contains(builtInNames(), name) {
			r.Names = append(r.Names, name)
		} else {
			return r, a.didYouMean(usagef("unknown plugin %q", name), name, pluginNames())
		}
	}
	for _, p := range separate {
		path, err := program.Find(p.Program)
		var missing *program.MissingError
		switch {
		case errors.As(err, &missing) && len(only) > 0:
			return r, hint(err, missing.Hint())
		case err != nil:
			a.warn("the plugin %s is left out: %v", p.Name, err)
		default:
			r.Programs = append(r.Programs, install.Program{Path: path, Name: p.Name, Plugin: true})
		}
	}
	if slices.Contains(r.Names, "dhcp") {
		path, err := program.Find(dhcp.Program)
		if err != nil {
			a.warn("the plugin dhcp will not work without its daemon: %v", err)
		} else {
			r.Programs = append(r.Programs, install.Program{Path: path, Name: dhcp.Program})
		}
	}
	return r, nil
}

// builtInNames returns the names of the plugins in this program.
func builtInNames() []string { return namesOf(all.Plugins) }

// pluginNames returns the names of all plugins of Tenon.
func pluginNames() []string { return namesOf(all.Described()) }

func namesOf(list []plugin.Definition) []string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.Name
	}
	return names
}
