package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/format"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) ps() *cobra.Command {
	r := &settings{app: a}
	l, f := &lister{settings: r}, &attachmentFilter{}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List attachments",
		Long: `Lists attachments: those of "tenon add" and of programs that use Tenon's library,
from the records in --state-dir and in the state directories that other runtimes
have registered in /run/tenon/state-dirs, and those of libcni, from its files in
--cache-dir.

States:
  ok                        attached; the namespace and interfaces exist
  adding                    ADD is in progress, or was interrupted
  deleting                  DEL is in progress, was interrupted, or failed
  interface gone            the namespace exists, but lacks an interface
  namespace gone            the container ended without DEL
  namespace not accessible  missing privileges, or the path is not recorded
  earlier boot              the node has restarted since

POOLS, if an attachment has any, are the pools of the cluster that its addresses
come from; see "tenon ipam list" and "tenon cluster pools". -o wide also lists the
network namespace, the plugins, and the state directory or file of libcni that has
the record.

--filter compares a column with a pattern, in which * stands for any text and ? for
a character. Several filters must all match.

Warns of damaged records, which the list omits.

--watch prints the list again when attachments, their interfaces or namespaces
change, at most once per second, and needs root. It sleeps in between; AGE is the age
at the last change.`,
		Example: `  tenon ps
  tenon ps -o wide
  tenon ps --filter network=pods --filter state='*gone' --quiet
  tenon ps --watch
  tenon ps -o go-template='{{range .}}{{.containerID}}{{"\n"}}{{end}}'`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(a); err != nil {
				return err
			}
			if f.quiet && r.output.Structured() {
				return usagef("--quiet prints no JSON; it excludes --output and --json")
			}
			return l.show(cmd, func(ctx context.Context) (listing, error) {
				return listAttachments(ctx, r, f)
			})
		},
	}
	l.flag(cmd)
	f.flags(cmd)
	r.recordFlags(cmd)
	r.ignoredNetDirFlag(cmd)
	r.outputFlags(cmd, format.Wide)
	return cmd
}

// listAttachments returns the list of attachments that a filter selects.
func listAttachments(ctx context.Context, r *settings, f *attachmentFilter) (listing, error) {
	client := r.client()
	records, recordsErr := client.ListHost()
	list, err := inspect.Attachments(records)
	if err != nil {
		return listing{}, err
	}
	list = f.apply(list)
	pools := r.poolsOf(ctx)
	return listing{
		entries: psJSON(list, pools),
		text: func() error {
			if f.quiet {
				return r.containerIDs(list)
			}
			return text.Attachments(r.stdout, list,
				text.AttachmentColumns{Pools: pools, Wide: r.output.Is(format.Wide)})
		},
		finish: func() error {
			r.suggestPrune(list)
			return r.explain(r.warnDamaged(recordsErr), nil)
		},
		dirs: recordDirs(client, records),
	}, nil
}

// containerIDs prints the ID of each container once, in the order of the list.
func (r *settings) containerIDs(list []inspect.Attachment) error {
	shown := map[string]bool{}
	for _, x := range list {
		if id := x.Attachment.Container; !shown[id] {
			fmt.Fprintln(r.stdout, id)
			shown[id] = true
		}
	}
	return nil
}

// warnDamaged warns of the damaged records among the errors of [network.Client.List], and returns
// the other errors.
func (r *settings) warnDamaged(err error) error {
	damaged, rest := splitErrors(err, network.ErrUnreadable)
	for _, err := range damaged {
		r.warn("unreadable record: %v", err)
	}
	if len(damaged) > 0 {
		r.printHint("run tenon recover to remove records from before the boot; " +
			"run tenon del to detach the container of an unreadable record, if its network is still configured")
	}
	return rest
}

// suggestPrune prints a hint if there are attachments without a namespace.
func (r *settings) suggestPrune(list []inspect.Attachment) {
	own, others := 0, 0
	for _, x := range list {
		switch {
		case !x.State.Due():
		case x.Runtime == runtimeName:
			own++
		default:
			others++
		}
	}
	if own > 0 {
		r.printHint(
			fmt.Sprintf(
				"run tenon prune to detach containers without a namespace: %s",
				count(own, "attachment"),
			),
		)
	}
	if others > 0 {
		r.printHint(
			fmt.Sprintf(
				"run tenon prune --all-runtimes to also detach containers of other runtimes: %s",
				count(others, "attachment"),
			),
		)
	}
}

// psEntry is an attachment as JSON.
type psEntry struct {
	keyEntry
	Netns     string        `json:"netns"`
	Addresses []string      `json:"addresses"`
	Pools     []string      `json:"pools,omitempty"` // of the cluster
	Created   time.Time     `json:"created"`
	State     inspect.State `json:"state"`
	Runtime   string        `json:"runtime"`
	Source    string        `json:"source,omitempty"` // file of libcni
	StateDir  string        `json:"stateDir,omitempty"`
}

func psJSON(list []inspect.Attachment, pools map[cni.Attachment][]string) []psEntry {
	out := make([]psEntry, len(list))
	for i, a := range list {
		out[i] = psEntry{
			keyEntry: keyEntry(
				a.Attachment,
			), Netns: a.Netns, Addresses: []string{}, Created: a.Created,
			State: a.State, Runtime: a.Runtime, Source: a.Source, StateDir: a.StateDir,
			Pools: pools[a.Attachment],
		}
		if a.Result != nil {
			for _, ip := range a.Result.IPs {
				out[i].Addresses = append(out[i].Addresses, ip.Address.String())
			}
		}
	}
	return out
}
