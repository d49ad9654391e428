package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/history"
	"github.com/tenon-cni/tenon/internal/ops/moment"
	"github.com/tenon-cni/tenon/internal/ops/text"
)

func (a *app) history() *cobra.Command {
	r := &settings{app: a}
	at, since := "", ""
	cmd := &cobra.Command{
		Use:   "history [ADDRESS|PORT|MAC|INTERFACE|CONTAINER]",
		Short: "Show who had an address, port or interface when",
		Long: `Shows the attachments that had an IP address, a published port (8080 or 8080/udp), a
MAC address or an interface, or the attachments of a container, with begin and end,
from the journal and the records of existing attachments. Without an argument, shows
all attachments of the host. With --at, shows the attachments at that time, and the ones
before and after it.

"~" marks a time that is inferred: an attachment without DEL ended at the latest with
the next boot, or when another container got its address; an attachment from before the
journal has the time of its record. Times follow the clock as it is now: if the clock
was wrong during this boot and has been set, earlier times are corrected.

The journal has a bounded size; the last line shows when it begins. See "tenon logs".
The exit status is 1 if there is no such attachment.`,
		Example: `  tenon history 10.88.0.7
  tenon history 10.88.0.7 --at 14:02
  tenon history 8080 --since 3d
  tenon history --at "2h ago"
  tenon history web --json`,
		Args: arguments(0, "ADDRESS, PORT, MAC, INTERFACE or CONTAINER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := history.Present()
			q := history.Query{}
			if len(args) > 0 {
				q.Subject = args[0]
			}
			for _, f := range []struct {
				name, text string
				to         *time.Time
			}{{"at", at, &q.At}, {"since", since, &q.Since}} {
				if f.text == "" {
					continue
				}
				t, err := moment.Parse(f.text, now.Time.In(time.Local))
				if err != nil {
					return usagef("--%s: %v", f.name, err)
				}
				*f.to = t
			}
			all, begins, err := r.intervals(now)
			if err != nil {
				return err
			}
			answer, err := history.Ask(all, q, begins, now)
			if err != nil {
				return r.ambiguous(err)
			}
			err = r.print(answer, func() error { return text.History(a.stdout, answer, time.Local) })
			if err == nil && len(answer.Intervals) == 0 {
				return exitStatus(statusFailure)
			}
			return err
		},
	}
	r.recordFlags(cmd)
	r.ignoredNetDirFlag(cmd)
	r.outputFlags(cmd)
	cmd.Flags().StringVar(&at, "at", "",
		"show the attachment at `TIME`: 14:02, \"2026-11-23 14:02\", RFC 3339, \"10m ago\"")
	cmd.Flags().StringVar(&since, "since", "", "leave out attachments that ended before `TIME`")
	cmd.ValidArgsFunction = func(
		_ *cobra.Command, args []string, _ string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, _ := r.journal().Read()
		live, _ := r.client().ListHost()
		all := history.Intervals(c.Records, live, false, history.Present())
		return history.Subjects(all), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// intervals returns the lives of all known attachments, and the begin of the journal.
func (r *settings) intervals(now history.Now) ([]history.Interval, time.Time, error) {
	c, err := r.readJournal()
	if err != nil {
		return nil, time.Time{}, err
	}
	live, err := r.client().ListHost()
	if err != nil {
		r.warn("records that cannot be read are missing: %v", err)
	}
	return history.Intervals(c.Records, live, err == nil, now), c.Begins(), nil
}
