package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/format"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/table"
)

// agentPatience is the time that the agent of a cluster has for an answer.
const agentPatience = 2 * time.Second

// clusterPool is a pool of a cluster, as far as this node knows it.
type clusterPool struct {
	name   string
	dir    string
	store  *local.Store
	state  local.State
	blocks []local.Use
	leases []ipam.Lease
	err    error // the state cannot be read
}

// clusterDir returns the directory of this node's cluster state.
func clusterDir() string { return cmp.Or(os.Getenv("TENON_CLUSTER_DIR"), local.DefaultDir) }

// clusterSocket returns the socket of the agent.
func clusterSocket() string { return cmp.Or(os.Getenv("TENON_CLUSTER_SOCKET"), local.DefaultSocket) }

// clusterPools reads the pools of a cluster in the files of this node. It needs neither the agent
// nor etcd.
func clusterPools(ctx context.Context, dir string) ([]clusterPool, error) {
	store := local.New(local.Options{Dir: dir})
	names, err := store.Pools()
	if err != nil {
		return nil, fmt.Errorf("pools of the cluster: %w", err)
	}
	var list []clusterPool
	var errs []error
	for _, name := range names {
		p, err := readClusterPool(ctx, store, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %s of the cluster: %w", name, err))
		}
		p.dir = dir
		list = append(list, p)
	}
	return list, errors.Join(errs...)
}

func readClusterPool(
	ctx context.Context, store *local.Store, name string,
) (p clusterPool, err error) {
	p.name, p.store = name, store
	open, err := store.Open(ctx, name, true)
	if err != nil {
		return p, err
	}
	var usageErr, leasesErr error
	p.state, p.err = open.State, open.Err()
	p.blocks, _, usageErr = open.Usage(ctx)
	p.leases, leasesErr = open.Leases(ctx)
	return p, errors.Join(usageErr, leasesErr, open.Close())
}

// poolsOf returns the pools of a cluster that attachments of this node have addresses of. It warns
// of pools that it cannot read.
func (r *settings) poolsOf(ctx context.Context) map[cni.Attachment][]string {
	list, err := clusterPools(ctx, clusterDir())
	if err != nil {
		r.warn("%v", err)
	}
	pools := map[cni.Attachment][]string{}
	for _, p := range list {
		for _, l := range p.leases {
			a := cni.Attachment{
				Network: l.Owner.Network, Container: l.Owner.Container, IfName: l.Owner.IfName,
			}
			if !slices.Contains(pools[a], p.name) {
				pools[a] = append(pools[a], p.name)
			}
		}
	}
	return pools
}

// free releases the addresses that the holder of a lease has in the pool. It informs the agent,
// which frees shared addresses in etcd; without it, that happens later.
func (p *clusterPool) free(ctx context.Context, l ipam.Lease) error {
	open, err := p.store.Open(ctx, p.name, false)
	if err != nil {
		return err
	}
	noted, err := open.Release(ctx, l.Owner)
	if err = errors.Join(err, open.Close()); err != nil || !noted {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	_, _ = agentcall.Call(ctx, clusterSocket(), agentcall.Request{Verb: agentcall.Released})
	return nil
}

func (r *reservations) printCluster(w io.Writer, o *format.Output, p clusterPool) error {
	fmt.Fprintf(w, "pool %s of the cluster in %s\n", p.name, p.dir)
	if p.err != nil {
		fmt.Fprintf(w, "unknown blocks: %v\n", p.err)
	}
	for _, b := range p.blocks {
		fmt.Fprintf(w, "block %s: %d of %d addresses reserved, %s\n", b.Block.Block, b.Used,
			b.Capacity, b.Phase)
	}
	if len(p.leases) == 0 {
		return nil
	}
	rows := [][]string{widened(o,
		[]string{"ADDRESS", "NETWORK", "CONTAINER", "INTERFACE", "AGE", "STATE", "ATTACHMENT"},
		"SINCE", "NAMESPACE")}
	for _, l := range p.leases {
		holder, _ := inspect.Holder(r.attachments, l.Owner.Network, l)
		rows = append(rows, widened(o, []string{
			l.Addr.String(), l.Owner.Network, l.Owner.Container, l.Owner.IfName,
			ipam.FormatAge(l.Age), p.stateOf(l), string(holder.State),
		}, l.Since.UTC().Format(time.RFC3339), holder.Netns))
	}
	return table.Write(w, rows)
}

// stateOf returns the state of a reservation.
func (p *clusterPool) stateOf(l ipam.Lease) string {
	b := p.state.BlockOf(l.Addr)
	switch {
	case b == nil:
		return "shared"
	case b.Phase == local.Owned:
		return l.Boot.String()
	}
	return string(b.Phase)
}

// clusterEntry returns a pool as JSON. Its ranges are the blocks of this node.
func (r *reservations) clusterEntry(p clusterPool) poolEntry {
	e := poolEntry{Pool: p.name, DataDir: p.dir, Ranges: []rangeEntry{}, Leases: []leaseEntry{}}
	for _, b := range p.blocks {
		e.Ranges = append(e.Ranges, p.rangeEntry(b))
	}
	for _, l := range p.leases {
		entry := r.leaseEntry(l.Owner.Network, l)
		entry.State = p.stateOf(l)
		e.Leases = append(e.Leases, entry)
	}
	return e
}

// rangeEntry returns a block as JSON.
func (p *clusterPool) rangeEntry(b local.Use) rangeEntry {
	e := rangeEntry{
		Subnet: b.Block.Block, Start: b.Block.Block.Addr(), End: b.Block.Block.Addr(),
		Gateway: p.state.Pool.Gateway(b.Block.Block), Size: b.Capacity, Used: b.Used,
	}
	if parts := p.state.Pool.Ranges(b.Block.Block); len(parts) > 0 {
		e.Start, e.End = parts[0].Start, parts[len(parts)-1].End
	}
	return e
}

// showCluster returns the state of an address in the pools of a cluster.
func (r *reservations) showCluster(addr netip.Addr) []shown {
	var all []shown
	for _, p := range r.cluster {
		s := shown{Pool: p.name, DataDir: p.dir, Address: addr}
		if p.err == nil && p.state.Pool.Range.Contains(addr) {
			s.State = "in no block of this node"
		}
		for _, b := range p.blocks {
			if b.Block.Block.Contains(addr) {
				p.showBlock(&s, b)
			}
		}
		for _, l := range p.leases {
			if l.Addr == addr {
				s.State, s.Network = p.stateOf(l), l.Owner.Network
				s.Container, s.IfName = l.Owner.Container, l.Owner.IfName
				s.Since, s.age = l.Since.UTC(), l.Age
				s.Attachment = r.attachment(l.Owner.Network, l)
			}
		}
		if s.State != "" {
			all = append(all, s)
		}
	}
	return all
}

// showBlock describes an address without reservation in a block of this node.
func (p *clusterPool) showBlock(s *shown, b local.Use) {
	entry := p.rangeEntry(b)
	s.Range, s.State = &entry, "free"
	s.usage = fmt.Sprintf("block %s: %d of %d addresses reserved", b.Block.Block, b.Used, b.Capacity)
	switch {
	case b.Phase == local.Lost:
		s.State = "lost"
	case s.Address == entry.Gateway:
		s.State = "gateway"
	case p.state.Pool.Allocatable(s.Address) != nil:
		s.State = "never allocated"
	}
}

// printClusterNode prints the state of this node if it belongs to a cluster: from the agent, or from
// files if the agent does not answer.
func (a *app) printClusterNode(ctx context.Context) error {
	store := local.New(local.Options{Dir: clusterDir()})
	node, err := store.Node()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	fmt.Fprintf(a.stdout, "\nnode %s of cluster %s", node.Name, node.Cluster)
	reply, err := agentcall.Call(ctx, clusterSocket(), agentcall.Request{Verb: agentcall.Report})
	if err != nil || reply.Status == nil {
		fmt.Fprintf(a.stdout, ": the agent does not answer\n")
		a.printHint("attached containers and free addresses of the node's blocks still work; " +
			"start the agent: systemctl start tenon-cluster.service")
		return nil
	}
	s := reply.Status
	contact := "no contact yet"
	if !s.Contact.IsZero() {
		contact = "last contact " + ipam.FormatAge(time.Since(s.Contact)) + " ago"
	}
	fmt.Fprintf(a.stdout, ": %s, epoch %d, %s\n", s.State, s.Epoch, contact)
	for _, p := range s.Pools {
		hold := ""
		if !p.Hold.IsZero() {
			hold = ", hold ends in " + ipam.FormatAge(time.Until(p.Hold))
		}
		fmt.Fprintf(a.stdout, "pool %s: %d of %d addresses used in %s%s\n", p.Pool, p.Used, p.Capacity,
			count(p.Blocks, "block"), hold)
	}
	for _, problem := range s.Problems {
		a.warn("%s", problem)
	}
	return nil
}
