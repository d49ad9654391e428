package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
	"github.com/tenon-cni/tenon/internal/ops/node"
	"github.com/tenon-cni/tenon/network/config"
)

// nodeSettings holds the flags of the node commands.
type nodeSettings struct {
	*settings
	source string
	only   []string
	stay   bool
	every  time.Duration
	unlock func() // of the lock that --stay keeps
	done   bool   // everything is removed
}

func (a *app) node() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node COMMAND",
		Short: "Install plugins and networks on a node of a cluster",
		Long: `Installs the plugins together with network configurations, and removes both. The
DaemonSets in contrib/kubernetes run these commands in containers that see the
directories of the node at the same paths.`,
		Example: `  tenon node install --config /etc/tenon/net.d
  tenon node status --config /etc/tenon/net.d
  tenon node uninstall`,
	}
	cmd.AddCommand(a.nodeInstall(), a.nodeStatus(), a.nodeUninstall())
	return parent(cmd)
}

func (a *app) nodeInstall() *cobra.Command {
	r := &nodeSettings{settings: &settings{app: a}}
	cmd := &cobra.Command{
		Use:   "install --config DIR",
		Short: "Install the plugins and the configurations in a directory",
		Long: `Installs the plugins into --plugin-dir as "tenon install" does, asks them whether
they can attach containers to the networks in --config (STATUS), and then writes
the configurations to --net-dir. Plugins and configurations replace earlier ones
atomically. Attached containers are not affected. If a network is not ready, the
configurations remain as they were.

Refuses configurations with mistakes, and refuses to replace a configuration that
it did not write. Removes the configurations of the last run that --config no
longer has. Running it again changes nothing.

With --stay, tries until it succeeds, installs the plugins and configurations
again whenever they differ, and ends with SIGTERM.`,
		Example: `  tenon node install --config /etc/tenon/net.d
  tenon node install --config /etc/tenon/net.d --stay`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := r.target()
			if err != nil {
				return err
			}
			defer func() {
				if r.unlock != nil {
					r.unlock()
				}
			}()
			return r.repeat(cmd, func(ctx context.Context) error { return r.put(ctx, n) })
		},
	}
	r.sourceFlags(cmd)
	r.stayFlags(cmd)
	return cmd
}

func (a *app) nodeStatus() *cobra.Command {
	r := &nodeSettings{settings: &settings{app: a}}
	absent := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Check what node install installed",
		Long: `Checks that the plugins and the configurations are in place, and that containers
can be attached to their networks (STATUS). Changes nothing. The exit status is 1
if something differs or a network is not ready. It is meant for probes of pods.`,
		Example: `  tenon node status --config /etc/tenon/net.d
  tenon node status --absent`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if absent {
				return node.Absent(r.netDir)
			}
			n, err := r.target()
			if err != nil {
				return err
			}
			return n.Check(cmd.Context())
		},
	}
	r.sourceFlags(cmd)
	cmd.Flags().BoolVar(&absent, "absent", false, "check that node uninstall has finished")
	return cmd
}

func (a *app) nodeUninstall() *cobra.Command {
	r := &nodeSettings{settings: &settings{app: a}}
	dryRun := false
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove what node install installed",
		Long: `Removes the configurations that "tenon node install" wrote, with the bridges and
empty reservations of their networks, and then everything that "tenon uninstall"
removes. Keeps configurations that changed since. Prints what it removes.

Refuses while containers are attached. With --stay, waits until none is, removes
everything, and ends with SIGTERM.`,
		Example: `  tenon node uninstall --dry-run
  tenon node uninstall --stay`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.repeat(cmd, func(ctx context.Context) error {
				return r.remove(ctx, dryRun)
			})
		},
	}
	r.clientFlags(cmd)
	r.stayFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"print what would be removed, and change nothing")
	return cmd
}

func (r *nodeSettings) sourceFlags(cmd *cobra.Command) {
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.stateDirFlag(cmd)
	cmd.Flags().StringVar(&r.source, "config", "",
		"install the network configurations in `DIR`")
	cmd.Flags().StringSliceVar(&r.only, "only", nil,
		"install only the plugins `NAMES`, separated by commas; repeatable (default: all)")
	_ = cmd.RegisterFlagCompletionFunc("only",
		cobra.FixedCompletions(pluginNames(), cobra.ShellCompDirectiveNoFileComp))
}

func (r *nodeSettings) stayFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.stay, "stay", false, "try until it succeeds, and run until SIGTERM")
	cmd.Flags().DurationVar(&r.every, "interval", 10*time.Second,
		"with --stay, check everything after this `TIME` again")
}

// target returns the installation that the flags describe.
func (r *nodeSettings) target() (*node.Node, error) {
	if r.source == "" {
		return nil, usagef("missing --config")
	}
	request, err := r.request(r.pluginDirs.list[0], r.only)
	if err != nil {
		return nil, err
	}
	return &node.Node{
		Plugins: request, Source: r.source, NetDir: r.netDir,
		Status: func(ctx context.Context, n *config.Network) error {
			_, err := r.ready(ctx, r.client(), n)
			return err
		},
	}, nil
}

// repeat runs a command once or, with --stay, at intervals until the context ends. It reports
// errors when they change.
func (r *nodeSettings) repeat(cmd *cobra.Command, do func(context.Context) error) error {
	ctx := cmd.Context()
	if !r.stay {
		return r.explain(do(ctx), nil)
	}
	if r.every <= 0 {
		return usagef("--interval must be positive")
	}
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	last := ""
	for {
		text := ""
		err := do(ctx)
		if err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != last && text != "" {
			r.complain(cmd, r.explain(err, nil))
		}
		last = text
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// put installs missing files and prints the changes. With --stay it keeps the lock, so that no
// other command removes them.
func (r *nodeSettings) put(ctx context.Context, n *node.Node) (err error) {
	if r.unlock == nil {
		if r.unlock, err = node.Lock(n.Plugins.Dir); err != nil {
			return err
		}
	}
	if r.stay && n.Check(ctx) == nil {
		return nil
	}
	done, err := n.Install(ctx)
	count := map[install.Change]int{}
	for _, p := range done.Plugins {
		count[p.Change]++
	}
	if changed := len(done.Plugins) - count[install.Unchanged]; changed > 0 || !r.stay {
		fmt.Fprintf(r.stdout, "plugins in %s: %d installed, %d replaced, %d unchanged\n",
			n.Plugins.Dir, count[install.Installed], count[install.Replaced],
			count[install.Unchanged])
	}
	for _, f := range done.Files {
		fmt.Fprintf(r.stdout, "%s %s\n", f.Change, f.Path)
	}
	if err == nil {
		fmt.Fprintln(r.stdout, "ready")
	}
	return err
}

// remove removes everything unless containers are attached.
func (r *nodeSettings) remove(ctx context.Context, dryRun bool) error {
	removal := node.Removal{Client: r.client(), NetDir: r.netDir, DryRun: dryRun,
		Report: func(s netconf.Step) {
			fmt.Fprintln(r.stdout, stepText(s, dryRun))
		}}
	if r.done {
		return nil
	}
	unlock, err := node.Lock(r.pluginDirs.list[0])
	if err != nil {
		return err
	}
	defer unlock()
	p, err := removal.Plan(ctx)
	if err != nil {
		return err
	}
	if err := attachedTo(p); err != nil && !dryRun {
		return err
	}
	if err := removal.Run(ctx, p); err != nil {
		return err
	}
	r.done = true
	return r.printUninstall(p, dryRun)
}

// attachedTo returns an error if attachments block the removal.
func attachedTo(p *install.Plan) error {
	reasons := p.Blockers
	for _, a := range p.Blocked() {
		reasons = append(reasons, a.Record.Attachment.String()+" is attached")
	}
	if len(reasons) == 0 {
		return nil
	}
	return hint(cni.Errorf(cni.CodeTryAgainLater, "%w", errors.New(strings.Join(reasons, ", "))),
		"delete the pods of this node that do not use the host's network, or drain it")
}
