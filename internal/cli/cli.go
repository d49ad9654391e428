// Package cli is the command line of tenon: its commands, flags and output. Packages network and
// internal/ops do the work.
package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// app is one run of the program.
type app struct {
	version  string
	caller   invoke.Caller // its plugin processes log through [pluginLog]
	plain    invoke.Caller // as given to [Run]
	args     []string      // as given to [Run], for hints
	stdout   *output
	stderr   *output
	logLevel slog.LevelVar // lowest level of printed messages of the library and plugins
	tracing  bool          // operations are recorded
	// described are the plugins that repair attachments, nil for [all.Described].
	described []plugin.Definition
}

// Run runs the command that args name. It returns the exit status: 0 for success, 1 for failure, 2
// for wrong usage. caller calls plugins; version is the version of the program.
func Run(args []string, version string, caller invoke.Caller) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if t, ok := invoke.TraceFromEnv(os.Getenv); ok {
		ctx = invoke.WithTrace(ctx, t)
	}
	a := &app{
		version: version,
		plain:   caller,
		args:    args,
		stdout:  newOutput(os.Stdout),
		stderr:  newOutput(os.Stderr),
	}
	a.logLevel.Set(slog.LevelWarn)
	plugins := &pluginLog{w: a.stderr, least: &a.logLevel}
	defer plugins.Close()
	a.caller = withStderr(caller, plugins)
	slog.SetDefault(slog.New(logHandler{w: a.stderr, least: &a.logLevel}))
	ctx, endTrace := a.recordTo(ctx, os.Getenv(trace.Variable))
	defer endTrace()
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(cmd, err)
}

// Root returns the command tree, for manual pages and completions.
func Root(version string) *cobra.Command {
	a := &app{version: version, stdout: newOutput(os.Stdout), stderr: newOutput(os.Stderr)}
	return a.root()
}

const (
	groupAttach = "attach"
	groupLook   = "inspect"
	groupSetUp  = "set up"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tenon",
		Short: "Attach containers to networks through CNI plugins",
		Long: `tenon attaches containers (network namespaces) to networks: it runs the CNI
plugins that a network configuration names and records each attachment. The
binary also contains the standard plugins; started under the name of a plugin,
it acts as that plugin.

Environment:
  NETCONFPATH   default of --net-dir
  CNI_PATH      default of --plugin-dir
  CNI_ARGS      arguments for all plugins, KEY=VALUE;KEY=VALUE
  CNI_IFNAME    default of --ifname
  CAP_ARGS      capability arguments, a JSON object
  TENON_EXEC    "always" runs built-in plugins as separate processes
  TENON_JOURNAL directory of the journal, instead of "journal" in --state-dir;
                "off" records no operations
  TENON_TRACE   append each step of operations to this file; see tenon trace
  NO_COLOR      any value turns colours off

Exit status: 0 success, 1 failure, 2 wrong usage.`,
		Example: `  tenon demo                          watch it work; changes nothing here
  tenon install /opt/cni/bin          install the plugins for all runtimes
  tenon net new pods --type bridge    write a network configuration
  ip netns add web                    create a network namespace
  tenon add pods web                  attach it to the network "pods"
  tenon ps                            list attachments
  tenon del pods web                  detach it`,
		Version:       a.version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().Bool("version", false, "print the version of tenon")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetFlagErrorFunc(a.flagError)
	a.setHelp(root)
	root.AddGroup(
		&cobra.Group{ID: groupAttach, Title: "Attachments:"},
		&cobra.Group{ID: groupLook, Title: "Inspect and configure:"},
		&cobra.Group{ID: groupSetUp, Title: "Set up:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupAttach, a.add(), a.del(), a.check(), a.gc(), a.prune(), a.recover(), a.repair(), a.watch())
	add(groupLook, a.ps(), a.inspect(), a.doctor(), a.hostMap(), a.why(), a.plan(), a.logs(), a.history(), a.trace(), a.supportBundle(), a.net(), a.ipam(), a.dhcp(), a.cluster(), a.status(), a.versions())
	add(
		groupSetUp,
		a.install(),
		a.uninstall(),
		a.node(),
		a.plugin(),
		a.dhcpDaemon(),
		a.demo(),
		a.conform(),
		a.flagsTopic(),
	)
	root.AddCommand(a.planInside())
	strictHelp(root)
	root.SetCompletionCommandGroupID(groupSetUp)
	root.SetHelpCommandGroupID(groupSetUp)
	return parent(root)
}

// parent makes a command that only has subcommands print its help, and suggest one for an unknown
// word.
func parent(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// arguments requires at least least arguments, and at most as many as there are names.
func arguments(least int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return usagef("missing %s", strings.Join(names[len(args):least], " and "))
		}
		if len(args) > len(names) {
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// plugins returns the plugins that repair attachments.
func (a *app) plugins() []plugin.Definition {
	if a.described != nil {
		return a.described
	}
	return all.Described()
}

// keyEntry is the key of an attachment as JSON.
type keyEntry struct {
	Network   string `json:"network"`
	Container string `json:"containerID"`
	IfName    string `json:"ifname"`
}

func (e keyEntry) key() cni.Attachment { return cni.Attachment(e) }
