package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/picture"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// mapping is a run of "tenon map".
type mapping struct {
	settings
	filter topology.Filter
	all    bool
	file   string // to write to, "" for standard output
}

// drawings write a map in the formats of pictures.
var drawings = map[string]func(io.Writer, *topology.Map, *topology.Tree) error{
	"svg":     picture.SVG,
	"html":    picture.HTML,
	"mermaid": func(w io.Writer, _ *topology.Map, t *topology.Tree) error { return picture.Mermaid(w, t) },
	"text":    func(w io.Writer, _ *topology.Map, t *topology.Tree) error { return text.Map(w, t) },
}

// suffixes are the formats of files.
var suffixes = map[string]string{".svg": "svg", ".html": "html", ".htm": "html", ".mmd": "mermaid",
	".json": "json", ".txt": "text"}

func (a *app) hostMap() *cobra.Command {
	r := &mapping{settings: settings{app: a}}
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Draw the host: bridges, containers, ports, problems",
		Long: `Draws how containers are connected: uplinks, bridges, VLANs, addresses, default
routes, published ports and attachments of all runtimes, with problems marked. Objects
of other programs are part of the picture; their owner is a guess if only a name tells
it.

Equal attachments of a network fold into one line, but never one with a problem.
--all, --network and --container show each one. --json prints the graph of nodes and
edges.

--output draws a picture: svg for documents, html for a page with search and zoom
that loads nothing from the network, mermaid for Markdown. With --output-file, the
suffix of the file selects the format: .svg, .html, .mmd, .json or .txt.

Reads the state of this host and its containers, and changes nothing. Shows neither
Open vSwitch nor what eBPF programs do. The exit status is 0 even if there are
problems.`,
		Example: `  tenon map
  tenon map --problems
  tenon map --network pods
  tenon map --output-file host.html
  tenon map --json | jq '.nodes[] | select(.problems)'`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) },
	}
	r.recordFlags(cmd)
	r.outputFlags(cmd, slices.Sorted(maps.Keys(drawings))...)
	r.fromFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&r.file, "output-file", "f", "", "write to `FILE` instead of standard output")
	flags.StringVar(&r.filter.Network, "network", "",
		"show only attachments of network `NAME`, each one")
	flags.StringVar(&r.filter.Container, "container", "",
		"show only containers with an ID that begins with `ID`")
	flags.BoolVar(&r.filter.Problems, "problems", false, "show only objects with a problem")
	flags.BoolVarP(&r.all, "all", "a", false, "show each attachment, without folding")
	// The flags exist.
	_ = cmd.MarkFlagFilename("output-file", "svg", "html", "mmd", "json", "txt")
	_ = cmd.RegisterFlagCompletionFunc("network",
		r.completeKeys(func(k cni.Attachment) string { return k.Network }))
	_ = cmd.RegisterFlagCompletionFunc("container",
		r.completeKeys(func(k cni.Attachment) string { return k.Container }))
	return cmd
}

// completeKeys completes a part of the keys of attachments.
func (r *settings) completeKeys(part func(cni.Attachment) string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		records, _ := r.client().ListHost()
		var words []cobra.Completion
		for _, rec := range records {
			if word := part(rec.Attachment); !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func (r *mapping) run(ctx context.Context) error {
	if err := r.choose(); err != nil {
		return err
	}
	places, err := r.places(ctx, topology.Read)
	if err != nil {
		return r.needsRoot(err)
	}
	m := topology.Build(places)
	for _, s := range m.Skipped {
		r.warn("not in the map: %s: %s", s.What, s.Reason)
	}
	if m, err = r.filtered(m); err != nil {
		return err
	}
	if r.file == "" {
		return r.draw(r.stdout, m)
	}
	var b bytes.Buffer
	if err := r.draw(&b, m); err != nil {
		return err
	}
	return os.WriteFile(r.file, b.Bytes(), 0o644)
}

// choose chooses the format: by the flag, or else by the suffix of the file.
func (r *mapping) choose() error {
	suffix := filepath.Ext(r.file)
	switch {
	case r.output.String() != "":
		return nil
	case r.file == "":
		return r.output.Set("text")
	case suffixes[suffix] == "":
		return usagef("--output-file %s: unknown suffix %q; add --output", r.file, suffix)
	}
	return r.output.Set(suffixes[suffix])
}

// draw writes the map in the chosen format: a picture, or the graph for programs.
func (r *mapping) draw(w io.Writer, m *topology.Map) error {
	if draw := drawings[r.output.String()]; draw != nil {
		return draw(w, m, m.Tree(r.all || r.filter.Network != "" || r.filter.Container != ""))
	}
	return explainTemplate(r.output.Write(w, m))
}

// filtered applies the filter. It returns an error if there is no such network or container.
func (r *mapping) filtered(m *topology.Map) (*topology.Map, error) {
	var networks, containers []string
	for _, n := range m.Nodes {
		switch {
		case n.Attached != nil:
			networks = append(networks, n.Attached.Network)
			containers = append(containers, n.Attached.Container)
		case n.Kind == topology.Namespace:
			containers = append(containers, n.Name)
		}
	}
	if f := r.filter.Network; f != "" && !slices.Contains(networks, f) {
		return nil, r.didYouMean(fmt.Errorf("network %s has no attachment", f), f, networks)
	}
	begins := func(name string) bool { return strings.HasPrefix(name, r.filter.Container) }
	if f := r.filter.Container; f != "" && !slices.ContainsFunc(containers, begins) {
		return nil, r.didYouMean(fmt.Errorf("no container or namespace %s", f), f, containers)
	}
	return m.Filter(r.filter), nil
}
