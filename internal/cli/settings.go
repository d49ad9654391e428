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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/format"
	"github.com/tenon-cni/tenon/internal/ops/spelling"
	"github.com/tenon-cni/tenon/internal/ops/traceview"
	"github.com/tenon-cni/tenon/internal/program"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugins/all"
)

// settings holds the flags of commands that load networks or run plugins.
type settings struct {
	*app
	cmd        *cobra.Command // for hints
	netDir     string
	pluginDirs directories
	stateDir   string
	cacheDir   string
	timeout    time.Duration
	output     format.Output
	verbose    bool
	from       string // a support bundle to work on, "" for this host
}

// directories is a flag with a list of directories, as in PATH. It may be repeated.
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
		return errors.New("the directory is empty")
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
		"read network configurations from `DIR` [NETCONFPATH]")
	common(cmd, "net-dir")
}

// ignoredNetDirFlag adds --net-dir to a command that does not need it, so that users can give the
// same flags to all commands.
func (r *settings) ignoredNetDirFlag(cmd *cobra.Command) {
	cmd.Flags().String("net-dir", "", "has no effect")
	_ = cmd.Flags().MarkHidden("net-dir") // fails only if the flag does not exist
}

func (r *settings) stateDirFlag(cmd *cobra.Command) {
	r.cmd = cmd
	cmd.Flags().StringVar(&r.stateDir, "state-dir", network.DefaultStateDir,
		"keep attachment records and locks in `DIR`")
	common(cmd, "state-dir")
}

// recordFlags adds the flags of commands that read attachment records.
func (r *settings) recordFlags(cmd *cobra.Command) {
	r.stateDirFlag(cmd)
	cmd.Flags().StringVar(&r.cacheDir, "cache-dir", network.DefaultCacheDir,
		"read attachments of libcni (cnitool, CRI-O, Podman) from `DIR`; \"\": ignore them")
	common(cmd, "cache-dir")
}

func (r *settings) pluginDirFlag(cmd *cobra.Command) {
	r.cmd = cmd
	r.pluginDirs.list = filepath.SplitList(cmp.Or(os.Getenv("CNI_PATH"), network.DefaultPluginDir))
	cmd.Flags().Var(&r.pluginDirs, "plugin-dir",
		"look for plugins in DIRS, separated by colons; repeatable [CNI_PATH]")
	common(cmd, "plugin-dir")
}

// pluginFlags adds the flags of commands that run plugins.
func (r *settings) pluginFlags(cmd *cobra.Command) {
	r.pluginDirFlag(cmd)
	flags := cmd.Flags()
	flags.DurationVar(
		&r.timeout,
		"timeout",
		network.DefaultTimeout,
		"stop plugins that run longer than `TIME`; 0: no limit",
	)
	flags.BoolVarP(
		&r.verbose,
		"verbose",
		"v",
		false,
		"log each plugin call and its duration to standard error",
	)
	common(cmd, "timeout", "verbose")
}

// clientFlags adds the flags of commands that use networks, plugins and records.
func (r *settings) clientFlags(cmd *cobra.Command) {
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.recordFlags(cmd)
}

// runtimeName is the runtime in the records that "tenon add" writes.
const runtimeName = "tenon"

// client returns a client that is configured by the flags.
func (r *settings) client() *network.Client {
	c := &network.Client{
		Caller: r.caller, PluginDirs: r.pluginDirs.list, StateDir: r.stateDir, CacheDir: cmp.Or(r.cacheDir, network.NoCacheDir), Runtime: runtimeName,
		Timeout: cmp.Or(r.timeout, -1), Log: slog.Default(), Journal: r.journal().Dir,
	}
	if r.tracing {
		c.Observer = traceview.Observer{}
	}
	if r.netDir != "" {
		// The error is in the policy itself: it refuses every network that it may forbid.
		c.Policy, _ = config.LoadPolicy(r.netDir)
	}
	if r.verbose {
		r.logLevel.Set(slog.LevelDebug)
	}
	return c
}

// asRun returns a network in the version in which the client runs it. If the plugins cannot be
// asked, it returns the network unchanged and an error.
func asRun(ctx context.Context, c *network.Client, n *config.Network) (*config.Network, error) {
	g, err := c.Negotiate(ctx, n)
	if err != nil {
		return n, err
	}
	return n.WithVersion(g.Version), nil
}

// explain adds hints to an error of a network's plugins; n may be nil.
func (r *settings) explain(err error, n *config.Network) error {
	if err == nil {
		return nil
	}
	var hints []string
	if n != nil {
		if cni.CodeOf(err) == cni.CodeInvalidConfig { // also if a plugin does not find its delegate
			hints = r.missingPlugins(n.List)
		}
		if cni.CodeOf(err) == cni.CodeTryAgainLater && usesHostLocal(n.List) {
			hints = append(
				hints,
				r.command("list the holders of the addresses: ", "ipam", "list", n.Name),
				r.command("find and release leaked addresses: ", "doctor", "addresses", "--fix"),
			)
		}
	}
	if errors.Is(err, network.ErrNoRecord) {
		hints = append(hints, r.command("list attachments: ", "ps"))
	}
	if errors.Is(err, network.ErrUnreadable) {
		hints = append(
			hints,
			"run tenon del to detach the container of an unreadable record, if its network is still configured",
		)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if r.timeout > 0 {
			hints = append(
				hints,
				fmt.Sprintf(
					"--timeout is %v; %s",
					r.timeout,
					r.again("allow more time: ", "--timeout", (2*r.timeout).String()),
				),
			)
		}
	}
	return r.needsRoot(hint(err, hints...))
}

// needsRoot adds a hint to an error that missing privileges may have caused.
func (a *app) needsRoot(err error) error {
	// A plugin reports a code only, not the system error behind it.
	code := cni.CodeOf(err)
	denied := errors.Is(err, fs.ErrPermission) || code == cni.CodeInternal ||
		code == cni.CodeIOFailure
	if err == nil || os.Geteuid() == 0 || !denied {
		return err
	}
	return hint(
		err,
		"this needs CAP_NET_ADMIN, CAP_SYS_ADMIN and access to root's directories; run it as root: "+a.sudo(),
	)
}

// missingPlugins returns hints on how to install the plugins of a list that are missing.
func (r *settings) missingPlugins(l *cni.List) []string {
	var hints []string
	for _, typ := range l.Executables() {
		_, err := invoke.Find(r.pluginDirs.list, typ)
		switch near := spelling.Nearest(typ, pluginNames()); {
		case !errors.Is(err, invoke.ErrNotFound):
		case all.Find(typ) != nil && len(r.pluginDirs.list) > 0:
			hints = append(hints, installHint(typ, r.pluginDirs.list[0]))
		case near != "":
			hints = append(hints, fmt.Sprintf("plugin type %q: did you mean %q?", typ, near))
		}
	}
	return hints
}

// installHint suggests how to install a plugin of Tenon.
func installHint(typ, dir string) string {
	command := commandLine("tenon", []string{"install", dir})
	p, separate := all.FindProgram(typ)
	if !separate {
		return fmt.Sprintf("install %s, which is built into tenon: %s", typ, command)
	}
	var missing *program.MissingError
	if _, err := program.Find(p.Program); errors.As(err, &missing) {
		return missing.Hint()
	}
	return fmt.Sprintf("install %s: %s", typ, command)
}

func usesHostLocal(l *cni.List) bool {
	for _, p := range l.Plugins {
		if p.IPAM == "host-local" {
			return true
		}
	}
	return false
}

// completeNetwork completes the name of a network, the only argument.
func (r *settings) completeNetwork(
	_ *cobra.Command,
	args []string,
	_ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := config.Discover(r.netDir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names(c), cobra.ShellCompDirectiveDefault
}

// completeAttachment completes the name of a network, then the name of a namespace.
func (r *settings) completeAttachment(
	cmd *cobra.Command, args []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return namespaces(), cobra.ShellCompDirectiveDefault
	}
	return r.completeNetwork(cmd, args, word)
}
