package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) inspect() *cobra.Command {
	r := &settings{app: a}
	ifName := ""
	cmd := &cobra.Command{
		Use:   "inspect [NETWORK] CONTAINER",
		Short: "Show everything about the attachments of a container",
		Long: `Shows the attachments of a container as recorded and as the kernel has them:
interfaces on both sides with MAC address, MTU and bridge, addresses, routes, DNS,
published ports, the configuration of each plugin, and the last operations from the
journal. Shows differences: objects that are missing, not recorded, or have other
values. Includes the attachments of
all runtimes: those recorded in --state-dir and in the state directories registered
in /run/tenon/state-dirs, and those of libcni, from --cache-dir.

CONTAINER is a container ID or a NETNS as for "tenon add": a name in /run/netns, a
process ID, or a path. NETWORK and --ifname limit the output. The exit status is 0
even if there are differences; "tenon check" lets the plugins judge.`,
		Example: `  tenon inspect web
  tenon inspect pods web
  tenon inspect pods web --json | jq '.[0].addresses'`,
		Args: arguments(1, "NETWORK or CONTAINER", "CONTAINER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			records, recordsErr := r.client().ListHost()
			var wanted []network.Record
			var known []string
			for _, rec := range records {
				container := args[len(args)-1]
				known = append(known, rec.Attachment.Container)
				if (rec.Attachment.Container == container || inNetns(rec, container)) &&
					(len(args) == 1 || rec.Attachment.Network == args[0]) &&
					(ifName == "" || rec.Attachment.IfName == ifName) {
					wanted = append(wanted, rec)
				}
			}
			if len(wanted) == 0 {
				return r.explain(r.notAttached(args, known, recordsErr), nil)
			}
			list, err := inspect.Attachments(wanted)
			if err != nil {
				return err
			}
			operations, _ := r.journal().Read() // "tenon logs" reports errors
			all := make([]*inspect.Details, len(list))
			for i, one := range list {
				if all[i], err = inspect.Describe(cmd.Context(), one, operations.Records); err != nil {
					return err
				}
			}
			return r.printDetails(all)
		},
	}
	r.recordFlags(cmd)
	r.ignoredNetDirFlag(cmd)
	r.outputFlags(cmd)
	cmd.Flags().StringVar(&ifName, "ifname", "", "show only the attachment of interface `NAME`")
	cmd.ValidArgsFunction = r.completeContainer
	return cmd
}

// inNetns reports whether an attachment is in the namespace that an argument names.
func inNetns(r network.Record, arg string) bool {
	path, err := netnsPath(arg)
	return err == nil && sameNetns(r.Netns, path)
}

func (r *settings) notAttached(args, known []string, recordsErr error) error {
	container := args[len(args)-1]
	err := cni.Errorf(cni.CodeUnknownContainer, "container %s: %w", container, network.ErrNoRecord)
	if len(args) > 1 {
		err = cni.Errorf(
			cni.CodeUnknownContainer,
			"container %s in network %s: %w",
			container,
			args[0],
			network.ErrNoRecord,
		)
	}
	if recordsErr != nil {
		return fmt.Errorf("%w; unreadable record: %w", err, recordsErr)
	}
	return r.didYouMean(err, container, known)
}

func (r *settings) printDetails(all []*inspect.Details) error {
	if r.output.Structured() {
		return r.printValue(all)
	}
	for i, d := range all {
		if i > 0 {
			fmt.Fprintln(r.stdout)
		}
		if err := text.Details(r.stdout, d); err != nil {
			return err
		}
	}
	return nil
}

// completeContainer completes the names of containers, or of a network and then a container.
func (r *settings) completeContainer(
	_ *cobra.Command,
	args []string,
	_ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	records, _ := r.client().ListHost()
	var words []cobra.Completion
	for _, rec := range records {
		if len(args) == 0 {
			words = append(words, rec.Attachment.Network, rec.Attachment.Container)
		} else if len(args) == 1 && rec.Attachment.Network == args[0] {
			words = append(words, rec.Attachment.Container)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
