package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) status() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "status [NETWORK]",
		Short: "Check whether containers can be attached now",
		Long: `Asks the plugins of one network, or of every network in --net-dir, whether ADD
would succeed (STATUS). Shows which file each network comes from and which
network runtimes use by default; warns if several files could be the default.
CNI versions before 1.1.0 lack STATUS: for such networks, checks only that the
plugins exist. Then shows the state of this node in its cluster, if it belongs to
one. The exit status is 1 if a network is not ready.`,
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
				return r.printStatus(cmd, []*config.Network{n}, nil, nil)
			}
			c, err := r.catalog()
			if err != nil {
				return err
			}
			r.warnOfDefaults(c)
			networks, err := c.Networks()
			err = r.printStatus(cmd, networks, broken(c), err)
			if !r.output.Structured() {
				err = errors.Join(err, a.printClusterNode(cmd.Context()))
			}
			return err
		},
	}
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.stateDirFlag(cmd)
	r.outputFlags(cmd)
	return cmd
}

// warnOfDefaults warns if file names decide which network is the default: a package may install a
// file that sorts before the intended one.
func (r *settings) warnOfDefaults(c *config.Catalog) {
	var chosen string
	var rest []string
	for _, f := range c.Candidates() {
		if f.Default {
			chosen = r.baseName(f.Path)
		} else {
			rest = append(rest, r.baseName(f.Path))
		}
	}
	if rest != nil {
		r.warn(
			"several files could be the default network: runtimes use %s, which sorts first, and not %s",
			chosen,
			strings.Join(rest, ", "),
		)
	}
}

// statusEntry is the status of one network, or of a file that cannot be loaded.
type statusEntry struct {
	Network    string          `json:"network"`             // "" if the file states none that can be read
	CNIVersion cni.Version     `json:"cniVersion,omitzero"` // none for a file that cannot be loaded
	Source     string          `json:"source"`
	Default    bool            `json:"default"`              // runtimes use it unless a container names a network
	ShadowedBy string          `json:"shadowedBy,omitempty"` // file of a network of the same name that sorts before
	Ready      bool            `json:"ready"`
	Error      json.RawMessage `json:"error,omitempty"`

	file config.File
	err  error
}

// broken returns entries for the files that cannot be loaded.
func broken(c *config.Catalog) (entries []statusEntry) {
	for _, f := range c.Candidates() {
		if f.Err != nil {
			entries = append(entries, statusEntry{
				Network: f.Name, Source: f.Path, Default: f.Default, ShadowedBy: f.ShadowedBy,
				Error: cni.AsError(f.Err).Encode(cni.Newest),
			})
		}
	}
	return entries
}

// printStatus prints the status of networks. unloaded are the files that loadErr is about: programs
// get them as entries, people as errors.
func (r *settings) printStatus(
	cmd *cobra.Command,
	networks []*config.Network,
	unloaded []statusEntry,
	loadErr error,
) error {
	entries := r.ask(cmd, networks)
	var err error
	if r.output.Structured() {
		err = r.printValue(append(entries, unloaded...))
	} else if len(entries) > 0 {
		err = table.Write(r.stdout, r.statusRows(entries))
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, r.unfinished(cmd, e.err))
	}
	return errors.Join(err, r.unfinished(cmd, loadErr))
}

func (r *settings) ask(cmd *cobra.Command, networks []*config.Network) []statusEntry {
	client := r.client()
	files := map[string]config.File{}
	if c, err := config.Discover(r.netDir); err == nil {
		for _, f := range c.Files {
			files[f.Path] = f
		}
	}
	entries := make([]statusEntry, len(networks))
	for i, n := range networks {
		n, err := r.ready(cmd.Context(), client, n)
		f := files[n.Source]
		e := statusEntry{
			Network: n.Name, CNIVersion: n.Version, Source: n.Source, Default: f.Default, ShadowedBy: f.ShadowedBy, file: f,
		}
		if e.Ready = err == nil; !e.Ready {
			e.err = r.explain(err, n)
			e.Error = cni.AsError(err).Encode(cni.Newest)
		}
		entries[i] = e
	}
	return entries
}

// ready returns an error unless containers can be attached to a network now, and the network in the
// version in which the client runs it.
func (r *settings) ready(
	ctx context.Context, client *network.Client, n *config.Network,
) (*config.Network, error) {
	n, err := asRun(ctx, client, n)
	if err == nil {
		err = client.Status(ctx, n)
	}
	if err == nil && !n.Version.Has(cni.Status) {
		_, err = client.Validate(ctx, n)
	}
	if err == nil {
		err = startsWithInterface(n)
	}
	return n, err
}

// startsWithInterface returns an error for a network that starts with a plugin that must be
// chained, because ADD always fails there. The plugin itself does not learn from a STATUS request
// whether other plugins come before it.
func startsWithInterface(n *config.Network) error {
	types := n.Types()
	if len(types) == 0 || !slices.Contains(chainedNames(), types[0]) {
		return nil
	}
	return cni.Errorf(cni.CodeNotAvailable, "network %s: %s is the first plugin, but only works after another plugin", n.Name, types[0]).
		WithDetails("add a plugin that creates an interface, such as bridge, before it")
}

func (r *settings) statusRows(entries []statusEntry) [][]string {
	rows := [][]string{{"NETWORK", "CNI", "STATE", "FILE", "NOTE"}}
	for _, e := range entries {
		state := "ready"
		if !e.Ready {
			state = fmt.Sprintf("not ready (%d)", cni.CodeOf(e.err))
		}
		rows = append(
			rows,
			[]string{
				e.Network,
				e.CNIVersion.String(),
				state,
				r.baseName(e.Source),
				r.notes(e.file),
			},
		)
	}
	return rows
}
