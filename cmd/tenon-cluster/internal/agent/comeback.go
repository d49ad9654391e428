package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// maxNamed is the number of containers that a message names.
const maxNamed = 8

// comeBack handles the return of a fenced node. It first marks all blocks as lost, so that the
// plugin allocates nothing. When no attachment uses an address of them any more, the node gives up
// what the store still shows and starts its next epoch. Until then the error wraps
// [registry.ErrFenced].
func (a *Agent) comeBack(ctx context.Context) (registry.Session, error) {
	again := a.session.fence()
	affected, err := a.surrender(ctx)
	if err != nil {
		return registry.Session{}, err
	}
	if len(affected) > 0 {
		if !again {
			a.o.Log.Error("this node was fenced: its blocks are lost, and ADD is refused until the "+
				"affected containers have ended", "containers", affected)
		}
		return registry.Session{}, fmt.Errorf("%w, and %d addresses of lost blocks are in use: %s",
			registry.ErrFenced, len(affected), few(affected))
	}
	n, err := a.session.store().Nodes.Read(ctx, a.o.Node.Name)
	if err != nil {
		return registry.Session{}, err
	}
	if err := a.reclaimAll(ctx, n); err != nil {
		return registry.Session{}, err
	}
	s, err := a.session.prover().Nodes.Rejoin(ctx, a.session.document(), a.o.TTL)
	if err == nil {
		a.o.Log.Info("rejoined after fencing", "epoch", s.Node.Epoch)
	}
	return s, err
}

// surrender marks the blocks of all pools as lost, and drops those without addresses in use. It
// returns the attachments that use an address of a lost block, or a shared address.
func (a *Agent) surrender(ctx context.Context) (affected []string, err error) {
	pools, err := a.o.Local.Pools()
	if err != nil {
		return nil, err
	}
	for _, name := range pools {
		err := a.edit(ctx, name, func(p *local.Pool) error {
			used, err := inUse(ctx, p)
			if err != nil {
				return err
			}
			var lost []local.Block
			for _, b := range p.State.Blocks {
				if used[b.Block] > 0 {
					b.Phase = local.Lost
					lost = append(lost, b)
				}
			}
			p.State.Blocks, p.State.Tokens = lost, nil
			leases, err := p.Leases(ctx)
			for _, l := range leases {
				affected = append(affected, fmt.Sprintf("%s (%s %s)", l.Owner.Container,
					l.Owner.IfName, l.Addr))
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return affected, nil
}

// few joins the first words of a list.
func few(list []string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
}
