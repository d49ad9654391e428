package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/format"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

func (a *app) ipam() *cobra.Command {
	cmd := parent(&cobra.Command{
		Use:   "ipam",
		Short: "Inspect and release address reservations",
		Long: `The IPAM plugins host-local and cluster reserve addresses in files that outlive
containers. These commands show who holds an address and whether the holder still
exists, and release reservations whose holder is gone.`,
		Example: `  tenon ipam list
  tenon ipam show 10.88.0.2
  tenon ipam release 10.88.0.2 --dry-run`,
	})
	cmd.AddCommand(a.ipamList(), a.ipamShow(), a.ipamRelease())
	return cmd
}

func (a *app) ipamList() *cobra.Command {
	r := &settings{app: a}
	l := &lister{settings: r}
	cmd := &cobra.Command{
		Use:   "list [NETWORK]",
		Short: "List reserved addresses",
		Long: `Lists the addresses that host-local has reserved, their holders, and how full the
ranges are: for the networks in --net-dir, for recorded attachments, and for all
networks in ` + hostlocal.DefaultDataDir + `. Then lists the pools of a cluster in
` + local.DefaultDir + `, with the blocks of this node; "tenon cluster" shows
those of other nodes.

States of a reservation:
  current           reserved since the node was started
  earlier           reserved before; unused, and freed when addresses run out
  foreign           another implementation reserved it and does not record when
  foreign, earlier  the same, and the file is older than the last boot: unused
                    if the clock was right; gc and release free it

ATTACHMENT is the state of the holder as in "tenon ps", if it is recorded. -o wide
also lists the time of the reservation and the network namespace of the holder.

--watch prints the list again when reservations or attachments change, at most once
per second, and needs root. It sleeps in between; AGE is the age at the last change.`,
		Example: `  tenon ipam list
  tenon ipam list -o wide
  tenon ipam list --watch
  tenon ipam list pods --json`,
		Args:              arguments(0, "NETWORK"),
		ValidArgsFunction: r.completeNetwork,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.show(cmd, func(ctx context.Context) (listing, error) {
				return listReservations(ctx, r, args)
			})
		},
	}
	l.flag(cmd)
	r.netDirFlag(cmd)
	r.recordFlags(cmd)
	r.outputFlags(cmd, format.Wide)
	return cmd
}

// listReservations returns the list of reservations: of the network that args contain, or else of
// all.
func listReservations(ctx context.Context, r *settings, args []string) (listing, error) {
	all, readErr := r.reservations(ctx)
	dirs := all.dirs(r.client())
	if len(args) > 0 {
		names := all.networks()
		if !all.only(args[0]) {
			err := fmt.Errorf(
				"network %q has no reservations and no configuration with host-local",
				args[0],
			)
			return listing{}, hint(
				r.didYouMean(errors.Join(err, readErr), args[0], names),
				r.elsewhere(),
			)
		}
	}
	return listing{
		entries: all.json(),
		text:    func() error { return all.print(r.stdout, &r.output) },
		finish:  func() error { return r.explain(readErr, nil) },
		dirs:    dirs,
	}, nil
}

// dirs returns the directories in which changes show that reservations or their holders have
// changed.
func (r *reservations) dirs(c *network.Client) []string {
	var records []network.Record
	for _, a := range r.attachments {
		records = append(records, a.Record)
	}
	dirs := append(recordDirs(c, records), hostlocal.DefaultDataDir)
	for _, p := range r.pools {
		dirs = append(dirs, filepath.Join(p.Dir, p.Network))
	}
	var pools []string
	for _, p := range r.cluster {
		pools = append(pools, p.name)
	}
	return append(dirs, local.New(local.Options{Dir: clusterDir()}).Dirs(pools)...)
}

// reservations holds the reservations of host-local and of the pools of a cluster, and the recorded
// attachments, which may hold them.
type reservations struct {
	pools       []hostlocal.Pool
	cluster     []clusterPool
	attachments []inspect.Attachment
	recordsErr  error // some records could not be read
}

// reservations reads the reservations of networks that are configured or recorded, or that have a
// directory in the default data directory. It warns of invalid configurations. The error joins the
// errors of everything that cannot be read; reservations returns the rest in any case.
func (r *settings) reservations(ctx context.Context) (reservations, error) {
	lists, configErr := r.lists()
	records, recordsErr := r.client().ListHost()
	for _, rec := range records {
		lists = append(lists, rec.List)
	}
	pools, poolsErr := hostlocal.Pools(ctx, lists, hostlocal.DefaultDataDir)
	for _, p := range pools {
		if p.Invalid != nil {
			r.warn("unknown address ranges: %v", p.Invalid)
		}
	}
	shared, clusterErr := clusterPools(ctx, clusterDir())
	attachments, err := inspect.Attachments(records)
	return reservations{
			pools,
			shared,
			attachments,
			recordsErr,
		}, errors.Join(
			configErr,
			recordsErr,
			poolsErr,
			clusterErr,
			err,
		)
}

// networks returns the names of all networks with reservations.
func (r *reservations) networks() []string {
	var names []string
	for _, p := range r.pools {
		names = append(names, p.Network)
	}
	for _, p := range r.cluster {
		for _, l := range p.leases {
			names = append(names, l.Owner.Network)
		}
	}
	return names
}

// only drops everything but one network, and reports whether anything is left.
func (r *reservations) only(network string) bool {
	r.pools = slices.DeleteFunc(
		r.pools,
		func(p hostlocal.Pool) bool { return p.Network != network },
	)
	for i := range r.cluster {
		p := &r.cluster[i]
		p.leases = slices.DeleteFunc(
			p.leases,
			func(l ipam.Lease) bool { return l.Owner.Network != network },
		)
	}
	r.cluster = slices.DeleteFunc(
		r.cluster,
		func(p clusterPool) bool { return len(p.leases) == 0 },
	)
	return len(r.pools)+len(r.cluster) > 0
}

// lists returns the configurations that can be loaded. It warns of the others.
func (r *settings) lists() ([]*cni.List, error) {
	c, err := config.Discover(r.netDir)
	if err != nil {
		return nil, err
	}
	var lists []*cni.List
	for _, f := range c.Candidates() {
		if f.Err != nil {
			r.warnSkipped(f)
			continue
		}
		lists = append(lists, f.Network.List)
	}
	return lists, nil
}

// attachment returns the state of the holder of a lease, "" if the holder is not recorded.
func (r *reservations) attachment(network string, l ipam.Lease) inspect.State {
	holder, _ := inspect.Holder(r.attachments, network, l)
	return holder.State
}

func (r *reservations) print(w io.Writer, o *format.Output) error {
	for i, p := range r.pools {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "network %s in %s\n", p.Network, p.Dir)
		for _, rng := range p.Ranges {
			fmt.Fprintln(w, "range", usage(rng))
		}
		if len(p.Leases) == 0 {
			continue
		}
		rows := [][]string{widened(o,
			[]string{"ADDRESS", "CONTAINER", "INTERFACE", "AGE", "STATE", "ATTACHMENT"},
			"SINCE", "NAMESPACE")}
		for _, l := range p.Leases {
			holder, _ := inspect.Holder(r.attachments, p.Network, l)
			rows = append(rows, widened(o, []string{
				l.Addr.String(), l.Owner.Container, l.Owner.IfName, ipam.FormatAge(l.Age), l.Boot.String(), string(holder.State),
			}, l.Since.UTC().Format(time.RFC3339), holder.Netns))
		}
		if err := table.Write(w, rows); err != nil {
			return err
		}
	}
	for i, p := range r.cluster {
		if i+len(r.pools) > 0 {
			fmt.Fprintln(w)
		}
		if err := r.printCluster(w, o, p); err != nil {
			return err
		}
	}
	return nil
}

// usage describes how full a range is.
func usage(r hostlocal.Range) string {
	return fmt.Sprintf("%s: %d of %s addresses reserved", r.Range, r.Used, size(r.Size()))
}

// size formats a number of addresses; large numbers are powers of two.
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
	Pool    string       `json:"pool,omitempty"` // of a cluster: its leases name networks
	DataDir string       `json:"dataDir"`
	Ranges  []rangeEntry `json:"ranges"`
	Leases  []leaseEntry `json:"leases"`
}

type rangeEntry struct {
	Subnet  netip.Prefix `json:"subnet"`
	Start   netip.Addr   `json:"rangeStart"`
	End     netip.Addr   `json:"rangeEnd"`
	Gateway netip.Addr   `json:"gateway"`
	Size    uint64       `json:"size"` // 2^64-1 means that many or more
	Used    uint64       `json:"used"`
}

type leaseEntry struct {
	Address    netip.Addr    `json:"address"`
	Network    string        `json:"network,omitempty"` // in a pool of a cluster
	Container  string        `json:"containerID"`
	IfName     string        `json:"ifname,omitempty"`
	Since      time.Time     `json:"since"`
	State      string        `json:"state"`
	Attachment inspect.State `json:"attachment,omitempty"` // absent: not recorded
}

func (r *reservations) json() []poolEntry {
	out := make([]poolEntry, len(r.pools))
	for i, p := range r.pools {
		out[i] = poolEntry{
			Network: p.Network,
			DataDir: p.Dir,
			Ranges:  []rangeEntry{},
			Leases:  []leaseEntry{},
		}
		for _, rng := range p.Ranges {
			out[i].Ranges = append(out[i].Ranges, newRangeEntry(rng))
		}
		for _, l := range p.Leases {
			out[i].Leases = append(out[i].Leases, r.leaseEntry(p.Network, l))
		}
	}
	for _, p := range r.cluster {
		out = append(out, r.clusterEntry(p))
	}
	return out
}

func newRangeEntry(r hostlocal.Range) rangeEntry {
	return rangeEntry{r.Subnet, r.Start, r.End, r.Gateway, r.Size(), r.Used}
}

func (r *reservations) leaseEntry(network string, l ipam.Lease) leaseEntry {
	return leaseEntry{
		l.Addr,
		l.Owner.Network,
		l.Owner.Container,
		l.Owner.IfName,
		l.Since.UTC(),
		l.Boot.String(),
		r.attachment(network, l),
	}
}
