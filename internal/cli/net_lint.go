package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/lint"
	"github.com/tenon-cni/tenon/network/config"
)

// lintSettings holds the flags of net lint.
type lintSettings struct {
	*settings
	strict, offline bool
}

func (a *app) netLint() *cobra.Command {
	r := &lintSettings{settings: &settings{app: a}}
	cmd := &cobra.Command{
		Use:   "lint [NETWORK|FILE|DIR]",
		Short: "Find mistakes in network configurations",
		Long: `Finds mistakes in the configurations in --net-dir, in DIR or FILE, or in one
NETWORK: unknown keys, wrong types, options and address ranges that the plugins
refuse, missing or outdated plugins, files that runtimes ignore, networks that
conflict with each other or violate ` + config.PolicyName + `. An argument with a
slash is a path.

Checks all options of Tenon's plugins, and of other plugins the options that all
plugins share. Asks plugins for their versions, unless --offline is given.
Changes nothing.

Prints each finding as FILE:LINE:COLUMN: SEVERITY: MESSAGE [RULE], and a hint on
the next line. An error keeps a network from working; a warning is probably a
mistake; an info is good to know. The exit status is 1 if there are errors or,
with --strict, warnings.`,
		Example: `  tenon net lint
  tenon net lint pods
  tenon net lint --offline --strict ./my-network.conflist`,
		Args:              arguments(0, "NETWORK, FILE or DIR"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, networks, err := r.lint(cmd.Context(), args)
			if err != nil {
				return err
			}
			return r.printFindings(found, networks)
		},
	}
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.outputFlags(cmd)
	cmd.Flags().BoolVar(&r.strict, "strict", false, "exit with status 1 on warnings, too")
	cmd.Flags().BoolVar(&r.offline, "offline", false,
		"do not look for plugins or ask them for their versions")
	return cmd
}

// lint returns the findings in the network, file or directory that args name, and the number of
// networks that it has checked.
func (r *lintSettings) lint(ctx context.Context, args []string) ([]lint.Finding, int, error) {
	if len(args) > 0 && isPath(args[0]) {
		c, err := r.readPath(args[0])
		if err != nil {
			return nil, 0, err
		}
		return lint.Check(c, r.asker(ctx)), len(names(c)), nil
	}
	c, err := lint.Read(r.netDir)
	if err != nil {
		return nil, 0, r.needsRoot(err)
	}
	found := lint.Check(c, r.asker(ctx))
	if len(args) > 0 {
		name := args[0]
		_, _, err := c.Lookup(name)
		if err != nil &&
			!slices.ContainsFunc(
				c.Candidates(),
				func(f config.File) bool { return f.Name == name },
			) {
			return nil, 0, r.notFound(err, c, name)
		}
		return slices.DeleteFunc(
			found,
			func(f lint.Finding) bool { return f.Network != name },
		), 1, nil
	}
	if len(found) == 0 {
		_, err = r.requireNetworks(c)
	}
	return found, len(names(c)), err
}

// readPath reads a directory or a file.
func (r *lintSettings) readPath(path string) (*config.Catalog, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, r.needsRoot(cni.Errorf(cni.CodeIOFailure, "%s: %w", path, errors.Unwrap(err)))
	case info.IsDir():
		return lint.Read(path)
	default:
		return config.DiscoverFile(path), nil
	}
}

// asker returns a function that asks plugins for their versions, or nil with --offline.
func (r *lintSettings) asker(ctx context.Context) lint.Ask {
	if r.offline {
		return nil
	}
	client := r.client()
	return func(typ string) ([]string, error) {
		reply, err := client.Versions(ctx, typ)
		return reply.Supported, err
	}
}

func (r *lintSettings) printFindings(found []lint.Finding, networks int) error {
	if r.output.Structured() {
		if found == nil {
			found = []lint.Finding{}
		}
		if err := r.printValue(found); err != nil {
			return err
		}
	}
	if len(found) == 0 && !r.output.Structured() {
		_, err := fmt.Fprintf(r.stdout, "%s, no findings\n", count(networks, "network"))
		return err
	}
	worst := lint.Severity(0)
	for _, f := range found {
		worst = max(worst, f.Severity)
		if r.output.Structured() {
			continue
		}
		fmt.Fprintln(r.stdout, f)
		if f.Hint != "" {
			fmt.Fprintf(r.stdout, "  hint: %s\n", f.Hint)
		}
	}
	if worst == lint.Error || r.strict && worst == lint.Warning {
		return exitStatus(statusFailure)
	}
	return nil
}
