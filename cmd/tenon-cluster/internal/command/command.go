// Package command is the command line of tenon-cluster: commands, flags and output. Package
// registry makes the transactions, and package local reads the state of the node.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ops/flags"
)

// Exit statuses.
const (
	statusFailure = 1
	statusUsage   = 2
)

// Environment is the process in which a command runs.
type Environment struct {
	Version string
	Lookup  func(name string) (string, bool)
	Stdin   io.Reader
	Stdout  io.Writer // with a method Width, tables fit it; see package text
	Stderr  io.Writer
	Now     func() time.Time // time.Now if nil
	// Connect opens the store; nil connects to etcd.
	Connect func(ctx context.Context, s settings.Settings) (Store, error)
	// Agent runs the agent until ctx ends.
	Agent func(ctx context.Context, s settings.Settings, log *slog.Logger) error
	// Remove removes the routes and devices that the agent has made on this node.
	Remove func(ctx context.Context, s settings.Settings, log *slog.Logger) error
}

// app is one run of the program.
type app struct {
	Environment
	name string
	json bool
	yes  bool
}

// Run runs the command that args name. It returns the exit status: 0 for success, 1 for failure and
// for findings of check, 2 for wrong usage.
func Run(ctx context.Context, args []string, e Environment) int {
	a := &app{Environment: e, name: cluster.Program}
	if name, ok := e.Lookup(cluster.CalledAs); ok {
		a.name = name
	}
	if a.Now == nil {
		a.Now = time.Now
	}
	if a.Connect == nil {
		a.Connect = connect
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(cmd, err)
}

// Root returns the tree of commands, for the manual pages and completions.
func Root(e Environment) *cobra.Command {
	return (&app{Environment: e, name: cluster.Program}).root()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   cluster.Program,
		Short: "Share address pools among the nodes of a cluster",
		Long: `Manages the address pools, nodes and blocks that a cluster keeps in etcd, and runs
the agent of a node. The IPAM plugin "cluster" allocates from the node's blocks
without etcd; see docs/cluster.md.

Settings come from ` + settings.DefaultFile + `, then from environment variables
TENON_CLUSTER_ENDPOINTS, TENON_CLUSTER_CA and so on, then from flags.

Exit status: 0 success, 1 failure or findings, 2 wrong usage.`,
		Example: a.examples(
			"init --endpoints http://10.0.0.1:2379",
			"pool create pods 10.64.0.0/12",
			"status",
			"blocks --node n7",
			"release --node n7 --evidence 'powered off' --dry-run"),
		Version:       a.Version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: a.name},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetUsageTemplate(a.usageTemplate(root.UsageTemplate()))
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flags.Explain(err)} })
	settings.AddFlags(root.PersistentFlags())
	root.AddCommand(a.init(), a.pool(), a.status(), a.pools(), a.blocks(), a.release(), a.fence(),
		a.node(), a.confirm(), a.check(), a.migrate(), a.agent())
	return parent(root)
}

// usageTemplate limits the width of help. Only the help of the program explains the settings, which
// all commands share.
func (a *app) usageTemplate(template string) string {
	template = strings.ReplaceAll(template, "LocalFlags.FlagUsages", "LocalFlags.FlagUsagesWrapped 80")
	const inherited = "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	template = strings.ReplaceAll(template, "Global Flags:", "Settings:")
	return strings.ReplaceAll(template, inherited,
		"  The flags for settings work with each command; see "+a.name+" --help.")
}

// examples formats commands for help.
func (a *app) examples(lines ...string) string {
	for i, l := range lines {
		lines[i] = "  " + a.name + " " + l
	}
	return strings.Join(lines, "\n")
}

// parent makes a command that only has subcommands print its help, and suggest one for an unknown
// word.
func parent(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		return usageError{suggest(fmt.Errorf("unknown command %q", args[0]), args[0], names)}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// arguments requires an argument for each name; names in brackets are optional.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return usagef("unexpected argument %q", args[len(names)])
		}
		if len(args) < len(names) && !strings.HasPrefix(names[len(args)], "[") {
			return usagef("missing %s", strings.Join(names[len(args):], " and "))
		}
		return nil
	}
}

// exitStatus is an error that ends the program with this status and prints nothing.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// hinted is an error with hints.
type hinted struct {
	error
	hints []string
}

func (h hinted) Unwrap() error { return h.error }

func hint(err error, hints ...string) error {
	if err == nil || len(hints) == 0 {
		return err
	}
	return hinted{err, hints}
}

// report prints an error and its hints, and returns the exit status.
func (a *app) report(cmd *cobra.Command, err error) int {
	status := exitStatus(statusFailure)
	usage := usageError{}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	path := cmd.CommandPath()
	object := cni.AsError(err)
	lines := strings.Split(strings.TrimSpace(object.Msg), "\n")
	fmt.Fprintf(a.Stderr, "%s: %s\n", path, lines[0])
	for _, line := range lines[1:] {
		fmt.Fprintf(a.Stderr, "  and %s\n", line)
	}
	if object.Details != "" {
		a.hint(object.Details)
	}
	if h := (hinted{}); errors.As(err, &h) {
		for _, text := range h.hints {
			a.hint(text)
		}
	}
	if errors.As(err, &usage) {
		a.hint(path + " --help")
		return statusUsage
	}
	if a.json {
		fmt.Fprintf(a.Stdout, "%s\n", object.Encode(cni.Newest))
	}
	return statusFailure
}

func (a *app) hint(text string) { fmt.Fprintf(a.Stderr, "hint: %s\n", text) }

func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "warning: %s\n", fmt.Sprintf(format, args...))
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.Stdout, format, args...) }

// jsonFlag adds --json to a command.
func (a *app) jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// yesFlag adds --yes to a command that asks for confirmation.
func (a *app) yesFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// print prints v as JSON with --json; otherwise it calls text.
func (a *app) print(v any, text func() error) error {
	if !a.json {
		return text()
	}
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "%s\n", content)
	return err
}

// confirmed asks a question unless --yes is given. Without an answer the command does nothing.
func (a *app) confirmed(question string) error {
	if a.yes {
		return nil
	}
	fmt.Fprintf(a.Stderr, "%s [y/N] ", question)
	var answer string
	_, err := fmt.Fscanln(a.Stdin, &answer)
	if err != nil {
		fmt.Fprintln(a.Stderr)
	}
	if err != nil || !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return hint(errors.New("not confirmed; nothing was changed"),
			"add --yes to run without a question")
	}
	return nil
}

// author names the operator in the records of etcd.
func (a *app) author(s settings.Settings) string {
	for _, name := range []string{"SUDO_USER", "USER"} {
		if user, ok := a.Lookup(name); ok && user != "" {
			return user + "@" + s.Node
		}
	}
	return "root@" + s.Node
}

// session is a command that uses the store.
type session struct {
	settings settings.Settings
	store    Store
	registry *registry.Registry
}

// run is the body of a command that uses the store.
type run func(ctx context.Context, s *session, args []string) error

// withStore opens the store, runs a command and explains its error.
func (a *app) withStore(body run) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		conf, err := settings.Load(cmd.Flags(), a.Lookup)
		if err != nil {
			return err
		}
		err = a.connected(cmd.Context(), conf, func(s *session) error {
			return body(cmd.Context(), s, args)
		})
		return a.explain(cmd.Context(), conf, err)
	}
}

// connected calls body with a connection to the store.
func (a *app) connected(
	ctx context.Context, conf settings.Settings, body func(*session) error,
) error {
	store, err := a.Connect(ctx, conf)
	if err != nil {
		return err
	}
	defer store.Close()
	o := registry.Options{Cluster: conf.Cluster, Now: a.Now}
	return body(&session{conf, store, registry.New(store, o)})
}

// local returns the state of this node.
func (s *session) local() *local.Store { return local.New(local.Options{Dir: s.settings.Dir}) }
