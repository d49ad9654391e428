package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// checkReport is the output of check as JSON.
type checkReport struct {
	Cluster  string             `json:"cluster"`
	Revision int64              `json:"revision"`
	Node     string             `json:"node,omitempty"` // absent: no agent has run here
	Findings []registry.Finding `json:"findings"`
}

func (a *app) check() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "check",
		Short: "Check the invariants of the store and of this node",
		Long: `Reads the whole store at one revision, and the files of this node, and reports each
invariant that does not hold, by its number in docs/cluster.md. Run it on each node
to check its files. The exit status is 1 if there are findings.`,
		Example: a.examples("check", "check --json"),
		Args:    arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			// The files first: a block that the node gains meanwhile is then no finding.
			files, err := readFiles(ctx, s.local())
			if err != nil {
				return err
			}
			snapshot, err := s.registry.Snapshot(ctx)
			if err != nil {
				return err
			}
			r := checkReport{s.settings.Cluster, snapshot.Revision, files.node.Name,
				append(append([]registry.Finding{}, snapshot.Doubts()...), snapshot.Check()...)}
			if files.present {
				r.Findings = append(r.Findings, files.check(snapshot)...)
			}
			if err := a.print(r, func() error { return a.printFindings(r) }); err != nil {
				return err
			}
			if len(r.Findings) > 0 {
				return exitStatus(statusFailure)
			}
			return nil
		}),
	})
}

func (a *app) printFindings(r checkReport) error {
	for _, f := range r.Findings {
		a.printf("invariant %d: %s\n", f.Invariant, f.Text)
		if f.Hint != "" {
			a.printf("  hint: %s\n", f.Hint)
		}
	}
	scope := "the store"
	if r.Node != "" {
		scope += " and node " + r.Node
	}
	if len(r.Findings) == 0 {
		a.printf("%s: no findings at revision %d\n", scope, r.Revision)
	} else {
		a.printf("%s: %s at revision %d\n", scope, plural(len(r.Findings), "finding"), r.Revision)
	}
	return nil
}

// files is the content of this node's files.
type files struct {
	store   *local.Store
	present bool
	node    local.Node
	pools   []filePool
}

// filePool is one pool in the files of this node.
type filePool struct {
	name   string
	state  local.State
	leases []lease
	notes  []local.Note
}

// readFiles reads the files of this node. Without an agent there are none.
func readFiles(ctx context.Context, store *local.Store) (f files, err error) {
	f.store = store
	f.node, err = store.Node()
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	f.present = true
	notes, err := store.Notes()
	if err != nil {
		return f, err
	}
	err = eachPool(ctx, store, func(name string, p *local.Pool) error {
		leases, err := p.Leases(ctx)
		pool := filePool{name: name, state: p.State}
		for _, l := range leases {
			pool.leases = append(pool.leases, lease{l})
		}
		for _, n := range notes {
			if n.Pool == name {
				pool.notes = append(pool.notes, n)
			}
		}
		f.pools = append(f.pools, pool)
		return err
	})
	return f, err
}

// check compares the files of this node with the store.
func (f *files) check(snapshot registry.Snapshot) (found []registry.Finding) {
	if f.node.Restored != "" && snapshot.Doubt == nil {
		found = append(found, registry.Finding{Invariant: 1, Text: fmt.Sprintf(
			"node %s distrusts the store: %s", f.node.Name, f.node.Restored),
			Hint: "start its agent: it reports that to all nodes"})
	}
	if place, err := f.store.Place(); err != nil || f.node.Place != "" && f.node.Place != place {
		found = append(found, registry.Finding{Invariant: 1, Text: fmt.Sprintf(
			"node %s: %v", f.node.Name, cmp.Or(err, local.ErrCopied)), Hint: local.CopiedHint(f.node.Name)})
	}
	for _, p := range f.pools {
		for _, b := range p.state.Blocks {
			if finding := f.checkBlock(snapshot, p, b); finding != nil {
				found = append(found, *finding)
			}
		}
		for _, l := range p.leases {
			if finding := f.checkLease(snapshot, p, l); finding != nil {
				found = append(found, *finding)
			}
		}
	}
	for _, h := range snapshot.Holders {
		if h.Node == f.node.Name && !f.has(h) {
			found = append(found, registry.Finding{Invariant: 12, Text: fmt.Sprintf(
				"%s of pool %s is held by %s in the store, but not in the files of node %s", h.Addr, h.Pool,
				holderText(h), f.node.Name),
				Hint: "the agent frees it within 15 minutes; if it remains, release --address " +
					h.Addr.String()})
		}
	}
	return found
}

// checkBlock checks invariant 2 for the blocks that the node allocates from.
func (f *files) checkBlock(
	snapshot registry.Snapshot, p filePool, b local.Block,
) *registry.Finding {
	if b.Phase == local.Returning {
		return nil // the store may show either state
	}
	i := slices.IndexFunc(snapshot.Blocks, func(s registry.Block) bool {
		return s.Pool == p.name && s.Block.Block == b.Block
	})
	state := "is free in the store"
	if i >= 0 {
		s := snapshot.Blocks[i]
		switch {
		case s.Owner != f.node.Name || s.State != cluster.BlockOwned:
			state = fmt.Sprintf("is %s in the store, owner %q", s.State, s.Owner)
		case s.Epoch != b.Epoch || s.Nonce != b.Nonce || s.Generation != b.Generation:
			state = fmt.Sprintf("has epoch %d and generation %d in the store, and %d and %d here", s.Epoch,
				s.Generation, b.Epoch, b.Generation)
		case b.Phase == local.Lost:
			state = "is lost here, but owned in the store"
		default:
			return nil
		}
	}
	if b.Phase == local.Lost {
		return &registry.Finding{Invariant: 2, Text: fmt.Sprintf(
			"node %s has lost block %s of pool %s while addresses were in use; it %s", f.node.Name, b.Block,
			p.name, state), Hint: "detach the containers that tenon ipam list shows in this block"}
	}
	return &registry.Finding{Invariant: 2, Text: fmt.Sprintf(
		"node %s uses block %s of pool %s, which %s", f.node.Name, b.Block, p.name, state),
		Hint: "restart the agent: it compares the blocks with etcd"}
}

// lease is a reservation on this node.
type lease struct{ ipam.Lease }

// earlier reports whether the reservation is void because the node has restarted.
func (l lease) earlier() bool {
	return l.Boot == ipam.BootEarlier || l.Boot == ipam.BootForeignEarlier
}

// checkLease checks that an address lies in a block of the node or is a shared one, and that rules
// allow it.
func (f *files) checkLease(snapshot registry.Snapshot, p filePool, l lease) *registry.Finding {
	if l.earlier() {
		return nil // void since the last boot
	}
	if err := p.state.Pool.Allocatable(l.Addr); err != nil && p.state.Pool.Name != "" {
		return &registry.Finding{Invariant: 8, Text: fmt.Sprintf("%s: %v", l.Lease, err),
			Hint: "detach the container when possible"}
	}
	for _, b := range p.state.Blocks {
		if b.Block.Contains(l.Addr) {
			return nil
		}
	}
	for _, h := range snapshot.Holders {
		if h.Pool == p.name && h.Addr == l.Addr && h.Node == f.node.Name {
			return nil
		}
	}
	for _, n := range p.notes {
		if n.Addr == l.Addr {
			return nil
		}
	}
	return &registry.Finding{Invariant: 2, Text: fmt.Sprintf(
		"%s of pool %s is in no block of node %s and not shared", l.Lease, p.name, f.node.Name),
		Hint: "if the container no longer exists: tenon ipam release " + l.Addr.String()}
}

// has reports whether the files show a shared address as held or as released.
func (f *files) has(h cluster.Holder) bool {
	for _, p := range f.pools {
		if p.name != h.Pool {
			continue
		}
		if slices.ContainsFunc(p.leases, func(l lease) bool { return l.Addr == h.Addr }) ||
			slices.ContainsFunc(p.notes, func(n local.Note) bool { return n.Addr == h.Addr }) {
			return true
		}
	}
	return false
}
