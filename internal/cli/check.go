package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) check() *cobra.Command {
	t := &attachment{settings: settings{app: a}}
	cmd := &cobra.Command{
		Use:   "check NETWORK [NETNS]",
		Short: "Check that an attachment is as ADD left it",
		Long: `Runs CHECK of the plugins of a network, with the configuration, arguments and
result from the attachment record. Prints nothing if everything is in order;
otherwise reports the first difference. NETNS may be omitted if --id names the
container.`,
		Example: `  tenon check pods web
  tenon check pods --id web-1`,
		Args: arguments(1, "NETWORK", "NETNS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.parse(args[1:]); err != nil {
				return err
			}
			n, err := t.load(args[0])
			if err != nil && isPath(args[0]) {
				return err
			}
			client := t.client()
			if err := t.identify(client, n, args[0]); err != nil {
				return err
			}
			key := t.key(n, args[0])
			client = holder(client, key)
			if r, err := client.Record(key); err == nil && t.netns != "" &&
				!sameNetns(r.Netns, t.netns) {
				return attachmentError{
					fmt.Errorf("%v: attached in namespace %s, not %s", key, r.Netns, t.netns),
				}
			}
			err = t.suggestOthers(client.Check(cmd.Context(), key, n), client, key, "check")
			switch {
			case errors.Is(err, network.ErrNoRecord):
				err = hint(err, t.swapped(args[0])...)
			case cni.CodeOf(err) == cni.CodeUnknownContainer:
				err = hint(err, t.detaching(network.Record{Attachment: key, StateDir: client.StateDir}))
			}
			return t.failed(err, n)
		},
	}
	t.flags(cmd)
	t.outputFlags(cmd)
	return cmd
}
