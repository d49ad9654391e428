package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/format"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/traceview"
	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/invoke"
)

// tracing holds the flags of commands that print traces.
type tracing struct {
	settings
	html string
	otlp string
}

func (t *tracing) flags(cmd *cobra.Command) {
	if cmd.Flags().Lookup("json") == nil {
		t.outputFlags(cmd)
	}
	cmd.Flags().Lookup("json").Usage = "print the spans as JSON of OTLP"
	cmd.Flags().StringVar(&t.html, "html", "",
		"write the trace as a page with a waterfall to `FILE`")
	cmd.Flags().StringVar(&t.otlp, "otlp", "", "write the spans as JSON of OTLP to `FILE`")
}

func (a *app) trace() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Run or show an operation step by step, with times",
		Long: `Shows an operation as a tree: the calls of plugins with the differences between
their input and result, every change of the kernel with its netlink messages or
nftables elements, waits, errors, and the steps of a rollback. Each step has three
times in milliseconds: total, its own time without the steps below it, and the part
of the total spent waiting for locks and events.

"tenon trace add", "del" and "check" run the operation. "tenon trace show" prints
operations that a runtime has run: set TENON_TRACE in its environment to the absolute
path of a file, and each plugin appends its steps there.`,
	}
	cmd.AddCommand(
		a.traced(a.add(), "Attach a container to a network and show each step",
			`Runs "tenon add" and prints the steps instead of the result.`,
			"tenon trace add pods web"),
		a.traced(a.del(), "Detach a container from a network and show each step",
			`Runs "tenon del" and prints its steps.`, "tenon trace del pods web"),
		a.traced(a.check(), "Check an attachment and show each step",
			`Runs "tenon check" and prints its steps.`, "tenon trace check pods web"),
		a.traceShow(),
	)
	return parent(cmd)
}

// traced turns a command that runs an operation into the command that traces it.
func (a *app) traced(cmd *cobra.Command, short, long, example string) *cobra.Command {
	t := &tracing{settings: settings{app: a}}
	t.flags(cmd)
	cmd.Short = short
	cmd.Long = long + `
After a failure, prints the steps up to the failure and their reversal. --json
prints the spans as JSON of OTLP instead.

Exit status: as of the command without "trace".`
	cmd.Example = fmt.Sprintf("  %s\n  %[1]s --html trace.html\n  %[1]s --json", example)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked := outputOf(cmd)
		t.output = *asked
		operations, err := a.recorded(cmd, func() error {
			*asked = format.Output{} // is for the spans, not for the result of the operation
			defer func() { *asked = t.output }()
			return run(cmd, args)
		})
		if len(operations) == 0 {
			return err
		}
		if failed := t.show(operations); failed != nil {
			return errors.Join(failed, err)
		}
		return a.unfinished(cmd, err)
	}
	return cmd
}

// recorded calls run without its output and returns the operations that it ran.
func (a *app) recorded(cmd *cobra.Command, run func() error) ([]*traceview.Span, error) {
	dir, err := os.MkdirTemp("", "tenon-trace-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "spans")
	ctx, end := a.recordTo(cmd.Context(), file)
	cmd.SetContext(ctx)
	a.stdout.capture = io.Discard
	err = run()
	a.stdout.capture = nil
	end()
	operations, failed := a.readTrace(file)
	return operations, errors.Join(err, failed)
}

// recordTo makes commands with the returned context record their operations in a file, unless path
// is empty. end must be called.
func (a *app) recordTo(ctx context.Context, path string) (_ context.Context, end func()) {
	if path == "" {
		return ctx, func() {}
	}
	warn := func(err error) { a.warn("%v", err) }
	parent, _ := invoke.TraceFrom(ctx)
	ctx, end, err := trace.Open(ctx, path, parent.Parent, warn)
	if err != nil {
		warn(err)
		return ctx, func() {}
	}
	a.tracing = true
	return ctx, end
}

// readTrace returns the operations in a file.
func (a *app) readTrace(path string) ([]*traceview.Span, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	operations, damaged, err := traceview.Read(f)
	if damaged > 0 {
		a.warn("%s: skipped %s without a span", path, plural.Count(damaged, "line"))
	}
	return operations, err
}

// show prints operations and writes them to the files that flags name.
func (t *tracing) show(operations []*traceview.Span) error {
	host, _ := os.Hostname()
	otlp := traceview.Export(operations, host, t.version)
	if t.otlp != "" {
		encoded, err := json.Marshal(otlp)
		if err == nil {
			err = os.WriteFile(t.otlp, append(encoded, '\n'), 0o600)
		}
		if err != nil {
			return err
		}
	}
	if t.html != "" {
		var page bytes.Buffer
		err := traceview.HTML(&page, operations)
		if err == nil {
			err = os.WriteFile(t.html, page.Bytes(), 0o600)
		}
		if err != nil {
			return err
		}
	}
	return t.print(otlp, func() error {
		for i, o := range operations {
			if i > 0 {
				fmt.Fprintln(t.stdout)
			}
			if err := text.Trace(t.stdout, traceview.Steps(o)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) traceShow() *cobra.Command {
	t := &tracing{settings: settings{app: a}}
	list, slowest := false, false
	cmd := &cobra.Command{
		Use:   "show FILE [CONTAINER]",
		Short: "Show an operation from a file of TENON_TRACE",
		Long: `Prints the last operation in a file that plugins have written because of the
environment variable TENON_TRACE, or the last one of a container. Plugins that a
runtime has called one after another form one operation. --json prints the spans as
JSON of OTLP.`,
		Example: `  tenon trace show /run/cni.trace --list
  tenon trace show /run/cni.trace web
  tenon trace show /run/cni.trace --slowest --html trace.html`,
		Args: arguments(1, "FILE", "CONTAINER"),
		ValidArgsFunction: func(
			_ *cobra.Command, args []string, _ string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.tracedContainers(args[0]), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if list && slowest {
				return usagef("give either --list or --slowest")
			}
			operations, err := a.readTrace(args[0])
			if err != nil {
				return hint(err, "plugins write to the file in TENON_TRACE: set that variable in the "+
					"environment of the runtime")
			}
			if len(args) > 1 {
				operations = slices.DeleteFunc(operations, func(o *traceview.Span) bool {
					return o.Text(trace.ContainerID) != args[1]
				})
			}
			switch {
			case len(operations) == 0 && len(args) > 1:
				err := fmt.Errorf("no operation of container %s in %s", args[1], args[0])
				return t.didYouMean(err, args[1], a.tracedContainers(args[0]))
			case len(operations) == 0:
				return fmt.Errorf("no operation in %s", args[0])
			case slowest:
				operations = []*traceview.Span{slices.MaxFunc(operations, byDuration)}
			case !list:
				operations = operations[len(operations)-1:]
			}
			if list && !t.output.Structured() {
				return text.Operations(t.stdout, operations)
			}
			return t.show(operations)
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&list, "list", false,
		"list all operations; with --json print the spans of all")
	cmd.Flags().BoolVar(&slowest, "slowest", false,
		"show the operation that took longest instead of the last one")
	return cmd
}

func byDuration(a, b *traceview.Span) int { return cmp.Compare(a.Duration(), b.Duration()) }

// tracedContainers returns the IDs of the containers in a file of spans.
func (a *app) tracedContainers(path string) (ids []string) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	operations, _, _ := traceview.Read(f)
	for _, o := range operations {
		if id := o.Text(trace.ContainerID); id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
