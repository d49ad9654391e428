package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) gc() *cobra.Command {
	r := &settings{app: a}
	k := keep{}
	dryRun := false
	cmd := &cobra.Command{
		Use:   "gc NETWORK --keep ID/IFNAME ... | --keep-recorded | --keep-running | --keep-none",
		Short: "Remove what belongs to no attachment in use",
		Long: `Deletes the recorded attachments of a network that are not to be kept, then has the plugins remove
whatever else they find of the network. Which attachments are in use has to be said, since all
others lose their network. Prints nothing.

What other runtimes have attached, by the records in --state-dir and --cache-dir, is kept in any case
unless --all-runtimes is given. --keep-recorded keeps all attachments, and removes what is left of an ADD
or a DEL that was cut short, and of those from before the machine was started. --keep-running keeps those
of them whose namespace still exists; tenon prune does so for all networks.

A network that has no configuration any more is taken as it was recorded.`,
		Example: `  tenon gc pods --keep-recorded
  tenon gc pods --keep web-1/eth0 --keep web-2/eth0 --dry-run
  tenon gc pods --keep-none`,
		Args: arguments(1, "NETWORK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			inUse, err := k.inUse()
			if err != nil {
				return err
			}
			client := r.client()
			n, err := r.load(args[0])
			if errors.Is(err, config.ErrNotFound) || errors.Is(err, config.ErrNoConfig) {
				n, err = recordedNetwork(client, args[0], err)
			}
			if err != nil {
				return err
			}
			if k.running {
				if inUse.Attachments, err = r.running(client, n.Name); err != nil {
					return err
				}
			}
			run, versionErr := asRun(cmd.Context(), client, n)
			if dryRun {
				if versionErr != nil {
					a.warn("%v", versionErr)
				}
				err = a.wouldGo(client, run, inUse)
			} else if err = client.GC(cmd.Context(), n, inUse); err == nil && !run.Version.Has(cni.GC) && !n.DisableGC {
				a.warn("plugins were not asked for what is not recorded: CNI version %v of network %s has no GC", run.Version, n.Name)
				a.printHint(`with "cniVersions": [..., "1.1.0"] beside cniVersion Tenon runs it in 1.1.0, and others as before`)
			}
			return r.explain(err, n)
		},
	}
	r.clientFlags(cmd)
	r.jsonFlag(cmd, "print a failure as JSON")
	cmd.Flags().StringArrayVar(&k.named, "keep", nil, "keep the attachment `ID/IFNAME`; repeatable")
	cmd.Flags().BoolVar(&k.recorded, "keep-recorded", false, "keep what is recorded")
	cmd.Flags().BoolVar(&k.running, "keep-running", false, "keep recorded attachments that have a namespace")
	cmd.Flags().BoolVar(&k.none, "keep-none", false, "keep nothing")
	cmd.Flags().BoolVar(&k.allRuntimes, "all-runtimes", false, "remove also what other runtimes have attached and is not to be kept")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell which recorded attachments would go")
	cmd.ValidArgsFunction = r.completeNetwork
	return cmd
}

// recordedNetwork returns a network as one of its attachments was run; where none is recorded the error is that of the
// look-up before.
func recordedNetwork(c *network.Client, name string, notFound error) (*config.Network, error) {
	records, _ := c.List() // what cannot be read GC tells
	for _, n := range network.Recorded(records) {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, notFound
}

// keep says which attachments are in use.
type keep struct {
	named       []string
	recorded    bool
	running     bool
	none        bool
	allRuntimes bool
}

// inUse reads the flags. Exactly one way of saying it is demanded.
func (k keep) inUse() (network.Keep, error) {
	ways := 0
	for _, used := range []bool{len(k.named) > 0, k.recorded, k.running, k.none} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return network.Keep{}, usagef("exactly one of --keep, --keep-recorded, --keep-running and --keep-none has to say what is in use")
	}
	if k.recorded {
		return network.Keep{Recorded: true, AllRuntimes: k.allRuntimes}, nil
	}
	if k.running {
		return network.Keep{Since: time.Now(), AllRuntimes: k.allRuntimes}, nil
	}
	valid := []cni.ValidAttachment{}
	for _, text := range k.named {
		id, ifName, ok := strings.Cut(text, "/")
		if !ok || cni.ValidateContainerID(id) != nil || cni.ValidateIfName(ifName) != nil {
			return network.Keep{}, usagef("--keep %q is not of the form ID/IFNAME", text)
		}
		valid = append(valid, cni.ValidAttachment{ContainerID: id, IfName: ifName})
	}
	return network.Keep{Attachments: valid, AllRuntimes: k.allRuntimes}, nil
}

// wouldGo prints what GC would do.
func (a *app) wouldGo(c *network.Client, n *config.Network, k network.Keep) error {
	if n.DisableGC {
		fmt.Fprintf(a.stdout, "nothing: network %s has disableGC\n", n.Name)
		return nil
	}
	stale, err := c.Stale(n, k)
	for _, r := range stale {
		fmt.Fprintf(a.stdout, "would delete %v\n", r.Attachment)
	}
	if !n.Version.Has(cni.GC) {
		fmt.Fprintf(a.stdout, "plugins would not be asked: CNI version %v has no GC\n", n.Version)
		return err
	}
	for _, p := range n.Plugins {
		fmt.Fprintf(a.stdout, "would ask %s to remove what it finds of other attachments\n", p.Type)
	}
	return err
}
