// Package cli is the command line of tenon: commands, flags, and what they print. What they do is in packages network and
// internal/ops.
package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// app is one run of the program.
type app struct {
	version  string
	caller   invoke.Caller
	args     []string // as given to [Run], for hints
	stdout   *output
	stderr   *os.File
	logLevel slog.LevelVar // the lowest level at which messages of the library and plugins are printed
}

// Run runs the command that args name and returns the exit status: 0 for success, 1 for failure, 2 for a command line
// that makes no sense. caller calls plugins; version is that of the program.
func Run(args []string, version string, caller invoke.Caller) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if t, ok := invoke.TraceFromEnv(os.Getenv); ok {
		ctx = invoke.WithTrace(ctx, t)
	}
	a := &app{version: version, caller: caller, args: args, stdout: &output{file: os.Stdout}, stderr: os.Stderr}
	a.logLevel.Set(slog.LevelWarn)
	slog.SetDefault(slog.New(logHandler{w: a.stderr, least: &a.logLevel}))
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(cmd, err)
}

const (
	groupAttach = "attach"
	groupLook   = "look"
	groupSetUp  = "set up"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tenon",
		Short: "Attach containers to networks through CNI plugins",
		Long: `tenon attaches containers (network namespaces) to networks: it runs the CNI plugins that a network
configuration names and keeps a record of what it attached. The executable holds standard plugins
too; started under the name of one it is that plugin.

Environment:
  NETCONFPATH   default of --net-dir
  CNI_PATH      default of --plugin-dir
  CNI_ARGS      arguments for all plugins, KEY=VALUE;KEY=VALUE
  CNI_IFNAME    default of --ifname
  CAP_ARGS      capability arguments, a JSON object
  TENON_EXEC    "always" runs plugins as processes even if they are this executable
  NO_COLOR      not empty: no colours

Exit status: 0 success, 1 failure, 2 wrong usage.`,
		Example: `  tenon demo                    see it work; touches nothing on this machine
  tenon install /opt/cni/bin    put the plugins where runtimes look for them
  ip netns add web              make a network namespace
  tenon add pods web            attach it to the network "pods"
  tenon ps                      list what is attached
  tenon del pods web            detach it`,
		Version:       a.version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().Bool("version", false, "print the version of tenon")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: groupAttach, Title: "Attach:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupSetUp, Title: "Set up:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupAttach, a.add(), a.del(), a.check(), a.gc(), a.prune(), a.recover(), a.repair())
	add(groupLook, a.ps(), a.inspect(), a.net(), a.ipam(), a.dhcp(), a.status(), a.versions())
	add(groupSetUp, a.install(), a.uninstall(), a.plugin(), a.dhcpDaemon(), a.demo())
	root.SetCompletionCommandGroupID(groupSetUp)
	root.SetHelpCommandGroupID(groupSetUp)
	return parent(root)
}

// parent makes a command that only has subcommands print its help, and suggest one where it is misspelt.
func parent(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		return unknown("command", args[0], names)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// arguments demands at least so many arguments, and no more than there are names for.
func arguments(least int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return usagef("missing %s", strings.Join(names[len(args):least], " and "))
		}
		if len(args) > len(names) {
			return usagef("argument %q is one too many", args[len(names)])
		}
		return nil
	}
}

// keyEntry is the key of an attachment as JSON.
type keyEntry struct {
	Network   string `json:"network"`
	Container string `json:"containerID"`
	IfName    string `json:"ifname"`
}

func (e keyEntry) key() cni.Attachment { return cni.Attachment(e) }

// print prints v as JSON if --json is set, and otherwise calls text, which prints the same for people.
func (r *settings) print(v any, text func() error) error {
	if r.json {
		return r.printJSON(v)
	}
	return text()
}

// printJSON prints v, indented.
func (a *app) printJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", text)
	return err
}
