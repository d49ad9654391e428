package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

func (a *app) init() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "init",
		Short: "Create the cluster in etcd",
		Long: `Creates the cluster of the settings in etcd. If it exists already, init prints its
identity and changes nothing.`,
		Example: a.examples("init", "init --cluster production --endpoints https://10.0.0.1:2379"),
		Args:    arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			_, err := s.registry.Meta.Read(ctx)
			exists := err == nil
			if err != nil && !errors.Is(err, registry.ErrNotFound) {
				return err
			}
			meta, err := s.registry.Meta.Init(ctx)
			if err != nil {
				return err
			}
			return a.print(
				map[string]any{"cluster": s.settings.Cluster, "nonce": meta.Nonce, "created": !exists},
				func() error {
					if exists {
						a.printf("cluster %s exists already\n", s.settings.Cluster)
						return nil
					}
					a.printf("created cluster %s\n", s.settings.Cluster)
					a.hint("create a pool: " + a.name + " pool create pods 10.64.0.0/12")
					return nil
				})
		}),
	})
}

func (a *app) pool() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "pool",
		Short:   "Create, change and delete pools",
		Example: a.examples("pool create pods 10.64.0.0/12", "pool set pods --quota '*=500'"),
	}
	cmd.AddCommand(a.poolCreate(), a.poolSet(), a.poolDelete())
	return parent(cmd)
}

// poolFlags are the flags for the rules of a pool.
type poolFlags struct {
	blockBits, prefixBits, maxBlocks int
	exclude, reserve, namespaces     []string
	nodes, quota                     []string
	cooldown, hold                   time.Duration
}

// rules adds the flags that can be changed later.
func (f *poolFlags) rules(set *pflag.FlagSet) {
	set.StringSliceVar(&f.exclude, "exclude", nil, "never allocate these `PREFIXES`")
	set.StringSliceVar(&f.reserve, "reserve", nil, "allocate these `PREFIXES` only by request")
	set.StringSliceVar(&f.namespaces, "namespaces", nil, "only for pods in these `NAMES`")
	set.StringSliceVar(&f.nodes, "nodes", nil, "only for nodes with these labels, `KEY=VALUE`")
	set.StringSliceVar(&f.quota, "quota", nil,
		"addresses per namespace, `NAMESPACE=N`; * stands for all others")
	set.IntVar(&f.maxBlocks, "max-blocks", 0, "blocks per node, at most `N`; 0 means no limit")
	set.DurationVar(&f.cooldown, "cooldown", time.Duration(cluster.DefaultCooldown),
		"`TIME` before another node can use a block")
	set.DurationVar(&f.hold, "hold", 0,
		"`TIME` without etcd after which a node stops using its blocks, at least 1h; 0 means never")
}

// apply changes a pool by the flags that the user gave.
func (f *poolFlags) apply(set *pflag.FlagSet, p *cluster.Pool) error {
	var errs []error
	set.Visit(func(flag *pflag.Flag) { errs = append(errs, f.applyOne(flag.Name, p)) })
	return errors.Join(errs...)
}

func (f *poolFlags) applyOne(name string, p *cluster.Pool) (err error) {
	switch name {
	case "block-bits":
		p.BlockBits = f.blockBits
	case "prefix-bits":
		p.PrefixBits = f.prefixBits
	case "exclude":
		p.Exclude, err = prefixes(f.exclude)
	case "reserve":
		p.Reserve, err = prefixes(f.reserve)
	case "namespaces":
		p.Namespaces = nonEmpty(f.namespaces)
	case "nodes":
		p.Nodes, err = labels(f.nodes)
	case "quota":
		p.Quota, err = quotas(f.quota)
	case "max-blocks":
		p.MaxBlocks = f.maxBlocks
	case "cooldown":
		p.Cooldown = cluster.Duration(f.cooldown)
	case "hold":
		p.Hold = cluster.Duration(f.hold)
	}
	if err != nil {
		return usageError{fmt.Errorf("--%s: %w", name, err)}
	}
	return nil
}

func nonEmpty(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// prefixes parses prefixes and single addresses. An empty word clears a list.
func prefixes(words []string) (list []netip.Prefix, err error) {
	for _, w := range nonEmpty(words) {
		p, err := netip.ParsePrefix(w)
		if err != nil {
			single, addrErr := netip.ParseAddr(w)
			if addrErr != nil {
				return nil, fmt.Errorf("%q is neither an address nor a prefix", w)
			}
			p = netip.PrefixFrom(single, single.BitLen())
		}
		list = append(list, p)
	}
	return list, nil
}

func labels(words []string) (map[string]string, error) {
	m := map[string]string{}
	for _, w := range nonEmpty(words) {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q has not the form KEY=VALUE", w)
		}
		m[k] = v
	}
	return m, nil
}

func quotas(words []string) (map[string]uint64, error) {
	m := map[string]uint64{}
	for _, w := range nonEmpty(words) {
		k, v, ok := strings.Cut(w, "=")
		n, err := strconv.ParseUint(v, 10, 64)
		if !ok || k == "" || err != nil {
			return nil, fmt.Errorf("%q has not the form NAMESPACE=NUMBER", w)
		}
		m[k] = n
	}
	return m, nil
}

func (a *app) poolCreate() *cobra.Command {
	f := &poolFlags{}
	cmd := &cobra.Command{
		Use:   "create NAME RANGE",
		Short: "Create a pool",
		Long: `Creates a pool of addresses of one family. A node claims blocks of the pool, /26 or
/122 by default, and allocates from them without etcd. The range and the size of
blocks never change; pools must not overlap.`,
		Example: a.examples("pool create pods 10.64.0.0/12 --exclude 10.64.0.0/26",
			"pool create pods6 fd00:64::/104",
			"pool create prefixes fd00:65::/48 --prefix-bits 80 --block-bits 74"),
		Args: arguments("NAME", "RANGE"),
	}
	cmd.Flags().IntVar(&f.blockBits, "block-bits", 0, "prefix `LENGTH` of a block")
	cmd.Flags().IntVar(&f.prefixBits, "prefix-bits", 0,
		"give each attachment an IPv6 prefix of this `LENGTH`, 64 to 80")
	f.rules(cmd.Flags())
	cmd.RunE = a.withStore(func(ctx context.Context, s *session, args []string) error {
		rng, err := netip.ParsePrefix(args[1])
		if err != nil {
			return usagef("%q is not a range such as 10.64.0.0/12", args[1])
		}
		if _, err := s.findPool(ctx, args[0]); err == nil {
			return hint(fmt.Errorf("pool %s exists already", args[0]),
				"change its rules: "+a.name+" pool set "+args[0])
		} else if !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		p := cluster.Pool{Name: args[0], Range: rng}
		if err := f.apply(cmd.Flags(), &p); err != nil {
			return err
		}
		return a.putPool(ctx, s, p, "created")
	})
	return a.jsonFlag(cmd)
}

func (a *app) poolSet() *cobra.Command {
	f := &poolFlags{}
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the rules of a pool",
		Long: `Changes the rules that flags name and keeps all others. An empty value clears a
list. Addresses that are in use stay in use, also if a rule now excludes them.`,
		Example: a.examples("pool set pods --exclude 10.64.0.0/26,10.64.1.7",
			"pool set pods --quota 'ci=2000,*=500'", "pool set pods --nodes zone=a --hold 2h"),
		Args: arguments("NAME"),
	}
	f.rules(cmd.Flags())
	cmd.RunE = a.withStore(func(ctx context.Context, s *session, args []string) error {
		p, err := s.findPool(ctx, args[0])
		if err != nil {
			return a.unknownPool(ctx, s, args[0], err)
		}
		if err := f.apply(cmd.Flags(), &p.Pool); err != nil {
			return err
		}
		return a.putPool(ctx, s, p.Pool, "changed")
	})
	return a.jsonFlag(cmd)
}

func (a *app) putPool(ctx context.Context, s *session, p cluster.Pool, verb string) error {
	if err := p.Canonicalize(); err != nil {
		return err
	}
	put, err := s.registry.Pools.Put(ctx, p)
	if errors.Is(err, registry.ErrNotFound) {
		return hint(err, "create the cluster first: "+a.name+" init")
	}
	if err != nil {
		return err
	}
	return a.print(put.Pool, func() error {
		a.printf("%s pool %s: %s, %d blocks of /%d\n", verb, put.Name, put.Range, put.Pool.Blocks(),
			put.BlockBits)
		return nil
	})
}

func (a *app) poolDelete() *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a pool without blocks",
		Example: a.examples("pool delete old"),
		Args:    arguments("NAME"),
		RunE: a.withStore(func(ctx context.Context, s *session, args []string) error {
			_, err := s.findPool(ctx, args[0])
			if err == nil {
				err = s.registry.Pools.Delete(ctx, args[0])
			}
			switch {
			case errors.Is(err, registry.ErrInUse):
				return hint(err, "list its blocks: "+a.name+" blocks --pool "+args[0],
					"nodes return empty blocks after 10 minutes, and they cool down before they are free")
			case err != nil:
				return a.unknownPool(ctx, s, args[0], err)
			}
			a.printf("deleted pool %s\n", args[0])
			return nil
		}),
	}
}

// findPool reads one pool. The error wraps registry.ErrNotFound.
func (s *session) findPool(ctx context.Context, name string) (registry.Pool, error) {
	pools, err := s.registry.Pools.List(ctx)
	if err != nil {
		return registry.Pool{}, err
	}
	for _, p := range pools {
		if p.Name == name {
			return p, nil
		}
	}
	return registry.Pool{}, fmt.Errorf("pool %q: %w", name, registry.ErrNotFound)
}

// unknownPool adds the names of the pools to the error that a pool does not exist.
func (a *app) unknownPool(ctx context.Context, s *session, name string, err error) error {
	if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	pools, listErr := s.registry.Pools.List(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return suggest(fmt.Errorf("there is no pool %q", name), name, names,
		"create it: "+a.name+" pool create "+name+" RANGE")
}

func (a *app) pools() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools",
		Short: "List pools with their use and rules",
		Long: `Lists the pools. BLOCKS are claimed blocks of all blocks; nodes own them, or they
hold shared addresses. COOLING blocks become free after the pool's cooldown.`,
		Example: a.examples("pools", "pools --json"),
		Args:    arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			snapshot, err := s.registry.Snapshot(ctx)
			if err != nil {
				return err
			}
			uses := a.poolUses(snapshot, s)
			return a.print(uses, func() error { return a.printPools(uses) })
		}),
	}
	return a.jsonFlag(cmd)
}

func (a *app) printPools(uses []poolUse) error {
	rows := [][]string{{"POOL", "RANGE", "BLOCK", "BLOCKS", "COOLING", "SHARED", "RULES"}}
	for _, u := range uses {
		rows = append(rows, []string{
			u.Name, u.Range.String(), "/" + strconv.Itoa(u.BlockBits),
			fmt.Sprintf("%d/%d", u.Claimed, u.Total), strconv.Itoa(u.Cooling),
			strconv.Itoa(u.Addresses), u.rules(),
		})
	}
	return a.table(rows)
}

// rules describes the rules of a pool that differ from the defaults.
func (u *poolUse) rules() string {
	var list []string
	add := func(name string, value any) { list = append(list, fmt.Sprintf("%s %v", name, value)) }
	if u.PrefixBits > 0 {
		add("prefix", "/"+strconv.Itoa(u.PrefixBits))
	}
	for name, n := range map[string]int{"exclude": len(u.Exclude), "reserve": len(u.Reserve)} {
		if n > 0 {
			add(name, n)
		}
	}
	slices.Sort(list)
	if len(u.Namespaces) > 0 {
		add("namespaces", strings.Join(u.Namespaces, " "))
	}
	for _, k := range slices.Sorted(maps.Keys(u.Nodes)) {
		add("nodes", k+"="+u.Nodes[k])
	}
	for _, k := range slices.Sorted(maps.Keys(u.Quota)) {
		add("quota", fmt.Sprintf("%s=%d", k, u.Quota[k]))
	}
	if u.MaxBlocks > 0 {
		add("max-blocks", u.MaxBlocks)
	}
	if u.Cooldown != cluster.DefaultCooldown {
		add("cooldown", u.Cooldown)
	}
	if u.Hold > 0 {
		add("hold", u.Hold)
	}
	return strings.Join(list, ", ")
}

// poolUse is a pool with its use.
type poolUse struct {
	cluster.Pool
	Total     uint64    `json:"totalBlocks"`
	Claimed   int       `json:"claimedBlocks"`
	Cooling   int       `json:"coolingBlocks"`
	Addresses int       `json:"sharedAddresses"`
	Forecast  *forecast `json:"forecast,omitempty"` // absent without enough samples
}

func (a *app) poolUses(snapshot registry.Snapshot, s *session) []poolUse {
	uses := make([]poolUse, len(snapshot.Pools))
	for i, p := range snapshot.Pools {
		u := poolUse{Pool: p.Pool, Total: p.Pool.Blocks()}
		for _, b := range snapshot.Blocks {
			switch {
			case b.Pool != p.Name:
			case b.State == cluster.BlockCooling:
				u.Cooling++
			default:
				u.Claimed++
			}
		}
		for _, h := range snapshot.Holders {
			if h.Pool == p.Name {
				u.Addresses++
			}
		}
		u.Forecast = a.forecast(s, &u)
		uses[i] = u
	}
	return uses
}
