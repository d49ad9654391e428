package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) status() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "status [NETWORK]",
		Short: "Ask whether containers could be attached now",
		Long: `Asks the plugins of a network, or of each network in --net-dir, whether ADD would work (STATUS). Says
which file a network comes from, and which one runtimes use where none is named. Below CNI 1.1.0 there
is no STATUS: of such networks only the plugins are looked for. The exit status is 1 if one is not ready.`,
		Example: `  tenon status
  tenon status pods`,
		Args:              arguments(0, "NETWORK"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				n, err := r.load(args[0])
				if err != nil {
					return err
				}
				return r.printStatus(cmd, []*network.Network{n}, nil)
			}
			c, err := r.catalog()
			if err != nil {
				return err
			}
			networks, err := c.Networks()
			return r.printStatus(cmd, networks, err)
		},
	}
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.jsonFlag(cmd, "print the list as JSON")
	return cmd
}

// statusEntry is what is known of one network.
type statusEntry struct {
	Network    string          `json:"network"`
	CNIVersion cni.Version     `json:"cniVersion"`
	Source     string          `json:"source"`
	Default    bool            `json:"default"`              // runtimes take it where none is asked for
	ShadowedBy string          `json:"shadowedBy,omitempty"` // file of a network of the same name that is found first
	Ready      bool            `json:"ready"`
	Error      json.RawMessage `json:"error,omitempty"`

	err error
}

func (r *settings) printStatus(cmd *cobra.Command, networks []*network.Network, loadErr error) error {
	entries := r.ask(cmd, networks)
	var err error
	if r.json {
		err = r.printJSON(entries)
	} else {
		err = text.Table(r.stdout, statusRows(entries))
	}
	if err != nil {
		return err
	}
	failed := loadErr != nil
	for _, e := range entries {
		if e.err != nil {
			failed = true
			r.complain(cmd, e.err)
		}
	}
	if loadErr != nil {
		r.complain(cmd, loadErr)
	}
	if failed {
		return exitStatus(statusFailure)
	}
	return nil
}

func (r *settings) ask(cmd *cobra.Command, networks []*network.Network) []statusEntry {
	client := r.client()
	files := map[string]network.File{}
	if c, err := network.Discover(r.netDir); err == nil {
		for _, f := range c.Files {
			files[f.Path] = f
		}
	}
	entries := make([]statusEntry, len(networks))
	for i, n := range networks {
		n, err := asRun(cmd.Context(), client, n)
		e := statusEntry{Network: n.Name, CNIVersion: n.Version, Source: n.Source}
		e.Default, e.ShadowedBy = files[n.Source].Default, files[n.Source].ShadowedBy
		if err == nil {
			err = client.Status(cmd.Context(), n)
		}
		if err == nil && !n.Version.Has(cni.Status) {
			_, err = client.Validate(cmd.Context(), n)
		}
		if e.Ready = err == nil; !e.Ready {
			e.err = r.explain(err, n)
			e.Error = cni.AsError(err).Encode(cni.Newest)
		}
		entries[i] = e
	}
	return entries
}

func statusRows(entries []statusEntry) [][]string {
	rows := [][]string{{"NETWORK", "CNI", "STATE", "FILE"}}
	for _, e := range entries {
		state := "ready"
		if !e.Ready {
			state = fmt.Sprintf("not ready (%d)", cni.CodeOf(e.err))
		}
		source := e.Source
		if e.Default {
			source += " (default)"
		}
		if e.ShadowedBy != "" {
			source += " (hidden by " + e.ShadowedBy + ")"
		}
		rows = append(rows, []string{e.Network, e.CNIVersion.String(), state, source})
	}
	return rows
}
