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
		Use: "gc NETWORK --keep ID/IFNAME|--keep-recorded|--keep-running|--keep-none",

		DisableFlagsInUseLine: true,

		Short: "Garbage-collect attachments that no longer exist",
		Long: `Detaches the recorded attachments of a network that are not in use, then runs GC
of the plugins, which removes leftovers without a record. Exactly one --keep flag
must name the attachments in use: all other attachments lose their network. Prints
nothing.

Keeps attachments of other runtimes, which are recorded in --state-dir and
--cache-dir, unless --all-runtimes is given. --keep-recorded keeps every recorded
attachment, except those of interrupted ADDs and DELs and those from before the
node was restarted. --keep-running keeps recorded attachments whose namespace still
exists; "tenon prune" does this for all networks.

If a network no longer has a configuration, uses the recorded one.`,
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
				a.warn("removed recorded attachments only: CNI version %v of network %s has no GC", run.Version, n.Name)
				a.printHint(`add "cniVersions": [..., "1.1.0"]: Tenon then uses CNI 1.1.0, and other runtimes keep using cniVersion`)
			}
			return r.explain(err, n)
		},
	}
	r.clientFlags(cmd)
	r.outputFlags(cmd)
	cmd.Flags().StringArrayVar(&k.named, "keep", nil, "keep attachment `ID/IFNAME`; repeatable")
	cmd.Flags().BoolVar(&k.recorded, "keep-recorded", false, "keep recorded attachments")
	cmd.Flags().BoolVar(&k.running, "keep-running", false,
		"keep recorded attachments with a namespace")
	cmd.Flags().BoolVar(&k.none, "keep-none", false, "keep no attachment")
	cmd.Flags().BoolVar(&k.allRuntimes, "all-runtimes", false,
		"also detach attachments of other runtimes")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"print what would be detached, and change nothing")
	cmd.ValidArgsFunction = r.completeNetwork
	return cmd
}

// recordedNetwork returns a network with the configuration of one of its attachment records, or the
// error notFound if there is no record.
func recordedNetwork(c *network.Client, name string, notFound error) (*config.Network, error) {
	records, _ := c.List() // GC reports unreadable records
	for _, n := range network.Recorded(records) {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, notFound
}

// keep holds the flags that name the attachments in use.
type keep struct {
	named       []string
	recorded    bool
	running     bool
	none        bool
	allRuntimes bool
}

// inUse returns the attachments that the flags name. It returns an error unless exactly one kind of
// flag is given.
func (k keep) inUse() (network.Keep, error) {
	ways := 0
	for _, used := range []bool{len(k.named) > 0, k.recorded, k.running, k.none} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return network.Keep{}, usagef(
			"give exactly one of --keep, --keep-recorded, --keep-running and --keep-none",
		)
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
			return network.Keep{}, usagef("--keep %q must have the form ID/IFNAME", text)
		}
		valid = append(valid, cni.ValidAttachment{ContainerID: id, IfName: ifName})
	}
	return network.Keep{Attachments: valid, AllRuntimes: k.allRuntimes}, nil
}

// wouldGo prints what GC would do.
func (a *app) wouldGo(c *network.Client, n *config.Network, k network.Keep) error {
	if n.DisableGC {
		fmt.Fprintf(a.stdout, "nothing to do: network %s has disableGC\n", n.Name)
		return nil
	}
	stale, err := c.Stale(n, k)
	for _, r := range stale {
		fmt.Fprintf(a.stdout, "would detach %v\n", r.Attachment)
	}
	if !n.Version.Has(cni.GC) {
		fmt.Fprintf(
			a.stdout,
			"would not run GC of the plugins: CNI version %v has no GC\n",
			n.Version,
		)
		return err
	}
	for _, p := range n.Plugins {
		fmt.Fprintf(a.stdout, "would run GC of plugin %s\n", p.Type)
	}
	return err
}
