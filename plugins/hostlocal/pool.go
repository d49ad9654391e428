package hostlocal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Pool lists the reservations of one network in one data directory.
type Pool struct {
	Network string
	Dir     string  // data directory, without the network's subdirectory
	Ranges  []Range // configured ranges; empty if no configuration is known
	Invalid error   // error in the configuration; Ranges is then empty
	Leases  []ipam.Lease
}

// Range is a range of addresses with the number of reservations.
type Range struct {
	ipam.Range
	Set  int    // index of the range set; a container gets an address of each set
	Used uint64 // reserved addresses of all owners
}

// Pools lists the reservations of the networks that lists configure, and of every other network
// with a directory in one of their data directories or in dirs. If several lists have the same name
// and data directory, the first one counts. The error joins all read errors; Pools returns the
// remaining pools in any case.
func Pools(ctx context.Context, lists []*cni.List, dirs ...string) ([]Pool, error) {
	return pools(ctx, filestore.Options{}, lists, dirs)
}

// PeekPools is Pools, but it neither waits for the locks of the networks nor creates them.
func PeekPools(ctx context.Context, lists []*cni.List, dirs ...string) ([]Pool, error) {
	return pools(ctx, filestore.Options{Peek: true}, lists, dirs)
}

func pools(
	ctx context.Context, o filestore.Options, lists []*cni.List, dirs []string,
) ([]Pool, error) {
	id, err := statefile.BootID()
	if err != nil {
		return nil, err
	}
	pools := configured(lists)
	others, err := unconfigured(pools, dirs)
	errs := []error{err}
	pools = append(pools, others...)
	for i := range pools {
		o.Dir, o.Network, o.BootID = pools[i].Dir, pools[i].Network, id
		if err := pools[i].read(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("reservations of network %s: %w", pools[i].Network, err))
		}
	}
	sort.Slice(pools, func(i, j int) bool {
		return cmp.Or(cmp.Compare(pools[i].Network, pools[j].Network),
			cmp.Compare(pools[i].Dir, pools[j].Dir)) < 0
	})
	return pools, errors.Join(errs...)
}

// configured returns the pools of configured networks, without their reservations.
func configured(lists []*cni.List) []Pool {
	var pools []Pool
	for _, l := range lists {
		for _, p := range l.Plugins {
			if p.IPAM != "host-local" {
				continue
			}
			if pool := newPool(l.Name, p); !contains(pools, pool) {
				pools = append(pools, pool)
			}
		}
	}
	return pools
}

func contains(pools []Pool, p Pool) bool {
	return slices.ContainsFunc(pools, func(q Pool) bool {
		return p.Network == q.Network && p.Dir == q.Dir
	})
}

// newPool reads the configuration of host-local.
func newPool(name string, p *cni.PluginConfig) Pool {
	pool := Pool{Network: name, Dir: DefaultDataDir}
	conf, err := decode(p)
	if conf.IPAM.DataDir != "" {
		pool.Dir = conf.IPAM.DataDir
	}
	sets := conf.IPAM.Sets()
	if err == nil {
		err = ipam.CanonicalizeSets(sets)
	}
	if err != nil {
		pool.Invalid = fmt.Errorf("network %s: plugin %s: ipam: %w", name, p.Type, err)
		return pool
	}
	for i, set := range sets {
		for _, r := range set {
			pool.Ranges = append(pool.Ranges, Range{Range: r, Set: i})
		}
	}
	return pool
}

// decode returns the readable part of the configuration even if it returns an error.
func decode(p *cni.PluginConfig) (conf Config, err error) {
	text, err := p.MarshalJSON()
	if err != nil {
		return conf, err
	}
	return conf, json.Unmarshal(text, &conf)
}

// unconfigured returns the networks that have a directory in dirs or next to the known pools,
// without their reservations.
func unconfigured(known []Pool, dirs []string) ([]Pool, error) {
	dirs = slices.Clone(dirs)
	for _, p := range known {
		dirs = append(dirs, p.Dir)
	}
	slices.Sort(dirs)
	var pools []Pool
	var errs []error
	for _, dir := range slices.Compact(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			p := Pool{Network: e.Name(), Dir: dir}
			if e.IsDir() && cni.ValidateNetworkName(e.Name()) == nil && !contains(known, p) {
				pools = append(pools, p)
			}
		}
	}
	return pools, errors.Join(errs...)
}

// read reads the reservations.
func (p *Pool) read(ctx context.Context, o filestore.Options) error {
	if _, err := os.Stat(filepath.Join(p.Dir, p.Network)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s, err := filestore.Open(ctx, o)
	if err != nil {
		return err
	}
	p.Leases, err = s.Leases(ctx)
	for _, l := range p.Leases {
		for i := range p.Ranges {
			if p.Ranges[i].Contains(l.Addr) {
				p.Ranges[i].Used++
			}
		}
	}
	return errors.Join(err, s.Close())
}

// Find returns the lease of an address.
func (p *Pool) Find(a netip.Addr) (l ipam.Lease, ok bool) {
	i := slices.IndexFunc(p.Leases, func(l ipam.Lease) bool { return l.Addr == a })
	if i < 0 {
		return ipam.Lease{}, false
	}
	return p.Leases[i], true
}

// Free frees the address of a lease unless another attachment holds it meanwhile. It does not ask
// the holder: the caller must know that the holder no longer uses the address.
func (p *Pool) Free(ctx context.Context, l ipam.Lease) error {
	id, err := statefile.BootID()
	if err != nil {
		return err
	}
	s, err := filestore.Open(ctx, filestore.Options{Dir: p.Dir, Network: p.Network, BootID: id})
	if err != nil {
		return err
	}
	return errors.Join(s.Free(ctx, l), s.Close())
}
