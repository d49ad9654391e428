package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) netExplain() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "explain [NETWORK]",
		Short: "Show which configuration files are used, and why",
		Long: `Shows which files in --net-dir are used, which are ignored, and why, including
drop-in files. For each network, shows the file of each plugin, the offered and
the selected CNI version, and the paths of the binaries. NETWORK limits the
output to one network. The exit status is 1 if that network is missing or broken,
or if there is no network at all.

Uses:
  chosen      defines its network
  drop-in     appends its plugin to a network
  policy      ` + config.PolicyName + `: plugins that networks must have
  shadowed    a file that sorts before it defines the same network
  suppressed  drop-in of a network with loadOnlyInlinedPlugins
  broken      cannot be used, and neither can its network
  ignored     is not a network configuration`,
		Example: `  tenon net explain
  tenon net explain pods --json`,
		Args:              arguments(0, "NETWORK"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			c, err := config.Discover(r.netDir)
			if err != nil {
				return r.needsRoot(err)
			}
			report := netconf.Explain(cmd.Context(), r.client(), c, name)
			if err := r.print(report, func() error { return r.printExplained(report) }); err != nil {
				return err
			}
			if name == "" {
				_, err = r.requireNetworks(c)
			} else {
				_, _, err = c.Lookup(name)
				err = r.notFound(err, c, name)
			}
			return a.unfinished(cmd, err)
		},
	}
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.stateDirFlag(cmd)
	r.outputFlags(cmd)
	return cmd
}

func (r *settings) printExplained(report netconf.Directory) error {
	rows := [][]string{{"FILE", "USE", "NETWORK", "WHY"}}
	for _, f := range report.Files {
		why := []string{errorText(f), f.Reason}
		if f.ShadowedBy != "" {
			why = append(why, r.baseName(f.ShadowedBy)+" sorts before it")
		}
		if f.Default {
			why = append(why, "default network")
		}
		why = slices.DeleteFunc(why, func(s string) bool { return s == "" })
		rows = append(
			rows,
			[]string{r.baseName(f.Path), string(f.Use), f.Network, strings.Join(why, "; ")},
		)
	}
	if err := table.Write(r.stdout, rows); err != nil {
		return err
	}
	r.printPolicy(report.Policy)
	for _, n := range report.Networks {
		fmt.Fprintf(r.stdout, "\nnetwork %s\n", n.Name)
		if err := r.printNetwork(r.stdout, n); err != nil {
			return err
		}
	}
	return nil
}

func errorText(f netconf.File) string {
	if f.Line == 0 {
		return f.Error
	}
	return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Error)
}

func (r *settings) printPolicy(p *netconf.Policy) {
	if p == nil || p.RequiredPlugins == nil && p.Executables == nil {
		return
	}
	fmt.Fprintln(r.stdout)
	for _, name := range slices.Sorted(maps.Keys(p.RequiredPlugins)) {
		who := "network " + name
		if name == config.EveryNetwork {
			who = "every network"
		}
		fmt.Fprintf(
			r.stdout,
			"policy: %s must have %s\n",
			who,
			strings.Join(p.RequiredPlugins[name], ", "),
		)
	}
	if p.Executables != nil {
		fmt.Fprintln(r.stdout, "policy: only binaries with listed digests may run")
	}
}

func (r *settings) printNetwork(w io.Writer, n netconf.Network) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) {
		fmt.Fprintf(t, "  %s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	for _, p := range n.Plugins {
		line("plugin", "%s, from %s", p.Type, r.baseName(p.Path))
	}
	for _, x := range n.Executables {
		if x.Error != "" {
			line("binary", "%s", x.Error)
			continue
		}
		line("binary", "%s", x.Path)
	}
	line("version", "%s", versionText(n))
	if n.Refused != "" {
		line("refused", "%s", n.Refused)
	}
	return t.Flush()
}

func versionText(n netconf.Network) string {
	if n.VersionError != "" {
		return n.VersionError
	}
	if len(n.Offered) < 2 {
		return n.Selected
	}
	s := n.Selected + ", offered: " + versionList(n.Offered)
	if n.LimitedBy != nil {
		s += "; limited by " + strings.Join(n.LimitedBy, ", ")
	}
	return s
}

func versionList(versions []cni.Version) string {
	names := make([]string, len(versions))
	for i, v := range versions {
		names[i] = v.String()
	}
	return strings.Join(names, ", ")
}
