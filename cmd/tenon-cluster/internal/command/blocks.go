package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ops/spelling"
)

// blockEntry is a block as JSON.
type blockEntry struct {
	Pool       string             `json:"pool"`
	Block      string             `json:"block"`
	State      cluster.BlockState `json:"state"`
	Owner      string             `json:"owner,omitempty"`
	Epoch      uint64             `json:"epoch,omitempty"`
	Generation int64              `json:"generation"`
	Since      time.Time          `json:"since"`
	Used       *uint64            `json:"used,omitempty"` // of owned blocks only on their node
	Capacity   uint64             `json:"capacity"`
}

func (a *app) blocks() *cobra.Command {
	node, pool := "", ""
	cmd := &cobra.Command{
		Use:   "blocks",
		Short: "List claimed blocks",
		Long: `Lists the blocks that are owned, cooling or shared; all others are free. Only the
owner knows which addresses of a block are in use, so USED is shown for the blocks
of this node and for shared blocks. GENERATION tells two lives of a block apart.`,
		Example: a.examples("blocks", "blocks --node n7 --pool pods", "blocks --json"),
		Args:    arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			snapshot, err := s.registry.Snapshot(ctx)
			if err != nil {
				return err
			}
			if err := a.known(snapshot, node, pool); err != nil {
				return err
			}
			used := a.localUse(ctx, s)
			list := []blockEntry{}
			for _, b := range snapshot.Blocks {
				if node != "" && b.Owner != node || pool != "" && b.Pool != pool {
					continue
				}
				list = append(list, newBlockEntry(snapshot, b, used))
			}
			return a.print(list, func() error { return a.printBlocks(list) })
		}),
	}
	cmd.Flags().StringVar(&node, "node", "", "only blocks of node `NAME`")
	cmd.Flags().StringVar(&pool, "pool", "", "only blocks of pool `NAME`")
	return a.jsonFlag(cmd)
}

// known returns an error if a node or pool does not exist.
func (a *app) known(snapshot registry.Snapshot, node, pool string) error {
	var nodes, pools []string
	for _, n := range snapshot.Nodes {
		nodes = append(nodes, n.Name)
	}
	for _, p := range snapshot.Pools {
		pools = append(pools, p.Name)
	}
	switch {
	case node != "" && !slices.Contains(nodes, node):
		return suggest(fmt.Errorf("there is no node %q", node), node, nodes,
			"list the nodes: "+a.name+" node list")
	case pool != "" && !slices.Contains(pools, pool):
		return suggest(fmt.Errorf("there is no pool %q", pool), pool, pools,
			"list the pools: "+a.name+" pools")
	}
	return nil
}

// suggest adds the nearest known name to an error, or else the fallbacks.
func suggest(err error, name string, known []string, fallback ...string) error {
	if near := spelling.Nearest(name, known); near != "" {
		return hint(err, fmt.Sprintf("did you mean %q?", near))
	}
	return hint(err, fallback...)
}

// life identifies one life of a block.
type life struct {
	pool, nonce string
	block       netip.Prefix
}

// localUse returns the use of this node's blocks.
func (a *app) localUse(ctx context.Context, s *session) map[life]local.Use {
	uses := map[life]local.Use{}
	store := s.local()
	names, err := store.Pools()
	if err != nil {
		a.warn("the use of this node's blocks is not known: %v", err)
	}
	for _, name := range names {
		err := withPool(ctx, store, name, func(p *local.Pool) error {
			blocks, _, err := p.Usage(ctx)
			for _, b := range blocks {
				uses[life{name, b.Nonce, b.Block.Block}] = b
			}
			return err
		})
		if err != nil {
			a.warn("the use of pool %s on this node is not known: %v", name, err)
		}
	}
	return uses
}

// withPool reads a pool of this node without waiting for its lock.
func withPool(
	ctx context.Context, store *local.Store, name string, body func(*local.Pool) error,
) error {
	p, err := store.Open(ctx, name, true)
	if err != nil {
		return err
	}
	return errors.Join(body(p), p.Close())
}

func newBlockEntry(
	snapshot registry.Snapshot, b registry.Block, used map[life]local.Use,
) blockEntry {
	e := blockEntry{
		Pool: b.Pool, Block: b.Block.Block.String(), State: b.State, Owner: b.Owner, Epoch: b.Epoch,
		Generation: b.Generation, Since: b.Since,
	}
	for _, p := range snapshot.Pools {
		if p.Name == b.Pool {
			e.Capacity = p.Units(b.Block.Block)
		}
	}
	if u, ok := used[life{b.Pool, b.Nonce, b.Block.Block}]; ok && b.State == cluster.BlockOwned {
		e.Used, e.Capacity = &u.Used, u.Capacity
	}
	if b.State == cluster.BlockShared {
		n := uint64(0)
		for _, h := range snapshot.Holders {
			if h.Pool == b.Pool && b.Block.Block.Contains(h.Addr) {
				n++
			}
		}
		e.Used = &n
	}
	return e
}

func (a *app) printBlocks(list []blockEntry) error {
	rows := [][]string{{"BLOCK", "POOL", "STATE", "NODE", "USED", "GENERATION", "SINCE"}}
	for _, e := range list {
		used := fmt.Sprintf("?/%d", e.Capacity)
		switch {
		case e.Used != nil:
			used = fmt.Sprintf("%d/%d", *e.Used, e.Capacity)
		case e.State == cluster.BlockCooling:
			used = "-"
		}
		rows = append(rows, []string{e.Block, e.Pool, string(e.State), cmp.Or(e.Owner, "-"), used,
			strconv.FormatInt(e.Generation, 10), e.Since.UTC().Format(time.DateOnly)})
	}
	return a.table(rows)
}
