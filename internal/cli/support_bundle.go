package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/bundle"
	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/logs"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) supportBundle() *cobra.Command {
	c := &collection{settings: settings{app: a}}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what a maintainer needs in one archive",
		Long: `Collects the state of this host in one archive: what "tenon doctor" finds, links,
addresses, routes, listening sockets, rule sets with counters, attachments,
reservations, network configurations, the last operations, versions, limits, and the
kernel's messages about networking. Lists the files, asks, and then writes the
archive with mode 0600. Changes nothing else.

The archive contains only what is known to be harmless: values of configuration
keys that Tenon does not know, CNI_ARGS except K8S_POD_*, and unknown arguments of
runtimes are masked. Addresses stay, unless --hash-addresses replaces them by others
with the same common prefixes; the state for --from is then left out.

"tenon doctor --from FILE" and "tenon why --from FILE" work on the archive.`,
		Example: `  tenon support-bundle
  tenon support-bundle --file /tmp/web.tar.gz --yes
  tenon doctor --from tenon-node-7-20261122-025107.tar.gz`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.netDirFlag(cmd)
	c.pluginDirFlag(cmd)
	c.recordFlags(cmd)
	c.outputFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.file, "file", "", "write the archive to `FILE` (default: a new file in this directory)")
	flags.BoolVarP(&c.yes, "yes", "y", false, "write the archive without asking")
	flags.BoolVar(&c.hash, "hash-addresses", false, "replace IP addresses")
	return cmd
}

// collection is a run of the command.
type collection struct {
	settings
	file      string
	yes, hash bool

	state *doctor.State
	find  bundle.Find
}

func (c *collection) run(ctx context.Context) error {
	e := &examination{settings: c.settings}
	var err error
	if c.state, err = e.read(ctx); err != nil {
		return c.needsRoot(err)
	}
	if !c.hash {
		c.readListeners(ctx)
	}
	c.find = bundle.Schemas(all.Described())
	sources, err := c.sources(ctx, e)
	if err != nil {
		return err
	}
	p := newProgress(c.stderr.file, len(sources))
	b := bundle.Collect(ctx, c.state.Host.Name, time.Now(), sources, p.show)
	p.end()
	path := c.file
	if path == "" {
		path = b.Name + ".tar.gz"
	}
	if !c.output.Structured() {
		text.Bundle(c.stdout, b)
	}
	if !c.yes {
		if err := c.confirmed(fmt.Sprintf("Write %s?", path)); err != nil {
			return err
		}
	}
	if err := writeNew(path, b); err != nil {
		return err
	}
	return c.print(bundleReport{b, path}, func() error {
		_, err := fmt.Fprintf(c.stdout, " wrote %s\n", path)
		return err
	})
}

// listenersDeadline limits the time to read the sockets of all namespaces, which grows with the square
// of their number.
const listenersDeadline = 5 * time.Second

// readListeners adds the listeners of all namespaces to the state, for "tenon why --from".
func (c *collection) readListeners(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listenersDeadline)
	defer cancel()
	if n := c.state.Host.ReadListeners(ctx); n > 0 {
		c.warn("the bundle lacks the sockets of %s: not read within %v",
			plural.Count(n, "namespace"), listenersDeadline)
	}
}

// bundleReport is a written bundle as JSON.
type bundleReport struct {
	*bundle.Bundle
	Path string `json:"path"`
}

// writeNew writes an archive to a file that does not exist yet. It leaves no part of a file behind.
func writeNew(path string, b *bundle.Bundle) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return hint(err, "choose another file with --file")
	}
	if err != nil {
		return err
	}
	if err := errors.Join(b.Write(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// sources returns the files of the bundle.
func (c *collection) sources(ctx context.Context, e *examination) ([]bundle.Source, error) {
	report := doctor.Run(ctx, c.state, doctor.Checks(), nil)
	name := c.state.Name
	sources := []bundle.Source{
		{Name: "doctor.txt", About: "what tenon doctor finds", Read: written(func(b *bytes.Buffer) error {
			return text.Doctor(b, report, e.header(), true)
		})},
		{Name: "doctor.json", About: "the same for programs", Read: encoded(func() (any, error) {
			return report, nil
		})},
		{Name: "map.txt", About: "tenon map", Read: written(func(b *bytes.Buffer) error {
			return text.Map(b, topology.Build(c.state.Places).Tree(false))
		})},
		{Name: "host.txt", About: "links, addresses, routes, rules and neighbours of all namespaces",
			Read: written(func(b *bytes.Buffer) error {
				b.Write(bundle.HostText(c.state.Host, name))
				return nil
			})},
		{Name: "nft.txt", About: "rule sets of nftables and iptables, with counters",
			Read: func(context.Context) ([]byte, int, error) {
				b, err := bundle.RulesText(c.state.Host, name)
				return b, 0, err
			}},
		{Name: "attachments.json", About: "tenon ps --json", Read: encoded(c.attachments)},
		{Name: "reservations.json", About: "tenon ipam list --json", Read: encoded(func() (any, error) {
			found, err := c.reservations(ctx)
			return found.json(), err
		})},
		{Name: "versions.json", About: "tenon version --plugins --json", Read: encoded(func() (any, error) {
			plugins, err := c.installed(ctx)
			return versionInfo{c.version, runtime.Version(), cni.Versions(), plugins}, err
		})},
		{Name: "kernel.log", About: "the kernel's messages about networking", Read: bundle.KernelLog},
		{Name: "limits.txt", About: "limits of a process of root", Read: file("/proc/self/limits")},
	}
	if c.journal().Exists() {
		sources = append(sources, bundle.Source{Name: "journal.jsonl",
			About: "the last operations: tenon logs --json", Read: c.operations})
	}
	if !c.hash {
		sources = append(sources, bundle.Source{Name: bundle.StateFile,
			About: "the state of the host, for --from", Read: func(context.Context) ([]byte, int, error) {
				return bundle.State(c.state, c.find)
			}})
	}
	confs, err := c.configurations()
	if err != nil {
		return nil, err
	}
	sources = append(sources, confs...)
	if c.hash {
		return hashed(sources)
	}
	return sources, nil
}

// attachments returns what "tenon ps" prints.
func (c *collection) attachments() (any, error) {
	list, err := inspect.Attachments(c.state.Records)
	return psJSON(list, nil), err
}

// operations returns the operations in the journal, one on each line. They hold no arguments.
func (c *collection) operations(context.Context) ([]byte, int, error) {
	content, err := c.journal().Read()
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, r := range content.Records {
		err = errors.Join(err, lines.Encode(logs.EntryOf(r)))
	}
	return b.Bytes(), 0, err
}

// configurations returns a source for each file in the directory of network configurations.
func (c *collection) configurations() (list []bundle.Source, err error) {
	err = filepath.WalkDir(c.netDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(c.netDir, path)
		if err != nil {
			return err
		}
		switch filepath.Ext(name) {
		case ".conf", ".conflist", ".json":
		default:
			return nil
		}
		list = append(list, bundle.Source{Name: "net.d/" + name, About: "a network configuration",
			Read: func(context.Context) ([]byte, int, error) {
				text, err := os.ReadFile(path)
				if err != nil {
					return nil, 0, err
				}
				masked, count := bundle.Config(text, c.find)
				return masked, count, nil
			}})
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return list, err
}

// hashed replaces the addresses in the content of sources.
func hashed(sources []bundle.Source) ([]bundle.Source, error) {
	h, err := bundle.NewHasher()
	if err != nil {
		return nil, err
	}
	for i, s := range sources {
		sources[i].Read = func(ctx context.Context) ([]byte, int, error) {
			text, masked, err := s.Read(ctx)
			return h.Text(text), masked, err
		}
	}
	return sources, nil
}

// written returns the content that write writes.
func written(write func(*bytes.Buffer) error) func(context.Context) ([]byte, int, error) {
	return func(context.Context) ([]byte, int, error) {
		var b bytes.Buffer
		err := write(&b)
		return b.Bytes(), 0, err
	}
}

// encoded returns a value as JSON. It reports an error of value together with the part that value returns.
func encoded(value func() (any, error)) func(context.Context) ([]byte, int, error) {
	return func(context.Context) ([]byte, int, error) {
		v, err := value()
		b, encodeErr := json.MarshalIndent(v, "", "  ")
		return b, 0, errors.Join(err, encodeErr)
	}
}

func file(path string) func(context.Context) ([]byte, int, error) {
	return func(context.Context) ([]byte, int, error) {
		b, err := os.ReadFile(path)
		return b, 0, err
	}
}

// fromFlag adds --from to a command that works on the state of a host.
func (r *settings) fromFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.from, "from", "",
		"work on the support bundle `FILE` instead of this host")
	common(cmd, "from")
	_ = cmd.MarkFlagFilename("from", "tar.gz") // the flag exists
}

// storedState returns the state in the support bundle that --from names.
func (r *settings) storedState() (*doctor.State, error) {
	f, err := os.Open(r.from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := bundle.Open(f, bundle.StateFile)
	switch {
	case errors.Is(err, bundle.ErrNotInBundle):
		return nil, hint(fmt.Errorf("%s: %w", r.from, err), "collect it again without --hash-addresses")
	case err != nil:
		return nil, hint(fmt.Errorf("%s is not a support bundle: %w", r.from, err),
			"collect one on the host: tenon support-bundle")
	}
	s, err := bundle.LoadState(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.from, err)
	}
	return s, nil
}
