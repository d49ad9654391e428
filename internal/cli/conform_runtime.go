package cli

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/ops/driver"
)

// ownDriver is the value of --driver for Tenon's own runtime.
const ownDriver = "tenon"

// runtimeJudging is a run of "tenon conform runtime".
type runtimeJudging struct {
	judging
	driver   string
	programs []string
}

func conformRuntime(a *app) *cobra.Command {
	r := &runtimeJudging{judging: judging{settings: settings{app: a}, scenarios: judge.RuntimeScenarios}}
	cmd := &cobra.Command{
		Use:   "runtime --driver PATH",
		Short: "Judge a runtime",
		Long: `Judges a runtime by the plugins that it calls: their order, variables and input, and
what the runtime makes of their results and errors. All plugins are scripted, record
each call, and create nothing.

A driver is a program that runs one verb of the runtime: its argument is add, check,
del, gc or status, and its standard input an object with the network, directories and
the attachment. add prints the result; a failure exits with 1 and prints an object
with code and msg; 3 means that the runtime lacks the verb. docs/conformance.md
describes the protocol and has a template. --driver tenon judges Tenon's own library.

The driver runs in namespaces in which /run, /tmp and /var are empty: name programs
from there that it needs with --program.

The exit status is 0 without a finding that the profile counts, 1 with findings, 2 for
wrong usage or wrong waivers, 3 if required checks could not be made or a file could
not be written.`,
		Example: `  tenon conform runtime --driver ./my-driver
  tenon conform runtime --driver ./my-driver --program ./my-runtime --jobs 1
  tenon conform runtime --driver tenon --list`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) },
	}
	r.cmd = cmd
	r.outputFlags(cmd, slices.Sorted(maps.Keys(reportFormats))...)
	r.flags(cmd)
	cmd.Flags().StringVar(&r.driver, "driver", "", "judge the runtime that the program `PATH` drives, or tenon")
	cmd.Flags().StringArrayVar(&r.programs, "program", nil,
		"put the program `PATH` into the PATH of the driver; repeatable")
	return cmd
}

func (r *runtimeJudging) run(ctx context.Context) error {
	if err := r.checkFlags(); err != nil {
		return err
	}
	d, err := r.find()
	if err != nil {
		return err
	}
	if r.list {
		return r.printCases(judge.ListRuntimes(ctx, []judge.Driver{d}, r.options))
	}
	out, err := r.judged(1, func(o judge.Options) (*report.Report, error) {
		return judge.Runtimes(ctx, []judge.Driver{d}, o)
	})
	if err != nil {
		return err
	}
	return r.conclude(out)
}

// find returns the driver of the flags.
func (r *runtimeJudging) find() (d judge.Driver, err error) {
	switch r.driver {
	case "":
		return d, hint(usagef("missing --driver PATH"), "docs/conformance.md has a template of a driver")
	case ownDriver:
		d.Path, err = os.Executable()
		d.Arguments = []string{"conform", "driver"}
	default:
		d.Path = r.driver
		if _, err := os.Stat(d.Path); err != nil {
			return d, usageError{err}
		}
	}
	for _, p := range r.programs {
		path, err := filepath.Abs(p)
		if err != nil {
			return d, err
		}
		if _, err := os.Stat(path); err != nil {
			return d, usageError{err}
		}
		d.Programs = append(d.Programs, path)
	}
	return d, err
}

// conformDriver is the driver of Tenon's own runtime.
func conformDriver(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "driver VERB",
		Short:             "Run a verb of Tenon's own runtime for the judge",
		Hidden:            true,
		Args:              arguments(1, "VERB"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if s := driver.Run(cmd.Context(), args[0], os.Stdin, a.stdout, nil); s != 0 {
				return exitStatus(s)
			}
			return nil
		},
	}
}
