package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/lint"
	"github.com/tenon-cni/tenon/internal/ops/text"
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
get into each other's way. An argument with a slash is a path.

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
	read, path, name := lint.ReadDir, r.netDir, ""
	if len(args) > 0 && isPath(args[0]) {
		path = args[0]
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			read = lint.ReadFile
		}
	} else if len(args) > 0 {
		name = args[0]
	}
	files, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == r.netDir:
		return nil, hint(cni.Errorf(cni.CodeInvalidConfig, "%s: no such folder", path), r.elsewhere())
	case err != nil:
		return nil, cni.Errorf(cni.CodeIOFailure, "%s: %w", path, err)
	}
	found := lint.Check(files, r.executables(ctx, lint.Types(files)))
	if name == "" {
		return found, nil
	}
	if names := lint.Networks(files); !slices.Contains(names, name) {
		err := hint(cni.Errorf(cni.CodeInvalidConfig, "there is no network %q in %s", name, path), r.elsewhere())
		if near := text.Nearest(name, names); near != "" {
			err = hint(err, fmt.Sprintf("did you mean %q?", near))
		}
		return nil, err
	}
	return slices.DeleteFunc(found, func(f lint.Finding) bool { return f.Network != name }), nil
}

// executables asks the plugins for their versions.
func (r *lintSettings) executables(ctx context.Context, types []string) map[string]lint.Executable {
	if r.offline {
		return nil
	}
	client := r.client()
	all := map[string]lint.Executable{}
	for _, typ := range types {
		reply, err := client.Versions(ctx, typ)
		all[typ] = lint.Executable{Versions: reply.Supported, Err: err}
	}
	return all
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
