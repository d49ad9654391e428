package cli

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/age"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) ipam() *cobra.Command {
	cmd := parent(&cobra.Command{
		Use:     "ipam",
		Short:   "Look at address reservations",
		Example: "  tenon ipam list",
	})
	cmd.AddCommand(a.ipamList())
	return cmd
}

func (a *app) ipamList() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "list [NETWORK]",
		Short: "List addresses that host-local has reserved",
		Long: `Lists which addresses host-local has reserved, for whom, and how full the ranges are: for the networks
in --net-dir, for recorded attachments, and for others that have a folder in
` + inspect.DefaultDataDir + `.

States:
  current   reserved since the machine was started
  earlier   reserved before: in use by nobody, freed when addresses are next needed
  foreign   reserved by an implementation that does not say when`,
		Example: `  tenon ipam list
  tenon ipam list pods --json`,
		Args:              arguments(0, "NETWORK"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			lists, listsErr := r.lists()
			pools, poolsErr := inspect.Pools(cmd.Context(), lists, inspect.DefaultDataDir)
			if len(args) > 0 {
				var names []string
				for _, p := range pools {
					names = append(names, p.Network)
				}
				pools = slices.DeleteFunc(pools, func(p inspect.Pool) bool { return p.Network != args[0] })
				if len(pools) == 0 {
					err := fmt.Errorf("network %q has no reservations and no configuration with host-local", args[0])
					err = errors.Join(err, listsErr, poolsErr)
					if near := nearest(args[0], names); near != "" {
						err = hint(err, fmt.Sprintf("did you mean %q?", near))
					}
					return hint(err, r.elsewhere())
				}
			}
			var err error
			if r.json {
				err = a.printJSON(poolsJSON(pools))
			} else {
				err = a.printPools(pools)
			}
			return r.explain(errors.Join(err, listsErr, poolsErr), nil)
		},
	}
	r.netDirFlag(cmd)
	r.stateDirFlag(cmd)
	r.jsonFlag(cmd, "print the list as JSON")
	return cmd
}

// lists are the configurations of networks that are configured or recorded.
func (r *settings) lists() ([]*cni.List, error) {
	networks, loadErr := network.LoadAll(r.netDir)
	if errors.Is(loadErr, network.ErrNoConfig) {
		loadErr = nil
	}
	var lists []*cni.List
	for _, n := range networks {
		lists = append(lists, n.List)
	}
	records, err := r.client().List()
	for _, rec := range records {
		lists = append(lists, rec.List)
	}
	return lists, errors.Join(loadErr, err)
}

func (a *app) printPools(pools []inspect.Pool) error {
	for i, p := range pools {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "network %s in %s\n", p.Network, p.Dir)
		for _, r := range p.Ranges {
			fmt.Fprintf(a.stdout, "range %s: %d of %s addresses reserved\n", r.Range, r.Used, size(r.Size()))
		}
		if len(p.Leases) == 0 {
			continue
		}
		rows := [][]string{{"ADDRESS", "CONTAINER", "INTERFACE", "AGE", "STATE"}}
		for _, l := range p.Leases {
			rows = append(rows, []string{
				l.Addr.String(), l.Owner.Container, l.Owner.IfName, age.Text(l.Age), l.Boot.String(),
			})
		}
		if err := text.Table(a.stdout, rows); err != nil {
			return err
		}
	}
	return nil
}

// size is a number of addresses for people: large ones are powers of two and as good as without end.
func size(n uint64) string {
	if n == math.MaxUint64 {
		return "about 2^64 or more"
	}
	if n > 1<<32 {
		return fmt.Sprintf("about 2^%.0f", math.Log2(float64(n)))
	}
	return strconv.FormatUint(n, 10)
}

// poolEntry is a pool as JSON.
type poolEntry struct {
	Network string       `json:"network"`
	DataDir string       `json:"dataDir"`
	Ranges  []rangeEntry `json:"ranges"`
	Leases  []leaseEntry `json:"leases"`
}

type rangeEntry struct {
	Subnet  netip.Prefix `json:"subnet"`
	Start   netip.Addr   `json:"rangeStart"`
	End     netip.Addr   `json:"rangeEnd"`
	Gateway netip.Addr   `json:"gateway"`
	Size    uint64       `json:"size"` // 2^64-1 stands for that many and more
	Used    uint64       `json:"used"`
}

type leaseEntry struct {
	Address   netip.Addr `json:"address"`
	Container string     `json:"containerID"`
	IfName    string     `json:"ifname,omitempty"`
	Since     time.Time  `json:"since"`
	State     string     `json:"state"`
}

func poolsJSON(pools []inspect.Pool) []poolEntry {
	out := make([]poolEntry, len(pools))
	for i, p := range pools {
		out[i] = poolEntry{Network: p.Network, DataDir: p.Dir, Ranges: []rangeEntry{}, Leases: []leaseEntry{}}
		for _, r := range p.Ranges {
			out[i].Ranges = append(out[i].Ranges, rangeEntry{r.Subnet, r.Start, r.End, r.Gateway, r.Size(), r.Used})
		}
		for _, l := range p.Leases {
			out[i].Leases = append(out[i].Leases,
				leaseEntry{l.Addr, l.Owner.Container, l.Owner.IfName, l.Since.UTC(), l.Boot.String()})
		}
	}
	return out
}
