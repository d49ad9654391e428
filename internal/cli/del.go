package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/network"
)

func (a *app) del() *cobra.Command {
	t := &attachment{settings: settings{app: a}}
	cmd := &cobra.Command{
		Use:   "del NETWORK [NETNS|-]",
		Short: "Detach a container from a network",
		Long: `Runs DEL of the plugins of a network in reverse order, with the configuration
and arguments from the attachment record, even if the configuration has changed
since. Continues past failing plugins and keeps the record until every plugin
succeeds. Prints nothing. Running it twice is not an error.

Without a record, uses the current configuration and arguments. NETNS may be "-"
or omitted if --id names the container; the namespace may no longer exist.`,
		Example: `  tenon del pods web
  tenon del pods - --id web-1`,
		Args: arguments(1, "NETWORK", "NETNS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.parse(args[1:]); err != nil {
				return err
			}
			parameters, err := t.parameters()
			if err != nil {
				return err
			}
			n, loadErr := t.load(args[0])
			if loadErr != nil && isPath(args[0]) {
				return loadErr
			}
			client := t.client()
			if err := t.identify(client, n, args[0]); err != nil {
				return err
			}
			key := t.key(n, args[0])
			client = holder(client, key)
			_, recordErr := client.Record(key)
			err = client.Del(
				cmd.Context(),
				key,
				network.Fallback{Network: n, Parameters: parameters},
			)
			if errors.Is(err, network.ErrNoRecord) {
				err = hint(
					t.suggestOthers(err, client, key, "del"),
					fmt.Sprintf("the current configuration cannot be used either: %v", loadErr),
				)
				err = hint(err, t.swapped(args[0])...)
			} else if err == nil && errors.Is(recordErr, network.ErrNoRecord) {
				a.warn("%v has no attachment record: ran DEL with the current configuration", key)
				for _, o := range t.inSameNetns(client, key) {
					a.printHint(t.otherKey(o, "del"))
				}
			}
			return t.failed(err, n)
		},
	}
	t.flags(cmd)
	t.parameterFlags(cmd)
	t.outputFlags(cmd)
	return cmd
}
