package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// settings are the flags of commands that load networks or run plugins.
type settings struct {
	*app
	cmd        *cobra.Command // for hints
	netDir     string
	pluginDirs directories
	stateDir   string
	cacheDir   string
	timeout    time.Duration
	json       bool
	verbose    bool
}

// directories is a list of directories as in PATH; the flag may be repeated.
type directories struct {
	list []string
	set  bool
}

// String implements [pflag.Value].
func (f *directories) String() string { return strings.Join(f.list, ":") }

// Type implements [pflag.Value].
func (f *directories) Type() string { return "DIRS" }

// Set implements [pflag.Value]. The first call replaces the default.
func (f *directories) Set(text string) error {
	if !f.set {
		f.list, f.set = nil, true
	}
	if text == "" {
		return errors.New("no folder")
	}
	for _, dir := range filepath.SplitList(text) {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		f.list = append(f.list, dir)
	}
	return nil
}

func (r *settings) netDirFlag(cmd *cobra.Command) {
	r.cmd = cmd
	cmd.Flags().StringVar(&r.netDir, "net-dir", cmp.Or(os.Getenv("NETCONFPATH"), config.DefaultDir),
		"look networks up in `DIR` [NETCONFPATH]")
}

func (r *settings) stateDirFlag(cmd *cobra.Command) {
	r.cmd = cmd
	cmd.Flags().StringVar(&r.stateDir, "state-dir", network.DefaultStateDir, "keep records, locks, and which versions plugins support in `DIR`")
}

// recordFlags are those of commands that look at what is attached.
func (r *settings) recordFlags(cmd *cobra.Command) {
	r.stateDirFlag(cmd)
	cmd.Flags().StringVar(&r.cacheDir, "cache-dir", network.DefaultCacheDir,
		"look in `DIR` for what the reference library attached (cnitool, CRI-O, Podman); empty: nowhere")
}

func (r *settings) jsonFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&r.json, "json", false, usage)
}

func (r *settings) pluginDirFlag(cmd *cobra.Command) {
	r.cmd = cmd
	r.pluginDirs.list = filepath.SplitList(cmp.Or(os.Getenv("CNI_PATH"), network.DefaultPluginDir))
	cmd.Flags().Var(&r.pluginDirs, "plugin-dir", "look for plugins in DIRS, separated by colons; repeatable [CNI_PATH]")
}

// pluginFlags are those of commands that run plugins.
func (r *settings) pluginFlags(cmd *cobra.Command) {
	r.pluginDirFlag(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&r.timeout, "timeout", network.DefaultTimeout, "stop a plugin that takes longer than `TIME`; 0 is no limit")
	flags.BoolVarP(&r.verbose, "verbose", "v", false, "tell on standard error what is done, with the time of each call of a plugin")
}

// clientFlags adds the flags of commands that use networks, plugins and records.
func (r *settings) clientFlags(cmd *cobra.Command) {
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.recordFlags(cmd)
}

// runtimeName is the runtime in the records of "tenon add".
const runtimeName = "tenon"

// client returns a client that does as the flags say.
func (r *settings) client() *network.Client {
	c := &network.Client{
		Caller: r.caller, PluginDirs: r.pluginDirs.list, StateDir: r.stateDir, CacheDir: cmp.Or(r.cacheDir, network.NoCacheDir), Runtime: runtimeName,
		Timeout: cmp.Or(r.timeout, -1), Log: slog.Default(),
	}
	if r.netDir != "" {
		// A broken policy refuses all networks it could forbid, with the reason.
		c.Policy, _ = config.LoadPolicy(r.netDir)
	}
	if r.verbose {
		r.logLevel.Set(slog.LevelDebug)
	}
	return c
}

// asRun returns a network in the version in which a client runs it, and unchanged where that cannot be told.
func asRun(ctx context.Context, c *network.Client, n *config.Network) (*config.Network, error) {
	g, err := c.Negotiate(ctx, n)
	if err != nil {
		return n, err
	}
	return n.WithVersion(g.Version), nil
}

// explain adds hints to an error of running a network's plugins; n may be nil.
func (r *settings) explain(err error, n *config.Network) error {
	if err == nil {
		return nil
	}
	var hints []string
	if n != nil {
		if cni.CodeOf(err) == cni.CodeInvalidConfig { // what a look-up has, also that of a plugin for its delegate
			hints = r.missingPlugins(n.List)
		}
		if cni.CodeOf(err) == cni.CodeTryAgainLater && usesHostLocal(n.List) {
			hints = append(hints, r.command("see who holds the addresses: ", "ipam", "list", n.Name),
				r.command("release addresses of containers that no longer exist: ", "prune"))
		}
	}
	if errors.Is(err, network.ErrNoRecord) {
		hints = append(hints, r.command("see what is attached: ", "ps"))
	}
	if errors.Is(err, network.ErrUnreadable) {
		hints = append(hints, "tenon del detaches what an unreadable record stands for if the network is configured")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		hints = append(hints, fmt.Sprintf("--timeout is %v; %s", r.timeout, r.again("allow more time: ", "--timeout", (2*r.timeout).String())))
	}
	return r.needsRoot(hint(err, hints...))
}

// needsRoot adds a hint to an error that may come from a want of privileges.
func (a *app) needsRoot(err error) error {
	// Causes do not come through the protocol.
	code := cni.CodeOf(err)
	denied := errors.Is(err, fs.ErrPermission) || code == cni.CodeInternal || code == cni.CodeIOFailure
	if err == nil || os.Geteuid() == 0 || !denied {
		return err
	}
	return hint(err, "you are not root, and this needs CAP_NET_ADMIN, CAP_SYS_ADMIN and access to directories of root: "+a.sudo())
}

// missingPlugins tells how to get the plugins of a list that are not installed.
func (r *settings) missingPlugins(l *cni.List) []string {
	var hints []string
	for _, typ := range l.Executables() {
		_, err := invoke.Find(r.pluginDirs.list, typ)
		switch near := text.Nearest(typ, builtInNames()); {
		case !errors.Is(err, invoke.ErrNotFound):
		case builtIn(typ) && len(r.pluginDirs.list) > 0:
			hints = append(hints, fmt.Sprintf("tenon has the plugin %s built in: %s", typ, commandLine("tenon", []string{"install", r.pluginDirs.list[0]})))
		case near != "":
			hints = append(hints, fmt.Sprintf("instead of %q, did you mean %q?", typ, near))
		}
	}
	return hints
}

func builtIn(name string) bool { return slices.Contains(builtInNames(), name) }

func usesHostLocal(l *cni.List) bool {
	for _, p := range l.Plugins {
		if p.IPAM == "host-local" {
			return true
		}
	}
	return false
}

// completeNetwork completes the name of a network as the only argument.
func (r *settings) completeNetwork(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := config.Discover(r.netDir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names(c), cobra.ShellCompDirectiveDefault
}

// completeAttachment completes the name of a network, then that of a namespace.
func (r *settings) completeAttachment(
	cmd *cobra.Command, args []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return namespaces(), cobra.ShellCompDirectiveDefault
	}
	return r.completeNetwork(cmd, args, word)
}
