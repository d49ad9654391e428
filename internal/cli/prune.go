package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) prune() *cobra.Command {
	p := &pruning{settings: settings{app: a}, entries: []recoverEntry{}}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Detach containers without a network namespace",
		Long: `Cleans up after containers that ended without DEL: in all networks, detaches each
recorded attachment whose namespace no longer exists, with the configuration and
arguments from its record. Then runs GC of the plugins of these networks (CNI 1.1.0
or newer, unless the network has disableGC), which removes leftovers without a
record. Also cleans up after interrupted ADDs and DELs.

Keeps attachments of other runtimes, which are recorded in --state-dir and
--cache-dir, unless --all-runtimes is given: a runtime detaches its containers
itself when it runs again.`,
		Example: `  tenon prune --dry-run
  tenon prune
  tenon prune --json`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := p.run(cmd.Context())
			if err := p.print(); err != nil {
				return err
			}
			return a.unfinished(cmd, p.explain(err, nil))
		},
	}
	p.clientFlags(cmd)
	p.outputFlags(cmd)
	cmd.Flags().BoolVar(&p.allRuntimes, "all-runtimes", false,
		"also detach attachments of other runtimes")
	cmd.Flags().BoolVar(&p.dryRun, "dry-run", false,
		"print what would be detached, and change nothing")
	return cmd
}

// pruning is a run of the command.
type pruning struct {
	settings
	allRuntimes, dryRun bool

	states  map[cni.Attachment]inspect.State
	entries []recoverEntry // one for each attachment, with --dry-run too

	mu       sync.Mutex
	outcomes map[cni.Attachment]error // of DEL
}

// run prunes all networks that have attachment records.
func (p *pruning) run(ctx context.Context) error {
	client, since := p.client(), time.Now()
	client.Observer = p
	records, err := client.List()
	if err := p.warnDamaged(err); err != nil {
		return err
	}
	list, err := inspect.Attachments(records)
	if err != nil {
		return err
	}
	p.states = map[cni.Attachment]inspect.State{}
	for _, x := range list {
		p.states[x.Attachment] = x.State
	}
	networks := network.Recorded(records)
	slices.SortFunc(networks, func(a, b *config.Network) int { return cmp.Compare(a.Name, b.Name) })
	var errs []error
	for _, n := range networks {
		n = p.configured(n)
		k := network.Keep{
			Attachments: running(list, n.Name),
			Since:       since,
			AllRuntimes: p.allRuntimes,
		}
		if n.DisableGC {
			errs = append(errs, p.detach(ctx, client, n, list))
		} else {
			errs = append(errs, p.pruneNetwork(ctx, client, n, k))
		}
	}
	return errors.Join(errs...)
}

// configured returns the current configuration of a recorded network, or the recorded one if there
// is none.
func (p *pruning) configured(n *config.Network) *config.Network {
	c, err := config.Discover(p.netDir)
	if err != nil {
		return n
	}
	if now, _, err := c.Lookup(n.Name); err == nil {
		return now
	}
	return n
}

func (p *pruning) pruneNetwork(
	ctx context.Context,
	client *network.Client,
	n *config.Network,
	k network.Keep,
) error {
	if p.dryRun {
		stale, err := client.Stale(n, k)
		for _, r := range stale {
			p.entries = append(p.entries, p.entry(r, nil))
		}
		return err
	}
	p.outcomes = map[cni.Attachment]error{}
	stale, _ := client.Stale(n, k) // GC reports the error
	err := client.GC(ctx, n, k)
	for _, r := range stale {
		if err, deleted := p.outcomes[r.Attachment]; deleted {
			p.entries = append(p.entries, p.entry(r, err))
		}
	}
	return err
}

// detach runs DEL for attachments without a namespace in a network with disableGC.
func (p *pruning) detach(
	ctx context.Context,
	client *network.Client,
	n *config.Network,
	list []inspect.Attachment,
) error {
	var errs []error
	for _, x := range list {
		if x.Attachment.Network != n.Name || !x.State.Due() ||
			x.Runtime != runtimeName && !p.allRuntimes {
			continue
		}
		var err error
		if !p.dryRun {
			err = client.Del(ctx, x.Attachment, network.Fallback{Network: n})
		}
		p.entries, errs = append(p.entries, p.entry(x.Record, err)), append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *pruning) entry(r network.Record, err error) recoverEntry {
	e := newRecoverEntry(network.Recovered{Record: r, Err: err})
	if s := p.states[r.Attachment]; s.Due() {
		e.Reason = string(s)
	}
	e.Deleted = e.Deleted && !p.dryRun
	return e
}

// Begin implements [network.Observer]: it collects the outcomes of DEL.
func (p *pruning) Begin(
	ctx context.Context,
	e network.Event,
) (context.Context, func(network.Outcome)) {
	if e.Kind != network.Cleanup {
		return ctx, nil
	}
	return ctx, func(o network.Outcome) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.outcomes[e.Attachment] = o.Err
	}
}

func (p *pruning) print() error {
	if p.output.Structured() {
		return p.printValue(p.entries)
	}
	deleted := 0
	for _, e := range p.entries {
		line := e.String()
		if p.dryRun {
			line = fmt.Sprintf("would detach %v: %s", e.key(), e.Reason)
		}
		if e.Deleted {
			deleted++
		}
		fmt.Fprintln(p.stdout, line)
	}
	switch {
	case len(p.entries) == 0:
		fmt.Fprintln(p.stdout, "nothing to prune")
	case p.dryRun:
		fmt.Fprintf(p.stdout, "would prune %s\n", count(len(p.entries), "attachment"))
	default:
		fmt.Fprintf(p.stdout, "pruned %d of %s\n", deleted, count(len(p.entries), "attachment"))
	}
	return nil
}

// count returns a number and a noun in singular or plural.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// running returns the attachments of a network that have a namespace, or may have one. It leaves
// out an attachment while its ADD or DEL is in progress; GC judges it afterwards.
func running(list []inspect.Attachment, name string) []cni.ValidAttachment {
	valid := []cni.ValidAttachment{}
	for _, x := range list {
		switch x.State {
		case inspect.OK, inspect.InterfaceGone, inspect.Unknown:
			if key := x.Attachment; key.Network == name {
				valid = append(
					valid,
					cni.ValidAttachment{ContainerID: key.Container, IfName: key.IfName},
				)
			}
		}
	}
	return valid
}

// running returns the recorded attachments of a network that have a namespace, or may have one.
func (r *settings) running(c *network.Client, name string) ([]cni.ValidAttachment, error) {
	records, err := c.List()
	if _, rest := splitErrors(err, network.ErrUnreadable); rest != nil {
		return nil, rest
	}
	list, err := inspect.Attachments(records)
	if err != nil {
		return nil, err
	}
	return running(list, name), nil
}
