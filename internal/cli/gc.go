package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) gc() *cobra.Command {
	r := &settings{app: a}
	k := keep{}
	dryRun := false
	cmd := &cobra.Command{
		Use:   "gc NETWORK --keep ID/IFNAME ... | --keep-recorded | --keep-none",
		Short: "Remove what belongs to no attachment in use",
		Long: `Deletes the recorded attachments of a network that are not to be kept, then has the plugins remove
whatever else they find of the network. Which attachments are in use has to be said, since all
others lose their network. Prints nothing.`,
		Example: `  tenon gc pods --keep-recorded
  tenon gc pods --keep web-1/eth0 --keep web-2/eth0 --dry-run
  tenon gc pods --keep-none`,
		Args: arguments(1, "NETWORK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := r.load(args[0])
			if err != nil {
				return err
			}
			client := r.client()
			records, err := client.List()
			if err != nil && (k.recorded || dryRun) {
				return hint(fmt.Errorf("not all that is recorded can be read: %w", err),
					"name with --keep what is in use; gc then removes records that cannot be read")
			}
			records = slices.DeleteFunc(records, func(r network.Record) bool { return r.Attachment.Network != n.Name })
			valid, err := k.attachments(records)
			if err != nil {
				return err
			}
			if dryRun {
				if n, err = asRun(cmd.Context(), client, n); err != nil {
					a.warn("%v", err)
				}
				return a.wouldGo(n, records, valid)
			}
			return r.explain(client.GC(cmd.Context(), n, valid), n)
		},
	}
	r.netDirFlag(cmd)
	r.pluginFlags(cmd)
	r.stateDirFlag(cmd)
	r.jsonFlag(cmd, "print a failure as JSON")
	cmd.Flags().StringArrayVar(&k.named, "keep", nil, "keep the attachment `ID/IFNAME`; repeatable")
	cmd.Flags().BoolVar(&k.recorded, "keep-recorded", false, "keep what is recorded")
	cmd.Flags().BoolVar(&k.none, "keep-none", false, "keep nothing")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell which recorded attachments would go")
	cmd.ValidArgsFunction = r.completeNetwork
	return cmd
}

// keep says which attachments are in use.
type keep struct {
	named    []string
	recorded bool
	none     bool
}

// attachments returns them. Exactly one way of saying it is demanded.
func (k keep) attachments(records []network.Record) ([]cni.ValidAttachment, error) {
	ways := 0
	for _, used := range []bool{len(k.named) > 0, k.recorded, k.none} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return nil, usagef("exactly one of --keep, --keep-recorded and --keep-none has to say what is in use")
	}
	valid := []cni.ValidAttachment{}
	for _, text := range k.named {
		id, ifName, ok := strings.Cut(text, "/")
		if !ok || cni.ValidateContainerID(id) != nil || cni.ValidateIfName(ifName) != nil {
			return nil, usagef("--keep %q is not of the form ID/IFNAME", text)
		}
		valid = append(valid, cni.ValidAttachment{ContainerID: id, IfName: ifName})
	}
	if k.recorded {
		for _, r := range records {
			valid = append(valid, cni.ValidAttachment{ContainerID: r.Attachment.Container, IfName: r.Attachment.IfName})
		}
	}
	return valid, nil
}

// wouldGo prints which recorded attachments GC would delete.
func (a *app) wouldGo(n *network.Network, records []network.Record, valid []cni.ValidAttachment) error {
	if n.DisableGC {
		fmt.Fprintf(a.stdout, "nothing: network %s has disableGC\n", n.Name)
		return nil
	}
	for _, r := range records {
		if !slices.Contains(valid, cni.ValidAttachment{ContainerID: r.Attachment.Container, IfName: r.Attachment.IfName}) {
			fmt.Fprintf(a.stdout, "would delete %v\n", r.Attachment)
		}
	}
	if !n.Version.Has(cni.GC) {
		fmt.Fprintf(a.stdout, "plugins would not be asked: CNI version %v has no GC\n", n.Version)
		return nil
	}
	for _, p := range n.Plugins {
		fmt.Fprintf(a.stdout, "would ask %s to remove what it finds of other attachments\n", p.Type)
	}
	return nil
}
