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

// lintSettings are the flags of net lint.
type lintSettings struct {
	*settings
	strict, offline bool
}

func (a *app) netLint() *cobra.Command {
	r := &lintSettings{settings: &settings{app: a}}
	cmd := &cobra.Command{
		Use:   "lint [NETWORK|FILE|DIR]",
		Short: "Find mistakes in network configurations",
		Long: `Looks through the configurations in --net-dir, in DIR or in FILE, or at one NETWORK, for what will
not work or is probably not meant: keys that nobody reads, wrong types, options and address ranges that
the plugins refuse, plugins that are missing or too old, files that no runtime looks at, networks that
get into each other's way or lack what ` + config.PolicyName + ` requires. An argument with a slash is a path.

Plugins of tenon are asked what they accept; of others only what holds for all plugins is checked. All
are asked for their versions (VERSION), which --offline leaves out. Nothing is changed or attached.

A finding is printed as FILE:LINE:COLUMN: SEVERITY: what [rule], and what helps on the next line. An
error keeps a network from working, a warning is probably not meant, an info is good to know. The exit
status is 1 if there are errors; with --strict also if there are warnings.`,
		Example: `  tenon net lint
  tenon net lint pods
  tenon net lint --offline --strict ./my-network.conflist`,
		Args:              arguments(0, "NETWORK, FILE or DIR"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := r.lint(cmd.Context(), args)
			if err != nil {
				return err
			}
			return r.printFindings(found)
		},
	}
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.jsonFlag(cmd, "print the findings as JSON")
	cmd.Flags().BoolVar(&r.strict, "strict", false, "fail if there are warnings, too")
	cmd.Flags().BoolVar(&r.offline, "offline", false, "do not look for the plugins, nor ask them for their versions")
	return cmd
}

// lint returns what is found in what args name.
func (r *lintSettings) lint(ctx context.Context, args []string) ([]lint.Finding, error) {
	if len(args) > 0 && isPath(args[0]) {
		c, err := r.readPath(args[0])
		if err != nil {
			return nil, err
		}
		return lint.Check(c, r.asker(ctx)), nil
	}
	c, err := lint.Read(r.netDir)
	if err != nil {
		return nil, r.needsRoot(err)
	}
	found := lint.Check(c, r.asker(ctx))
	if len(args) > 0 {
		name := args[0]
		_, _, err := c.Lookup(name)
		if err != nil && !slices.ContainsFunc(c.Candidates(), func(f config.File) bool { return f.Name == name }) {
			return nil, r.notFound(err, c, name)
		}
		return slices.DeleteFunc(found, func(f lint.Finding) bool { return f.Network != name }), nil
	}
	if len(found) == 0 {
		_, err = r.requireNetworks(c)
	}
	return found, err
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

// asker asks the plugins for their versions, if that is wanted.
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

func (r *lintSettings) printFindings(found []lint.Finding) error {
	if r.json {
		if found == nil {
			found = []lint.Finding{}
		}
		if err := r.printJSON(found); err != nil {
			return err
		}
	}
	worst := lint.Severity(0)
	for _, f := range found {
		worst = max(worst, f.Severity)
		if r.json {
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
