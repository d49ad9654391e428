package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/watch"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) watch() *cobra.Command {
	r := &settings{app: a}
	var dryRun, once bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Repair attachments when other programs delete their objects",
		Long: `Waits until another program deletes rules, links, addresses or routes of
attachments, such as a firewall that flushes its rule set when it is reloaded.
Restores exactly what is missing, as "tenon repair" does, and prints one line with
the cause: the process and its unit, where the kernel names them. Does not touch
other attachments.

Sleeps until the kernel reports a change of the host or a container, firewalld a
reload, or a program has closed the lock of legacy iptables. If the kernel drops
reports, compares everything. Also compares everything at the start, for changes
while it did not run.

If a program deletes the same object again and again, reports that program and
waits before the next repairs: 1 second, 2 seconds, and so on up to 5 minutes, until
the object has stayed for 2 minutes. Waits while an ADD or DEL holds the lock of the
network. Prints once what it cannot repair, with a hint.

With --json, prints each event as a JSON object on a line of its own. SIGHUP starts a
comparison. SIGINT and SIGTERM end the program. To run it as a service, install the
unit contrib/systemd/tenon-watch.service, which the packages contain.

Exit status: 0 stopped by a signal, or with --once everything is in place; 1 with
--once something is still missing, or the command cannot watch; 2 wrong usage.`,
		Example: `  tenon watch
  tenon watch --json | jq -r .cause
  tenon watch --once
  tenon watch --dry-run`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 0 {
				return usagef("--interval %v is negative", interval)
			}
			outcome := watchOutcome{settings: r}
			client := r.client()
			o := watch.Options{
				Client: client, Plugins: all.Described(), Caller: client.Caller,
				DryRun: dryRun, Interval: interval, Detach: r.detaching, Report: outcome.report,
				Log: slog.Default(),
			}
			if once {
				if err := watch.Once(cmd.Context(), o); err != nil {
					return r.needsRoot(err)
				}
				return outcome.verdict()
			}
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, unix.SIGHUP)
			defer signal.Stop(reload)
			o.Reload = pulses(cmd.Context().Done(), reload)
			o.Ready = func() { notifySystemd(os.Getenv("NOTIFY_SOCKET"), "READY=1") }
			err := watch.Run(cmd.Context(), o)
			notifySystemd(os.Getenv("NOTIFY_SOCKET"), "STOPPING=1")
			return r.needsRoot(err)
		},
	}
	r.clientFlags(cmd)
	r.outputFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "report missing objects, and change nothing")
	flags.BoolVar(&once, "once", false, "compare and repair once, then exit")
	flags.DurationVar(&interval, "interval", 0,
		"also compare all attachments every `TIME`; 0: only after changes")
	return cmd
}

// watchOutcome prints events, and keeps what --once needs.
type watchOutcome struct {
	*settings
	missing bool // something was not restored
	printed bool
}

func (w *watchOutcome) report(e watch.Event) {
	w.missing = w.missing || e.Lost > e.Restored || e.Problem != ""
	w.printed = true
	if !w.output.Structured() {
		_ = text.Watch(w.stdout, e) // output remembers the error
		return
	}
	if err := w.printEach(e); err != nil {
		w.warn("%v", err)
	}
}

// verdict returns the exit status of a single comparison.
func (w *watchOutcome) verdict() error {
	if w.missing {
		return exitStatus(statusFailure)
	}
	if !w.printed && !w.output.Structured() {
		fmt.Fprintln(w.stdout, "nothing is missing")
	}
	return nil
}

// pulses forwards signals as values without meaning, until done.
func pulses(done <-chan struct{}, signals <-chan os.Signal) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-signals:
			}
			select {
			case <-done:
				return
			case c <- struct{}{}:
			}
		}
	}()
	return c
}

// notifySystemd reports a state to the service manager at a socket (sd_notify(3)). An empty path
// means that there is none. It ignores errors, because systemd reports the missing message.
func notifySystemd(path, state string) {
	if path == "" {
		return
	}
	if c, err := net.Dial("unixgram", path); err == nil {
		_, err := c.Write([]byte(state))
		_ = errors.Join(err, c.Close())
	}
}
