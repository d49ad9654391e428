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
nothing. --dry-run prints the steps; with --json each has network, and containerID
and ifname of an attachment, or the plugin of which GC runs.

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
				entries, err := wouldGo(client, run, inUse)
				show := func() error { return a.printWouldGo(run, entries) }
				if err := r.print(entries, show); err != nil {
					return err
				}
				return a.unfinished(cmd, r.explain(err, n))
			}
			if err = client.GC(cmd.Context(), n, inUse); err == nil && !run.Version.Has(cni.GC) && !n.DisableGC {
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

// gcEntry is a step of GC.
type gcEntry struct {
	Network   string `json:"network"`
	Container string `json:"containerID,omitempty"` // of the attachment that GC would detach
	IfName    string `json:"ifname,omitempty"`      // of the attachment
	Plugin    string `json:"plugin,omitempty"`      // type of the plugin of which GC would run
}

// wouldGo returns the steps of GC, not nil: first the attachments, then the plugins.
func wouldGo(c *network.Client, n *config.Network, k network.Keep) ([]gcEntry, error) {
	entries := []gcEntry{}
	if n.DisableGC {
		return entries, nil
	}
	stale, err := c.Stale(n, k)
	for _, r := range stale {
		key := r.Attachment
		entries = append(entries,
			gcEntry{Network: key.Network, Container: key.Container, IfName: key.IfName})
	}
	if n.Version.Has(cni.GC) {
		for _, p := range n.Plugins {
			entries = append(entries, gcEntry{Network: n.Name, Plugin: p.Type})
		}
	}
	return entries, err
}

// printWouldGo prints the steps of GC for people.
func (a *app) printWouldGo(n *config.Network, entries []gcEntry) error {
	var lines []string
	for _, e := range entries {
		if e.Plugin != "" {
			lines = append(lines, "would run GC of plugin "+e.Plugin)
			continue
		}
		key := cni.Attachment{Network: e.Network, Container: e.Container, IfName: e.IfName}
		lines = append(lines, fmt.Sprintf("would detach %v", key))
	}
	switch {
	case n.DisableGC:
		lines = append(lines, fmt.Sprintf("nothing to do: network %s has disableGC", n.Name))
	case !n.Version.Has(cni.GC):
		lines = append(lines, fmt.Sprintf(
			"would not run GC of the plugins: CNI version %v has no GC", n.Version))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	return nil
}
