package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/logs"
	"github.com/tenon-cni/tenon/internal/ops/moment"
	"github.com/tenon-cni/tenon/internal/ops/text"
)

// logsOutput is the output of "tenon logs" as JSON.
type logsOutput struct {
	Version    int          `json:"version"`
	Journal    string       `json:"journal"` // directory
	Begins     time.Time    `json:"begins,omitzero"`
	Damaged    int          `json:"damaged"` // records that cannot be read
	Operations []logs.Entry `json:"operations"`
}

func (a *app) logs() *cobra.Command {
	r := &settings{app: a}
	var filter logs.Filter
	last, since, follow := 0, "", false
	cmd := &cobra.Command{
		Use:   "logs [ATTACHMENT|NETWORK|CONTAINER]",
		Short: "Show the last operations with outcome and duration",
		Long: `Shows the last operations from the journal, one on each line: when it ended, ADD, DEL,
CHECK or GC, the attachment, its duration, and its addresses or its error. Times of
plugins are in milliseconds. Shows operations of tenon and of programs that use
Tenon's library. Where a runtime starts the plugins through libcni, each plugin is an
operation of its own, and plugins of other projects are missing.

The argument is a network, a container ID or a unique prefix of one, or an attachment
as NETWORK/CONTAINER/INTERFACE.

The journal is the directory "journal" in --state-dir. Its size is bounded; the oldest
operations are dropped. STATUS is not recorded. Errors have no quoted values, because
these could be secrets.`,
		Example: `  tenon logs
  tenon logs web -n 5
  tenon logs pods --failed --since "2h ago"
  tenon logs --follow`,
		Args: arguments(0, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			now := time.Now()
			if since != "" {
				if filter.Since, err = moment.Parse(since, now); err != nil {
					return usagef("--since: %v", err)
				}
			}
			if last < 0 {
				return usagef("-n: %d is negative", last)
			}
			c, err := r.readJournal()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				filter.Name = args[0]
			}
			if filter, err = filter.Resolve(c.Records); err != nil {
				return r.ambiguous(err)
			}
			if follow {
				return r.follow(cmd.Context(), filter, last)
			}
			if filter.Name != "" && !filter.Known(c.Records) {
				return r.noOperations(filter.Name, c.Records)
			}
			out := logsOutput{1, r.journal().Dir, c.Begins(), c.Damaged, filter.Last(c.Records, last)}
			return r.print(out, func() error {
				return text.Logs(r.stdout, out.Operations, out.Begins, now)
			})
		},
	}
	r.recordFlags(cmd)
	r.ignoredNetDirFlag(cmd)
	r.outputFlags(cmd)
	cmd.Flags().IntVarP(&last, "last", "n", 20, "show the last `N` operations; 0: all")
	cmd.Flags().StringVar(&since, "since", "",
		"show operations since `TIME`: 14:02, \"2026-11-23 14:02\", RFC 3339, \"10m ago\"")
	cmd.Flags().BoolVar(&filter.Failed, "failed", false, "show only operations that failed")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false,
		"continue with new operations; with --json, one JSON object on each line")
	cmd.ValidArgsFunction = r.completeLogs
	return cmd
}

// noOperations returns the error about a name that no record has.
func (r *settings) noOperations(name string, records []journal.Record) error {
	err := hint(errors.New("the journal has no operation of "+name),
		r.command("list attachments: ", "ps"))
	return r.didYouMean(err, name, logs.Names(records))
}

// ambiguous adds the next step to an error about an ambiguous name.
func (r *settings) ambiguous(err error) error {
	return hint(err, "give a longer part of the name")
}

// follow prints the last operations, and new ones until the program is interrupted.
func (r *settings) follow(ctx context.Context, f logs.Filter, last int) error {
	err := r.journal().Follow(ctx, func(records []journal.Record) error {
		defer func() { last = 0 }() // all of the new ones
		for _, e := range f.Last(records, last) {
			if err := r.printLog(e); err != nil {
				return err
			}
		}
		return nil
	})
	return r.needsRoot(err)
}

// printLog prints an operation as a line.
func (r *settings) printLog(e logs.Entry) error {
	if r.output.Structured() {
		return r.printEach(e)
	}
	return text.Log(r.stdout, e, time.Now())
}
