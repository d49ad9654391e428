package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// migration holds the flags of migrate.
type migration struct {
	*app
	plan, apply, rollback, shared bool
	netDir                        string
	dataDirs, networks            []string
}

func (a *app) migrate() *cobra.Command {
	m := &migration{app: a}
	cmd := &cobra.Command{
		Use:   "migrate --plan | --apply | --rollback",
		Short: "Move the reservations of host-local into pools",
		Long: `Takes over the addresses that host-local has reserved on this node. Run it on each
node, with its agent running. Pools must exist that contain the ranges.

--plan shows the blocks with live addresses and all conflicts; it changes nothing.
Add the gateways that it shows to the bridge before --apply: packets to a block
then find it as soon as the node owns it.
--apply copies the reservations into the node's files and claims their blocks. A
block that host-local's ranges of this node cover only in part becomes shared: its
other addresses belong to other nodes. --shared makes all blocks shared, for nodes
with overlapping ranges. Drain the node while you switch the network configuration,
and repeat --apply before "node undrain". host-local's files stay as they are.
--rollback copies the pool's reservations back into host-local's files, drains the
node, and leaves its blocks claimed. It refuses if an address lies outside
host-local's ranges.`,
		Example: a.examples("migrate --plan", "migrate --apply --network pods", "migrate --rollback"),
		Args:    arguments(),
		RunE:    a.withStore(m.run),
	}
	flags := cmd.Flags()
	flags.BoolVar(&m.plan, "plan", false, "show what apply would do")
	flags.BoolVar(&m.apply, "apply", false, "copy reservations and claim their blocks")
	flags.BoolVar(&m.rollback, "rollback", false, "copy reservations back to host-local")
	flags.BoolVar(&m.shared, "shared", false, "make all blocks shared")
	flags.StringVar(&m.netDir, "net-dir", config.DefaultDir, "read network configurations from `DIR`")
	flags.StringSliceVar(&m.dataDirs, "data-dir", []string{hostlocal.DefaultDataDir},
		"`DIRS` of host-local, in addition to the configured ones")
	flags.StringSliceVar(&m.networks, "network", nil, "only networks `NAMES`")
	return a.jsonFlag(a.yesFlag(cmd))
}

// move is the plan for one block.
type move struct {
	Pool    string       `json:"pool"`
	Block   netip.Prefix `json:"block"`
	Gateway netip.Prefix `json:"gateway,omitzero"` // of the block, with the length of its prefix
	Action  string       `json:"action"`           // see the constants
	Reason  string       `json:"reason,omitempty"`
	Live    []moved      `json:"addresses"`
	pool    registry.Pool
	missing []moved // addresses that are not in the files of the node yet
}

// moved is a live address.
type moved struct {
	Addr      netip.Addr `json:"address"`
	Network   string     `json:"network"`
	Container string     `json:"containerID"`
	IfName    string     `json:"ifname,omitempty"`
}

func newMoved(network string, l ipam.Lease) moved {
	return moved{l.Addr, network, l.Owner.Container, l.Owner.IfName}
}

func (l moved) owner() ipam.Owner {
	return ipam.Owner{Container: l.Container, IfName: l.IfName, Network: l.Network}
}

// The actions of a plan.
const (
	actClaim    = "claim"
	actShare    = "share"
	actDone     = "done"
	actConflict = "conflict"
)

func (m *migration) run(ctx context.Context, s *session, _ []string) error {
	chosen := 0
	for _, set := range []bool{m.plan, m.apply, m.rollback} {
		if set {
			chosen++
		}
	}
	if chosen != 1 {
		return usagef("give one of --plan, --apply and --rollback")
	}
	pools, err := m.hostLocal(ctx)
	if err != nil {
		return err
	}
	if m.rollback {
		return m.runRollback(ctx, s, pools)
	}
	moves, err := m.moves(ctx, s, pools)
	if err != nil {
		return err
	}
	if m.apply {
		return m.runApply(ctx, s, moves)
	}
	if err := m.print(moves, func() error { return m.printMoves(moves) }); err != nil {
		return err
	}
	if slices.ContainsFunc(moves, func(v *move) bool { return v.Action == actConflict }) {
		return exitStatus(statusFailure)
	}
	return nil
}

// hostLocal reads the reservations of host-local on this node.
func (m *migration) hostLocal(ctx context.Context) ([]hostlocal.Pool, error) {
	var lists []*cni.List
	c, err := config.Discover(m.netDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		for _, f := range c.Candidates() {
			if f.Err != nil {
				m.warn("skipped %s: %v", filepath.Base(f.Path), f.Err)
				continue
			}
			lists = append(lists, f.Network.List)
		}
	}
	pools, err := hostlocal.Pools(ctx, lists, m.dataDirs...)
	pools = slices.DeleteFunc(pools, func(p hostlocal.Pool) bool {
		return len(m.networks) > 0 && !slices.Contains(m.networks, p.Network)
	})
	for _, p := range pools {
		if p.Invalid != nil {
			err = errors.Join(err, p.Invalid)
		}
	}
	return pools, err
}

// moves makes the plan.
func (m *migration) moves(
	ctx context.Context, s *session, pools []hostlocal.Pool,
) ([]*move, error) {
	snapshot, err := s.registry.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var list []*move
	for _, p := range pools {
		for _, l := range p.Leases {
			if (lease{l}).earlier() {
				continue
			}
			list = addMove(list, snapshot, newMoved(p.Network, l))
		}
	}
	here, err := m.reserved(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, v := range list {
		for _, l := range v.Live {
			if !here[l] {
				v.missing = append(v.missing, l)
			}
		}
		m.decide(v, s.settings.Node, snapshot, pools)
	}
	slices.SortFunc(list, func(x, y *move) int {
		return cmp.Or(strings.Compare(x.Pool, y.Pool), x.Block.Addr().Compare(y.Block.Addr()))
	})
	return list, nil
}

// addMove adds a live address to the move of its block.
func addMove(list []*move, snapshot registry.Snapshot, l moved) []*move {
	v := &move{Block: netip.PrefixFrom(l.Addr, l.Addr.BitLen()), Action: actConflict,
		Reason: "no pool contains the address"}
	for _, p := range snapshot.Pools {
		if block, ok := p.BlockOf(l.Addr); ok {
			v = &move{Pool: p.Name, Block: block, pool: p,
				Gateway: netip.PrefixFrom(p.Gateway(block), block.Bits())}
		}
	}
	for _, other := range list {
		if other.Pool == v.Pool && other.Block == v.Block {
			other.Live = append(other.Live, l)
			return list
		}
	}
	v.Live = []moved{l}
	return append(list, v)
}

// reserved returns the addresses in the node's files.
func (m *migration) reserved(ctx context.Context, s *session) (map[moved]bool, error) {
	f, err := readFiles(ctx, s.local())
	here := map[moved]bool{}
	for _, p := range f.pools {
		for _, l := range p.leases {
			here[newMoved(l.Owner.Network, l.Lease)] = true
		}
	}
	return here, err
}

// decide chooses the action for a block.
func (m *migration) decide(
	v *move, node string, snapshot registry.Snapshot, pools []hostlocal.Pool,
) {
	if v.Pool == "" {
		return
	}
	for _, l := range v.Live {
		if err := v.pool.Allocatable(l.Addr); err != nil {
			v.Action, v.Reason = actConflict, err.Error()
			return
		}
	}
	v.Action = actClaim
	switch {
	case m.shared:
		v.Action, v.Reason = actShare, "--shared"
	case !covered(&v.pool.Pool, v.Block, pools):
		v.Action, v.Reason = actShare, "the ranges of host-local cover it only in part"
	}
	for _, b := range snapshot.Blocks {
		if b.Pool != v.Pool || b.Block.Block != v.Block {
			continue
		}
		switch {
		case b.State == cluster.BlockCooling:
			v.Action, v.Reason = actConflict, "the block cools down; try again later"
		case b.State == cluster.BlockShared && v.Action == actClaim:
			v.Action, v.Reason = actShare, "other nodes use it"
		case b.State == cluster.BlockOwned && b.Owner != node:
			v.Action, v.Reason = actConflict, fmt.Sprintf("node %s owns the block; ranges of the nodes "+
				"overlap: roll back there, and apply with --shared on both", b.Owner)
		case b.State == cluster.BlockOwned && v.Action == actShare && m.shared:
			v.Action, v.Reason = actConflict, "this node owns the block already"
		case b.State == cluster.BlockOwned:
			v.Action, v.Reason = actClaim, ""
			if len(v.missing) == 0 {
				v.Action = actDone
			}
		}
	}
	if v.Action == actShare && held(v, node, snapshot) && len(v.missing) == 0 {
		v.Action = actDone
	}
}

// covered reports whether the ranges of host-local on this node contain all addresses of a block
// that can be allocated.
func covered(p *cluster.Pool, block netip.Prefix, pools []hostlocal.Pool) bool {
	for _, part := range p.Ranges(block) {
		inside := false
		for _, h := range pools {
			for _, r := range h.Ranges {
				inside = inside || r.Contains(part.Start) && r.Contains(part.End)
			}
		}
		if !inside {
			return false
		}
	}
	return true
}

// held reports whether the node holds all live addresses of a shared block.
func held(v *move, node string, snapshot registry.Snapshot) bool {
	for _, l := range v.Live {
		if !slices.ContainsFunc(snapshot.Holders, func(h cluster.Holder) bool {
			return h.Pool == v.Pool && h.Addr == l.Addr && h.Node == node && h.Container == l.Container
		}) {
			return false
		}
	}
	return true
}

func (m *migration) printMoves(moves []*move) error {
	if len(moves) == 0 {
		m.printf("host-local holds no address on this node\n")
		return nil
	}
	rows := [][]string{{"BLOCK", "POOL", "GATEWAY", "ADDRESSES", "ACTION", "REASON"}}
	for _, v := range moves {
		gateway := ""
		if v.Gateway.IsValid() {
			gateway = v.Gateway.String()
		}
		rows = append(rows, []string{v.Block.String(), v.Pool, gateway, fmt.Sprint(len(v.Live)), v.Action,
			v.Reason})
	}
	return m.table(rows)
}

// runApply copies reservations first: from the moment that the node owns a block, the plugin may
// allocate from it.
func (m *migration) runApply(ctx context.Context, s *session, moves []*move) error {
	for _, v := range moves {
		if v.Action == actConflict {
			return hint(fmt.Errorf("%s: %s", v.Block, v.Reason), "show all conflicts: "+m.name+
				" migrate --plan", "nothing was changed")
		}
	}
	node, err := s.registry.Nodes.Read(ctx, s.settings.Node)
	if errors.Is(err, registry.ErrNotFound) {
		return hint(fmt.Errorf("node %s has not joined the cluster", s.settings.Node),
			"start its agent: systemctl start tenon-cluster.service")
	}
	if err != nil {
		return err
	}
	for _, v := range moves {
		if err := m.copyReservations(ctx, s, v); err != nil {
			return fmt.Errorf("block %s: %w", v.Block, err)
		}
	}
	if err := m.claim(ctx, s, node, moves); err != nil {
		return hint(err, "the copied reservations stay; run migrate --apply again")
	}
	return m.print(moves, func() error {
		verbs := map[string]string{actClaim: "claimed", actShare: "shared", actDone: "done before:"}
		for _, v := range moves {
			m.printf("%s block %s of pool %s: %s\n", verbs[v.Action], v.Block, v.Pool,
				plural(len(v.Live), "address"))
		}
		return nil
	})
}

// copyReservations writes the reservations of a block into the files of the node.
func (m *migration) copyReservations(ctx context.Context, s *session, v *move) error {
	if len(v.missing) == 0 {
		return nil
	}
	p, err := s.local().Open(ctx, v.Pool, false)
	if err != nil {
		return err
	}
	for _, l := range v.missing {
		_, putErr := p.Put(ctx, l.Addr, local.Request{Owner: l.owner()})
		err = errors.Join(err, putErr)
	}
	return errors.Join(err, p.Close())
}

// claim makes the transactions: at most 40 blocks in each, and one for each shared address.
func (m *migration) claim(
	ctx context.Context, s *session, node registry.Node, moves []*move,
) error {
	byPool := map[string][]*move{}
	var names []string
	for _, v := range moves {
		if v.Action == actClaim && !owns(node, v) {
			if byPool[v.Pool] == nil {
				names = append(names, v.Pool)
			}
			byPool[v.Pool] = append(byPool[v.Pool], v)
		}
	}
	const atOnce = 40
	for _, name := range names {
		for chunk := range slices.Chunk(byPool[name], atOnce) {
			var blocks []netip.Prefix
			for _, v := range chunk {
				blocks = append(blocks, v.Block)
			}
			var err error
			node, err = m.claimBlocks(ctx, s, node, chunk[0].pool, blocks)
			if err != nil {
				return err
			}
		}
	}
	for _, v := range moves {
		if v.Action != actShare {
			continue
		}
		for _, l := range v.Live {
			if err := m.acquire(ctx, s, v, l); err != nil {
				return fmt.Errorf("%s: %w", l.Addr, err)
			}
		}
	}
	return nil
}

func owns(node registry.Node, v *move) bool {
	return slices.ContainsFunc(node.Blocks, func(b cluster.BlockRef) bool {
		return b.Pool == v.Pool && b.Block == v.Block
	})
}

// attempts is the number of times that a transaction is repeated after the agent of this node
// changed the node's document at the same time.
const attempts = 5

func (m *migration) claimBlocks(
	ctx context.Context, s *session, node registry.Node, p registry.Pool, blocks []netip.Prefix,
) (registry.Node, error) {
	nonce := rand.Text()
	for try := 1; ; try++ {
		next, _, err := s.registry.Blocks.Claim(ctx, node, p, blocks, nonce)
		if err == nil || try == attempts ||
			!errors.Is(err, registry.ErrConflict) && !errors.Is(err, registry.ErrUnknown) {
			return next, err
		}
		if node, err = s.registry.Nodes.Read(ctx, s.settings.Node); err != nil {
			return node, err
		}
	}
}

func (m *migration) acquire(ctx context.Context, s *session, v *move, l moved) error {
	h := registry.Hold{Holder: cluster.Holder{Addr: l.Addr, Network: l.Network,
		Container: l.Container, IfName: l.IfName, Nonce: rand.Text()}}
	for try := 1; ; try++ {
		node, err := s.registry.Nodes.Read(ctx, s.settings.Node)
		if err != nil {
			return err
		}
		_, err = s.registry.Shared.Acquire(ctx, node, v.pool, h)
		if err == nil || try == attempts ||
			!errors.Is(err, registry.ErrConflict) && !errors.Is(err, registry.ErrUnknown) {
			return err
		}
	}
}
