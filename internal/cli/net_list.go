package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/format"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) netList() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List networks",
		Long: `Lists the networks in --net-dir, in the order of their lookup, with the plugins
that run for them, drop-ins included. Reports unusable files on standard error.
CNI is the newest version that a network offers; "tenon net explain" shows the
selected one. -o wide also lists the path of each file.`,
		Example: `  tenon net list
  tenon net list -o wide
  tenon net list --json`,
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			c, err := r.catalog()
			if err != nil {
				return err
			}
			files := c.Candidates()
			if r.output.Structured() {
				return r.printValue(netconf.Files(files))
			}
			rows := [][]string{widened(&r.output,
				[]string{"NETWORK", "CNI", "PLUGINS", "FILE", "NOTE"}, "PATH")}
			for _, f := range files {
				rows = append(rows, widened(&r.output, r.netRow(f), f.Path))
				if f.Err != nil {
					a.warn("%v", f.Err)
				}
			}
			return table.Write(a.stdout, rows)
		},
	}
	r.netDirFlag(cmd)
	r.outputFlags(cmd, format.Wide)
	return cmd
}

func (r *settings) netRow(f config.File) []string {
	row := []string{f.Name, "", "", r.baseName(f.Path)}
	if f.Network != nil {
		row[1], row[2] = f.Network.Version.String(), strings.Join(f.Network.Types(), ",")
	}
	return append(row, r.notes(f))
}

// notes describes a file that is broken, hidden by another file, or the default.
func (r *settings) notes(f config.File) string {
	var notes []string
	if f.Err != nil {
		notes = append(notes, "broken")
	}
	if f.ShadowedBy != "" {
		notes = append(notes, "hidden by "+r.baseName(f.ShadowedBy))
	}
	if f.Default {
		notes = append(notes, "default")
	}
	return strings.Join(notes, ", ")
}
